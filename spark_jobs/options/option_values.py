"""Reading the text of one option: a word, a number, JSON."""

from __future__ import annotations

import json

from moldau.spark_jobs.refusals import Refused


def parsed_json(name: str, value: str) -> object:
    """The value of an option in JSON. Raises `Refused` where the text is not JSON."""
    try:
        parsed: object = json.loads(value)
    except ValueError as problem:
        raise Refused(f"{name}: {value} is not JSON: {problem}") from None
    return parsed


def boolean(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise Refused(f"{name}: {value} is neither true nor false")
    return word == "true"


def positive(name: str, value: str | None) -> int | None:
    """A whole number above 0; None where the option is not given."""
    if value is None:
        return None
    if not value.strip().isdecimal() or int(value) == 0:
        raise Refused(f"{name}: {value} is not a whole number above 0")
    return int(value)


def milliseconds(name: str, value: str) -> int:
    """A time in milliseconds since the epoch."""
    digits = value.strip()
    if not digits.removeprefix("-").isdecimal():
        raise Refused(f"{name}: {value} is not a time in milliseconds since the epoch")
    return int(digits)


def one_of(name: str, value: str, words: tuple[str, ...]) -> str:
    word = value.strip().lower()
    if word not in words:
        raise Refused(f"{name}: {value} is not one of {', '.join(words)}")
    return word


def names_in(value: str) -> tuple[str, ...]:
    """The names in a list separated by commas, each once."""
    return tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))


def is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
