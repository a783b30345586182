"""Times and durations in the command line of the jobs and in their output: UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from moldau.tables.refusals import Refused

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS_S: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def milliseconds_of(option: str, text: str) -> int:
    """Parse a time into ms since 1970. The text is a number of ms since 1970, or ISO 8601, which is UTC if it names no
    time zone. Raises `Refused`."""
    word = text.strip()
    if word.isdecimal():
        return int(word)
    try:
        parsed = datetime.fromisoformat(word)
    except ValueError:
        raise Refused(f"{option}: {text!r} is neither a time like 2026-11-20T06:00 nor a number of ms") from None
    moment = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)


def shown_moment(milliseconds: int) -> str:
    """A time as text, to the second; a number of ms if the calendar has no such year."""
    try:
        return f"{EPOCH + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{milliseconds} ms"


def shown_span(seconds: int) -> str:
    """A duration as text, in the largest unit that divides it: `15 min`."""
    unit, size = next((unit, size) for unit, size in UNITS_S if not seconds % size)
    return f"{seconds // size} {unit}"
