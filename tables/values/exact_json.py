"""JSON that is written again with the digits that its numbers had when it was parsed. A float keeps about 17 digits,
and makes 1.1 of `1.10`.

A number that a float would not write as it was is parsed into an `ExactNumber`. `exact_text` makes numbers of these
texts again.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

MARK: Final = os.urandom(8).hex()
"""The beginning of a text that stands for a number. It is random, so that no text of a record begins with it."""
_MARKED: Final = re.compile(f'"{MARK}([^"]*)"')


class ExactNumber(str):
    """The text that stands for a number: `MARK`, and the digits."""

    @property
    def digits(self) -> str:
        return self.removeprefix(MARK)


def exact_number(digits: str) -> float | ExactNumber:
    """Parse a number with a fraction or an exponent: the argument `parse_float` of `json`."""
    number = float(digits)
    return number if repr(number) == digits else ExactNumber(MARK + digits)


def exact_text(written: str) -> str:
    """Return a JSON text that `json` has written, with numbers in place of the texts that stand for them."""
    return _MARKED.sub(r"\1", written) if MARK in written else written


def plain_value(value: Any) -> Any:
    """Return a parsed value with floats in place of the texts that stand for numbers, at each depth."""
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    return float(value.digits) if isinstance(value, ExactNumber) else value
