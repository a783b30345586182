"""Formats counts and durations as words, for the command line, the console and the findings about groups."""

from __future__ import annotations

from typing import Final

_SECOND: Final = 1_000
_STEPS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (_SECOND, "s"))


def duration_text(milliseconds: int) -> str:
    """Format a duration in its two largest units: 2 h 5 min."""
    if milliseconds < _SECOND:
        return f"{milliseconds} ms" if milliseconds else "0 s"
    parts: list[str] = []
    rest = milliseconds
    for step, unit in _STEPS:
        count, rest = divmod(rest, step)
        if count:
            parts.append(f"{count} {unit}")
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts)


def count_with_noun(count: int, noun: str) -> str:
    """Format a count with its noun: 1 topic, 1,200 topics."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def times_text(count: int) -> str:
    """Format a number of times: once, twice, 9 times."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def names_text(names: list[str], most: int = 3) -> str:
    """Format a list of names, of which at most `most` are named: a, b and 4 more."""
    if len(names) <= most:
        return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"
