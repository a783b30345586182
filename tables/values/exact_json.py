"""Keeps the digits of numbers if JSON is parsed and written again. A float keeps about 17 digits, and makes 1.1 of
`1.10`.

A number that a float would change is parsed into an `ExactNumber`, which is a text. `exact_text` makes numbers of these
texts after the JSON was written.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

MARK: Final = os.urandom(8).hex()
"""The beginning of each `ExactNumber`. It is random, so that no text of a record begins with it."""
_MARKED: Final = re.compile(f'"{MARK}([^"]*)"')


class ExactNumber(str):
    """A text in place of a number: `MARK`, then the digits."""

    @property
    def digits(self) -> str:
        return self.removeprefix(MARK)


def exact_number(digits: str) -> float | ExactNumber:
    """Parse a number with a fraction or an exponent: the argument `parse_float` of `json`."""
    number = float(digits)
    return number if repr(number) == digits else ExactNumber(MARK + digits)


def exact_text(written: str) -> str:
    """Return a JSON text that `json` has written, with a number in place of each `ExactNumber`."""
    return _MARKED.sub(r"\1", written) if MARK in written else written


def plain_value(value: Any) -> Any:
    """Return a parsed value with a float in place of each `ExactNumber`, at each depth."""
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    return float(value.digits) if isinstance(value, ExactNumber) else value
