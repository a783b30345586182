"""Parses times and durations as users write them."""

from __future__ import annotations

import re
from typing import Final

from moldau.broker.cli.daily.failures import WrongArguments

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NUMBER: Final = r"\d{1,15}"
_PART: Final = re.compile(rf"({_NUMBER}(?:\.\d+)?)(ms|min|s|m|h|d|w)")
_ISO: Final = re.compile(rf"P(?:({_NUMBER})D)?(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER}(?:\.\d+)?)S)?)?")
MILLISECONDS_LENGTHS: Final = range(11, 19)
"""The numbers of digits of a time in milliseconds since 1970. Kafka's protocol has no room for more."""
DURATIONS: Final = "90s, 15m, 2h, 7d, 1h30m or PT2H"
TIMES: Final = (
    f"2026-11-29T06:00 (UTC where it has no zone), milliseconds since 1970, now, or a duration ago ({DURATIONS})"
)


def is_offset(text: str) -> bool:
    """Whether a text is an offset, and not a time in milliseconds."""
    return text.isdecimal() and len(text) < MILLISECONDS_LENGTHS[0]


def duration_ms(text: str, option: str) -> int:
    """Parse a duration into milliseconds: `2h`, `1h30m`, or ISO 8601 such as `PT2H`. `option` names the argument in the
    message. Raises `WrongArguments`.
    """
    found = _duration(text)
    if found is None:
        raise WrongArguments(f"{option} {text}: a duration is written as {DURATIONS}")
    return found


def time_ms(text: str, option: str, now_ms: int, places: str = "") -> int:
    """Parse a time into ms since 1970. A duration means that long before `now_ms`. Raises `WrongArguments`, whose
    message names `option` and begins the list of its values with `places`, those that are not times.
    """
    found = _time_ms(text, option, now_ms, places)
    if found < 0:
        raise WrongArguments(f"{option} {text} is before 1970: there are no such times in Kafka")
    return found


def _time_ms(text: str, option: str, now_ms: int, places: str) -> int:
    if text == "now":
        return now_ms
    if text.isdecimal():
        if len(text) not in MILLISECONDS_LENGTHS:
            raise WrongArguments(f"{option} {text}: a number is milliseconds since 1970, such as {now_ms}")
        return int(text)
    ago = _duration(text.removesuffix("ago").rstrip())
    if ago is not None:
        return now_ms - ago
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongArguments(f"{option} {text} is not {places}a time: {TIMES}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _duration(text: str) -> int | None:
    if text.startswith("P"):
        match = _ISO.fullmatch(text)
        if match is None or not any(match.groups()):
            return None
        days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
        return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))
