"""The audit log: a line for the alike decisions about a request, budgets of each client, and files that stay."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.config.loading import checked_config
from moldau.broker.node import audit_log
from moldau.broker.node.audit_log import (
    COUNT_INTERVAL_S,
    COUNTED_CLIENTS_MAX,
    FIRST_SIZE,
    NAME_LENGTH_MAX,
    SECOND_LINES_MAX,
    SECOND_SIZE_MAX,
    JsonAuditLog,
    open_audit_file,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.authorizer import AclAccess, AuditedDecisions
from moldau.security.principal import Principal
from tests.support.node import Node, serve_and

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:1",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/tmp/unused",
}
DAY_MS = 86_400_000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


class Story:
    """Decisions about clients, at a time that the story sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO", "moldau.audit")
        self.now_ms = NOON_MS
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self.audit = JsonAuditLog(lambda: self.now_ms, lambda delay_s, call: self._timers.append((delay_s, call)))
        self._caplog = caplog

    def decide(
        self, user: str, requests: int = 1, *, names: int = 1, is_allowed: bool = False, name: str = "t"
    ) -> list[dict[str, Any]]:
        """The lines of these requests, each of which has decisions about so many names."""
        self._caplog.clear()
        access = cast("AclAccess", SimpleNamespace(principal=Principal("User", user), host="192.0.2.7"))
        for _ in range(requests):
            decisions = AuditedDecisions(AclOperation.DESCRIBE, ResourceKind.TOPIC, f"{name}0", is_allowed)
            for number in range(1, names):
                decisions.add(f"{name}{number}")
            self.audit.log_decisions(access, decisions)
        return self._lines()

    def counted(self) -> list[dict[str, Any]]:
        """The lines that a timer writes, once it has expired."""
        self._caplog.clear()
        timers, self._timers = self._timers, []
        for delay_s, call in timers:
            assert delay_s == COUNT_INTERVAL_S
            call()
        return self._lines()

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(each.getMessage()) for each in self._caplog.records if each.name == "moldau.audit"]


def test_a_decision_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(caplog)
    (line,) = story.decide("alice")
    assert line == {
        "time": "2023-11-14T12:00:00.000+00:00",
        "principal": "User:alice",
        "host": "192.0.2.7",
        "operation": "DESCRIBE",
        "resource_type": "TOPIC",
        "resource": "t0",
        "decision": "DENIED",
    }
    (line,) = story.decide("alice", is_allowed=True)
    assert line["decision"] == "ALLOWED" and story.audit.denied_count == 1


def test_decisions_about_many_names_are_one_line_with_the_first_names_and_the_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story(caplog)
    (line,) = story.decide("alice", names=100_000)
    assert (line["resource"], line["count"]) == ("t0", 100_000)
    assert line["resources"] == ["t0", "t1", "t2", "t3", "t4"]
    assert story.audit.denied_count == 100_000


@pytest.mark.parametrize("letter", ["x", "\0", "ä", "\U0001f600"])
def test_long_names_are_cut_so_that_a_line_has_a_bounded_size(caplog: pytest.LogCaptureFixture, letter: str) -> None:
    story = Story(caplog)
    (line,) = story.decide("u" * 3000, names=5, name=letter * 30_000)
    assert line["resource"].endswith("(30001 characters)")
    assert len(json.dumps(line)) < 16 * NAME_LENGTH_MAX, "the node's own log cuts lines at 4096 characters"


def test_denials_beyond_the_lines_of_a_second_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    story = Story(caplog)
    assert len(story.decide("mallory", SECOND_LINES_MAX + 500)) == SECOND_LINES_MAX
    assert story.audit.denied_count == SECOND_LINES_MAX + 500
    assert len(story.decide("alice", 3)) == 3, "the limit of one client hides no other client"
    assert len(story.decide("mallory", 3, is_allowed=True)) == 3
    story.now_ms += 1000
    assert len(story.decide("mallory", 2)) == 2, "the next second has lines again"
    (summary,) = story.counted()
    assert (summary["principal"], summary["decision"], summary["without_line"]) == ("User:mallory", "DENIED", 500)
    assert story.counted() == [] and len(story.decide("alice")) == 1, "a number is written once"


def test_a_client_has_a_budget_of_bytes_for_a_second_and_for_a_day(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    day_size_max = 4 * SECOND_SIZE_MAX
    monkeypatch.setattr(audit_log, "DAY_SIZE_MAX", day_size_max)
    story = Story(caplog)
    name = "x" * NAME_LENGTH_MAX
    written = story.decide("mallory", SECOND_LINES_MAX, names=5, name=name)
    assert 0.9 * SECOND_SIZE_MAX < sum(len(json.dumps(each)) + 1 for each in written) <= SECOND_SIZE_MAX
    size = 0
    for _ in range(8):
        story.now_ms += 1000
        written = story.decide("mallory", 200, names=5, name=name)
        size += sum(len(json.dumps(each)) + 1 for each in written if "resource" in each)
    assert size <= day_size_max, "an attacker's denials fill a day's budget and no more"
    assert len(story.decide("alice")) >= 1
    story.now_ms += DAY_MS
    assert any("resource" in each for each in story.decide("mallory")), "the next day has lines again"


def test_when_many_clients_have_spent_the_budget_of_all_each_has_its_first_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "DAY_SIZE_MAX_OF_ALL", 100_000)
    monkeypatch.setattr(audit_log, "CLIENTS_MAX", 20)
    story = Story(caplog)
    for number in range(10):
        story.decide(f"mallory{number}", 100)
    lines = story.decide("alice", 100)
    assert 0 < len(lines) < 100 and sum(len(json.dumps(each)) + 1 for each in lines) <= FIRST_SIZE
    assert sum(len(story.decide(f"other{number}", 2)) for number in range(1000)) < 50, "further clients share a budget"
    summaries = story.counted()
    assert len(summaries) <= COUNTED_CLIENTS_MAX + 1 and "*" in {each["principal"] for each in summaries}
    assert sum(each["without_line"] for each in summaries) > 1900


def test_a_stop_of_the_node_writes_what_was_only_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "SECOND_LINES_MAX", 0)
    caplog.set_level("INFO", "moldau.audit")

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert "without_line" not in caplog.text
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        assert '"without_line"' in caplog.text

    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    serve_and(story, authorizer_class_name=authorizer, super_users="User:admin")


@pytest.fixture
def restored() -> Iterator[None]:
    """The handlers of the audit log as they were."""
    log = logging.getLogger("moldau.audit")
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    yield
    for each in log.handlers:
        each.close()
    log.handlers[:] = handlers
    log.setLevel(level)
    log.propagate = propagate


def written(path: Path, **settings: str) -> logging.Logger:
    """The audit log of a node that writes to a file."""
    settings = {name.replace("_", "."): value for name, value in settings.items()}
    open_audit_file(checked_config({**NODE, "moldau.audit.log.file": str(path), **settings}))
    return logging.getLogger("moldau.audit")


@pytest.mark.usefixtures("restored")
def test_other_users_of_the_machine_cannot_read_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "FILE_SIZE_MAX", 100)
    before = os.umask(0)
    try:
        log = written(tmp_path / "audit.log", moldau_audit_log_allowed="true")
        for number in range(20):
            log.info("line %d", number)
            log.info("line %d", number, extra={"is_allowed": True})
    finally:
        os.umask(before)
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    assert len(modes) > 3
    assert set(modes.values()) == {0o640}


@pytest.mark.usefixtures("restored")
def test_a_full_file_is_kept_until_its_age_and_no_number_of_lines_deletes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "FILE_SIZE_MAX", 1_000)
    path = tmp_path / "audit.log"
    old, other = tmp_path / "audit.log.20200101T000000Z", tmp_path / "audit.log.notes"
    for each in (old, other):
        each.write_text("a line\n")
    log = written(path, moldau_audit_log_retention_days="3")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    for number in range(500):
        log.info("%s", f"line {number:03d}" * 10)
    kept = [each for each in tmp_path.iterdir() if each not in (path, other)]
    text = "".join(each.read_text() for each in (*kept, path))
    assert len(kept) > 20 and all(f"line {number:03d}" in text for number in range(500))
    assert not old.exists() and other.exists(), "files of the audit log alone are deleted, by their age"


@pytest.mark.usefixtures("restored")
def test_no_line_is_lost_while_a_full_file_cannot_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_log, "FILE_SIZE_MAX", 100)
    log = written(tmp_path / "audit.log")
    (handler,) = log.handlers

    def emit(number: int, created_s: float) -> None:
        record = log.makeRecord(log.name, logging.INFO, "", 0, f"line {number:03d}" * 10, (), None)
        record.created = created_s
        handler.handle(record)

    now_s = (tmp_path / "audit.log").stat().st_mtime
    with monkeypatch.context() as failing:
        failing.setattr(Path, "rename", refuse)
        for number in range(10):
            emit(number, now_s)
    assert len(list(tmp_path.iterdir())) == 1
    assert sum("cannot be renamed" in each.getMessage() for each in caplog.records) == 1
    emit(10, now_s + audit_log.RENAME_RETRY_S)
    full, current = sorted(tmp_path.iterdir(), reverse=True)
    assert all(f"line {number:03d}" in full.read_text() for number in range(10))
    assert "line 010" in current.read_text()


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("name", ["audit.log", "audit.log.20200101T000000Z"])
def test_no_line_is_lost_when_another_process_removes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(audit_log, "FILE_SIZE_MAX", 100)
    log = written(tmp_path / "audit.log", moldau_audit_log_retention_days="1")
    log.info("%s", "first" * 30)
    (tmp_path / name).write_text("")
    os.utime(tmp_path / name, (1, 1))
    if name == "audit.log":
        (tmp_path / name).unlink()
    else:
        monkeypatch.setattr(Path, "unlink", refuse)
    for number in range(3):
        log.info("line %d", number)
    assert (tmp_path / "audit.log").read_text() == "line 0\nline 1\nline 2\n"


def refuse(*_: object) -> None:
    raise OSError(errno.EACCES, "not permitted")


@pytest.mark.usefixtures("restored")
def test_a_day_begins_a_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("of yesterday\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    written(path, moldau_audit_log_retention_days="36500").info("of today")
    assert path.read_text() == "of today\n"
    assert (tmp_path / "audit.log.20231114T221320Z").read_text() == "of yesterday\n"


@pytest.mark.usefixtures("restored")
def test_allowed_requests_have_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = written(path, moldau_audit_log_allowed="true")
    log.info("denied")
    log.info("allowed", extra={"is_allowed": True})
    assert path.read_text() == "denied\n"
    assert (tmp_path / "audit.log.allowed").read_text() == "allowed\n"
