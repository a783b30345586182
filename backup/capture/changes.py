"""The functions by which a capture masks the fields of records: replace, hash, shape and drop.

    --mask 'orders*:value.customer=hash'      RULE=CHANGE, with RULE as in moldau.console.masks

| change  | the masked value                                                        | equal values stay equal |
|---------|-------------------------------------------------------------------------|-------------------------|
| replace | `***`                                                                   |                         |
| hash    | 32 hexadecimal digits; of a number, a number of up to 15 digits         | yes                     |
| shape   | other letters, of the same case, and other digits; all else stays;      | yes                     |
|         | bytes that are not text are replaced                                    |                         |
| drop    | nothing: the field or the header is gone, a whole key or value is empty |                         |

`hash` and `shape` depend on a secret key. A reader that has the key can test whether a guessed value is right, but
cannot compute the value.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from hashlib import shake_256
from math import isfinite
from typing import Final

from moldau.tables.values.masks import DROP_VALUE, Change, MaskRule, hide_value, mask_rule

HASHED_SIZE: Final = 16
"""The size of a hash of text or bytes, in bytes."""
NUMBER_SIZE: Final = 6
"""The size of a hashed number, in bytes. It is small enough for every JSON parser to read the number exactly."""
MASK_KEY_SIZE: Final = 32
"""The smallest size of the key of the hashes, in bytes."""
BINARY: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters that do not occur in text. Bytes with one of them are a number, or a message of Avro or Protobuf.
Other letters and digits would not hide their contents."""
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


class MaskFunctions:
    """The functions that mask values, by the name of the change in a mask rule. The changes `hash` and `shape` share
    one secret key.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.used_rules: set[str] = set()
        """The texts of the rules that have changed a value."""
        self._named: dict[str, Change] = {
            "replace": hide_value,
            "hash": self.keyed_hash_of,
            "shape": self.same_shape_value,
            "drop": lambda _: DROP_VALUE,
        }

    def parse_rule(self, text: str) -> MaskRule:
        """Parse a mask rule such as `orders*:value.customer=hash`. Raises ValueError."""
        rule, separator, name = text.rpartition("=")
        if not separator:
            rule, name = text, "replace"
        change = self._named.get(name)
        if change is None:
            raise ValueError(f"{text}: {name} is not one of {', '.join(self._named)}")

        def noted(value: object) -> object:
            self.used_rules.add(text)
            return change(value)

        return mask_rule(rule, noted)

    def keyed_hash_of(self, value: object) -> object:
        """Return a keyed hash of the value; None for null."""
        if value is None:
            return None
        digest = hmac.digest(self._key, _bytes_of(value), "sha256")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int.from_bytes(digest[:NUMBER_SIZE])
        text = digest[:HASHED_SIZE].hex()
        return text.encode() if isinstance(value, bytes) else text

    def same_shape_value(self, value: object) -> object:
        """Replace the letters and digits of a value by others, and keep all other characters. None (null) stays None.
        `***` replaces bytes that are not text, true, false, lists and objects.
        """
        if value is None:
            return None
        if isinstance(value, str):
            return self._shaped(value, _other_letter)
        if isinstance(value, bytes):
            try:
                text = value.decode()
            except UnicodeDecodeError:
                return hide_value(value)
            return hide_value(value) if BINARY.search(text) else self._shaped(text, _other_letter).encode()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return hide_value(value)
        shaped = self._shaped(repr(value), _other_digit)
        if isinstance(value, int):
            return int(shaped)
        return float(shaped) if isfinite(float(shaped)) else 0.0

    def _shaped(self, text: str, other: Callable[[str, int], str]) -> str:
        seed = hmac.digest(self._key, _bytes_of(text), "sha256")
        return "".join(map(other, text, shake_256(seed).digest(len(text))))


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode("utf-8", "surrogatepass")


def _other_letter(letter: str, number: int) -> str:
    if not letter.isalpha():
        return _other_digit(letter, number)
    other = LETTERS[number % len(LETTERS)]
    return other.upper() if letter.isupper() else other


def _other_digit(digit: str, number: int) -> str:
    """Replace a digit by another one; return any other character unchanged. The result is never 0, so that a number
    keeps its length.
    """
    return str(1 + number % 9) if digit.isdigit() else digit
