"""The loggers of this process as Kafka's clients see and set them: names, and Log4j's words for the levels."""

from __future__ import annotations

import logging
from typing import Final

from broker.config.describing import Described
from broker.config.layers import ConfigSource, Synonym
from broker.config.setting import ValueType

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
_WORDS: Final = {level: word for word, level in LEVELS.items()}


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
