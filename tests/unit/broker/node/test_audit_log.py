"""The audit log: a line for each decision, and a number for the denials of a client that are too many for lines."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.node.audit_log import DENIED_LINES_MAX, JsonAuditLog
from protocol.access import AclOperation
from security.access import ResourceKind
from security.acl.authorizer import AclAccess
from security.principal import Principal


class Story:
    """Decisions about clients, at a time that the story sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "moldau.audit")
        self.now_ms = 1_700_000_000_000
        self.audit = JsonAuditLog(lambda: self.now_ms)
        self._caplog = caplog

    def decide(self, user: str, count: int = 1, *, is_allowed: bool = False) -> list[dict[str, Any]]:
        """The lines of these decisions."""
        self._caplog.clear()
        access = cast("AclAccess", SimpleNamespace(principal=Principal("User", user), host="192.0.2.7"))
        for number in range(count):
            self.audit.decided(access, AclOperation.DESCRIBE, ResourceKind.TOPIC, f"t{number}", is_allowed)
        return [json.loads(each.getMessage()) for each in self._caplog.records if each.name == "moldau.audit"]


def test_a_decision_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(caplog)
    (line,) = story.decide("alice")
    assert line == {
        "time": "2023-11-14T22:13:20.000+00:00",
        "principal": "User:alice",
        "host": "192.0.2.7",
        "operation": "DESCRIBE",
        "resource_type": "TOPIC",
        "resource": "t0",
        "decision": "DENIED",
    }
    (line,) = story.decide("alice", is_allowed=True)
    assert line["decision"] == "ALLOWED" and story.audit.denied_count == 1


def test_denials_beyond_the_limit_are_counted_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(caplog)
    assert len(story.decide("mallory", DENIED_LINES_MAX + 500)) == DENIED_LINES_MAX
    assert story.audit.denied_count == DENIED_LINES_MAX + 500
    assert len(story.decide("alice", 3)) == 3, "the limit of one client hides no other client"
    assert len(story.decide("mallory", 3, is_allowed=True)) == 3
    story.now_ms += 1000
    summary, line = story.decide("alice")
    assert (summary["principal"], summary["decision"], summary["without_line"]) == ("User:mallory", "DENIED", 500)
    assert line["principal"] == "User:alice"
    assert len(story.decide("mallory", 2)) == 2, "the next second has lines again"
