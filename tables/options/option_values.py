"""Parses the text of one option (a word, a number, JSON), and the options that reads and writes share. These are the
client's settings, the address of a tiered storage, and the limits of a trigger."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.tables.refusals import Refused


def parsed_json(name: str, value: str) -> object:
    """Parse the value of an option as JSON. Raises `Refused` if it is not JSON."""
    try:
        parsed: object = json.loads(value)
    except ValueError as problem:
        raise Refused(f"{name}: {value} is not JSON: {problem}") from None
    return parsed


def boolean(name: str, value: str | None, otherwise: bool) -> bool:
    """Whether the option is true; `otherwise` if it is not given. Raises `Refused`."""
    if value is None:
        return otherwise
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise Refused(f"{name}: {value} is neither true nor false")
    return word == "true"


def is_second_word(name: str, value: str | None, words: tuple[str, str], otherwise: bool) -> bool:
    """Whether the value of an option is the second of two words; `otherwise` if the option is not given. Raises
    `Refused` for any other word."""
    return otherwise if value is None else checked_word(name, value, words) == words[1]


def positive(name: str, value: str | None) -> int | None:
    """Parse a whole number above 0; None if the option is not given. Raises `Refused`."""
    if value is None:
        return None
    if not value.strip().isdecimal() or int(value) == 0:
        raise Refused(f"{name}: {value} is not a whole number above 0")
    return int(value)


def milliseconds(name: str, value: str) -> int:
    """Parse a time in milliseconds since the epoch. Raises `Refused`."""
    digits = value.strip()
    if not digits.removeprefix("-").isdecimal():
        raise Refused(f"{name}: {value} is not a time in milliseconds since the epoch")
    return int(digits)


def checked_word(name: str, value: str, words: tuple[str, ...]) -> str:
    word = value.strip().lower()
    if word not in words:
        raise Refused(f"{name}: {value} is not one of {', '.join(words)}")
    return word


def names_in(value: str) -> tuple[str, ...]:
    """The names in a list separated by commas, without repetitions."""
    return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


SETTINGS: Final = (
    "kafka.security.protocol",
    "kafka.sasl.mechanism",
    "kafka.sasl.jaas.config",
    "kafka.ssl.ca.location",
    "kafka.ssl.truststore.location",
    "kafka.ssl.truststore.type",
    "kafka.ssl.keystore.location",
    "kafka.ssl.keystore.type",
    "kafka.ssl.key.password",
    "kafka.ssl.endpoint.identification.algorithm",
    "kafka.client.id",
    "kafka.request.timeout.ms",
)


def is_client_setting(name: str) -> bool:
    """Whether a name (in lower case) is that of one of the client's options."""
    return name in SETTINGS


def client_settings(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The client's options that are given, as (name, value). The names are in lower case."""
    return tuple((name, given[name]) for name in SETTINGS if name in given)


class StoreAddress(NamedTuple):
    """The address of a tiered storage, and its settings as in a broker: `moldau.tiered.storage` is the URL, and
    `.endpoint`, `.region` and `.timeout.ms` below that name are the other fields."""

    url: str
    """The absolute path of a directory, or the URL of an object store."""
    endpoint: str | None = None
    region: str | None = None
    timeout_ms: int = 30_000

    def __str__(self) -> str:
        return self.url


DELAY_MS_DEFAULT: Final = 15 * 60_000
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits of a streaming trigger, as in Spark's Kafka connector: two numbers of offsets over all partitions, and
    a delay."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = DELAY_MS_DEFAULT
    """The time (ms) after which a trigger reads although fewer than `offsets_min` offsets are available."""


def trigger_limits(given: Mapping[str, str]) -> TriggerLimits:
    """Parse the limits of a trigger from options with names in lower case. Raises `Refused`."""
    limits = TriggerLimits(
        positive("maxOffsetsPerTrigger", given.get("maxoffsetspertrigger")),
        positive("minOffsetsPerTrigger", given.get("minoffsetspertrigger")),
        _trigger_delay_ms(given.get("maxtriggerdelay")),
    )
    if limits.offsets_max is not None and limits.offsets_min is not None and limits.offsets_max < limits.offsets_min:
        raise Refused(f"minOffsetsPerTrigger {limits.offsets_min} is above maxOffsetsPerTrigger {limits.offsets_max}")
    return limits


def _trigger_delay_ms(value: str | None) -> int:
    """Parse a duration into ms: a number with one of Spark's units, or milliseconds if there is no unit. None gives the
    default. Raises `Refused`."""
    if value is None:
        return DELAY_MS_DEFAULT
    parsed = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
    if parsed is None or parsed[2] not in _UNITS_MS:
        raise Refused(f"maxTriggerDelay: {value} is not a duration such as 30s, 15m or 1h")
    return int(parsed[1]) * _UNITS_MS[parsed[2]]
