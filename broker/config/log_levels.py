"""Describes and changes the loggers of this process for Kafka's clients, with Log4j's names of levels."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from moldau.broker.config.describing import ConfigEntry
from moldau.broker.config.layers import ConfigSource
from moldau.protocol.errors import ErrorCode

ROOT: Final = "root"
AUDIT: Final = "moldau.audit"
"""The logger of the authorizer's decisions. Requests cannot change its level, because a client that may change settings
could otherwise hide what it does next. DIVERGES: Apache Kafka lets such a client turn the log of its authorizer off."""
LOGGERS: Final = (
    ROOT,
    "moldau",
    AUDIT,
    "moldau.background",
    "moldau.cleaner",
    "moldau.eraser",
    "moldau.broker",
    "moldau.connection",
    "moldau.console",
    "moldau.faults",
    "moldau.fetch",
    "moldau.groups",
    "moldau.http",
    "moldau.transactions",
    "moldau.listener",
    "moldau.logs",
    "moldau.opentelemetry",
    "moldau.peer",
    "moldau.quorum",
    "moldau.replica",
    "moldau.registration",
    "moldau.share",
    "moldau.slow",
    "moldau.tiering",
)
TRACE: Final = 5
"""A level below DEBUG. No logger uses it, but a client may set it, and DescribeConfigs returns it."""
LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
SET: Final = 0
DELETE: Final = 1
OPERATIONS: Final = {2: "APPEND", 3: "SUBTRACT"}
"""The operations of IncrementalAlterConfigs that are not allowed for a level."""
_WORDS: Final = {level: word for word, level in LEVELS.items()}
_NO_TYPE: Final = 0


def describe_loggers(names: tuple[str, ...]) -> list[ConfigEntry]:
    """Describe the level in force of each logger. As in Apache Kafka, the entries have no type and no synonyms."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    levels = {name: _WORDS[logging.getLogger(name).getEffectiveLevel()] for name in names}
    return [ConfigEntry(name, word, source, False, name == AUDIT, _NO_TYPE, "", ()) for name, word in levels.items()]


def alter_loggers(
    changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    """Apply changes, each a tuple of logger, operation and level. If one is refused, none is applied. Returns the error
    and its message.
    """
    levels: dict[str, int] = {}
    for name, operation, word in changes:
        if operation in OPERATIONS:
            message = f"{OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource"
            return ErrorCode.INVALID_REQUEST, message
        if operation not in (SET, DELETE):
            return ErrorCode.UNKNOWN_SERVER_ERROR, None
        if name not in LOGGERS:
            return ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!"
        if name == AUDIT:
            return ErrorCode.INVALID_REQUEST, f"The log level of {AUDIT} is not altered by requests"
        if operation == DELETE and name == ROOT:
            return ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        if operation == SET and word not in LEVELS:
            return ErrorCode.INVALID_CONFIG, (
                f"Cannot set the log level of {name} to {word} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}"
            )
        levels[name] = LEVELS[word] if operation == SET and word is not None else logging.NOTSET
    if not validate_only:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    return ErrorCode.NONE, None
