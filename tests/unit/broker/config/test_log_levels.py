"""The loggers that clients see are the loggers that the code has."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.apis.cluster.alter_configs import ConfigChange, alter_own_loggers
from moldau.broker.config.log_levels import LOGGERS, describe_loggers
from moldau.protocol.errors import ErrorCode

ROOT = Path(__file__).parents[4]
LOGGER = "moldau.connection"


@pytest.fixture(autouse=True)
def _levels_as_they_were() -> Iterator[None]:
    level = logging.getLogger(LOGGER).level
    yield
    logging.getLogger(LOGGER).setLevel(level)


def test_every_logger_of_the_code_can_be_seen_and_set() -> None:
    used = {
        name
        for path in (ROOT / "broker").rglob("*.py")
        for name in re.findall(r'getLogger\("([^"]+)"\)', path.read_text("utf-8"))
    }
    assert used <= {*LOGGERS, "moldau"}, "a new logger belongs into the list"


def described(name: str) -> str | None:
    (entry,) = (each for each in describe_loggers(LOGGERS) if each.name == name)
    return entry.value


def test_a_level_that_was_set_is_described_until_it_is_given_up() -> None:
    inherited = described(LOGGER)
    assert alter_own_loggers(1, "1", [ConfigChange(LOGGER, 0, "ERROR")], validate_only=True).error is ErrorCode.NONE
    assert described(LOGGER) == inherited
    assert alter_own_loggers(1, "1", [ConfigChange(LOGGER, 0, "ERROR")], validate_only=False).error is ErrorCode.NONE
    assert described(LOGGER) == "ERROR" and not logging.getLogger(LOGGER).isEnabledFor(logging.WARNING)
    assert alter_own_loggers(1, "1", [ConfigChange(LOGGER, 1, None)], validate_only=False).error is ErrorCode.NONE
    assert described(LOGGER) == inherited


def test_the_audit_log_is_not_silenced_by_a_request() -> None:
    for change in (ConfigChange("moldau.audit", 0, "FATAL"), ConfigChange("moldau.audit", 1, None)):
        assert alter_own_loggers(1, "1", [change], validate_only=False).error is ErrorCode.INVALID_REQUEST
    (entry,) = (each for each in describe_loggers(LOGGERS) if each.name == "moldau.audit")
    assert entry.is_read_only
    assert not any(each.is_read_only for each in describe_loggers(LOGGERS) if each is not entry and each != entry)
