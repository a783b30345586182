"""JSON that is written again with the digits that its numbers had when it was parsed. A float keeps about 17 digits,
and makes 1.1 of `1.10`.

A number with a fraction or an exponent is parsed into a text: `MARK`, and the digits. `exact_text` removes the mark and
the quotes again.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

MARK: Final = os.urandom(8).hex()
"""The beginning of a text that stands for a number. It is random, so that no text of a record begins with it."""
_MARKED: Final = re.compile(f'"{MARK}([^"]*)"')


def number_text(digits: str) -> str:
    """The text that stands for a number: the argument `parse_float` of `json`."""
    return MARK + digits


def exact_text(written: str) -> str:
    """Return a JSON text that `json` has written, with numbers in place of the texts that stand for them."""
    return _MARKED.sub(r"\1", written)


def plain_value(value: Any) -> Any:
    """Return a parsed value with floats in place of the texts that stand for numbers, at each depth."""
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    return float(value.removeprefix(MARK)) if isinstance(value, str) and value.startswith(MARK) else value
