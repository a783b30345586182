"""The loggers of this process as Kafka's clients see and set them: names, and Log4j's words for the levels."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from broker.config.describing import Described
from broker.config.layers import ConfigSource, Synonym
from broker.config.setting import ValueType
from protocol.errors import ErrorCode

ROOT: Final = "moldau"
LOGGERS: Final = (
    ROOT,
    "moldau.background",
    "moldau.broker",
    "moldau.connection",
    "moldau.groups",
    "moldau.listener",
    "moldau.logs",
    "moldau.quorum",
    "moldau.registration",
)
LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
SET: Final = 0
DELETE: Final = 1
OPERATIONS: Final = {2: "APPEND", 3: "SUBTRACT"}
"""Operations of IncrementalAlterConfigs that a level does not know."""
_WORDS: Final = {level: word for word, level in LEVELS.items()}
"""TRACE says the same as DEBUG here, and is described as it."""


def describe_loggers(names: tuple[str, ...]) -> list[Described]:
    """The level in force of each logger."""
    entries = []
    for name in names:
        word = _WORDS[logging.getLogger(name).getEffectiveLevel()]
        source = ConfigSource.DYNAMIC_BROKER_LOGGER
        entries.append(
            Described(name, word, source, False, False, ValueType.STRING, None, (Synonym(name, word, source),))
        )
    return entries


def alter_loggers(
    changes: Iterable[tuple[str, int, str | None]], *, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    """Do what each (logger, operation, level) says, or nothing where one is refused."""
    levels: dict[str, int] = {}
    for name, operation, word in changes:
        if operation not in (SET, DELETE):
            said = OPERATIONS.get(operation, str(operation))
            return ErrorCode.INVALID_REQUEST, f"{said} operation is not allowed for the BROKER_LOGGER resource"
        if operation == SET and word is None:
            return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}"
        if name not in LOGGERS:
            return ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!"
        if operation == DELETE and name == ROOT:
            return ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        if operation == SET and word not in LEVELS:
            return ErrorCode.INVALID_CONFIG, f"{name} cannot have the level {word}, only one of {', '.join(LEVELS)}"
        levels[name] = LEVELS[word] if operation == SET and word is not None else logging.NOTSET
    if not validate_only:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    return ErrorCode.NONE, None
