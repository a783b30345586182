"""Tests whether a JSON value has a field with a given content."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache


@lru_cache(16)
def field_test(path: str, text: str) -> Callable[[bytes | None], bool]:
    """Make a function that tells whether a value is a JSON object whose field `path` has the content `text`.

    The names in `path` are separated by dots. If the outermost object has a field whose name is the whole path, that
    field is tested. A string is compared unchanged, any other content in its JSON form, and a number also by the digits
    in the value. A value with a zero byte, or that is not UTF-8, does not match.
    """
    from moldau.tables.values.bounds import HostileValue, parse_json  # With it come the libraries of HTTP.
    from moldau.tables.values.exact_json import ExactNumber, exact_number, plain_value

    names = path.split(".")

    def has_field(value: bytes | None) -> bool:
        if not value or b"\0" in value:
            return False
        try:
            found = parse_json(value, exact_number)
            for name in (path,) if isinstance(found, dict) and path in found else names:
                if not isinstance(found, dict) or name not in found:
                    return False
                found = found[name]
            if type(found) is int:
                return str(found) == text
            if isinstance(found, ExactNumber):
                return text in (found.digits, repr(float(found.digits)))
            return (found if isinstance(found, str) else json.dumps(plain_value(found))) == text
        except (ValueError, HostileValue):
            return False

    return has_field
