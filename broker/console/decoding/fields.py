"""Looks for a field in values that are JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache


@lru_cache(16)
def field_test(path: str, text: str) -> Callable[[bytes | None], bool]:
    """A test for values: whether JSON (UTF-8 without a zero byte) has a field at `path`, with points between the names,
    whose value is `text`. A string is compared unchanged, anything else as JSON. A field of the whole path's name at
    the outermost level comes first.
    """
    from moldau.tables.values.bounds import HostileValue, parse_json  # With it come the libraries of HTTP.

    names = path.split(".")

    def has_field(value: bytes | None) -> bool:
        if not value or b"\0" in value:
            return False
        try:
            found = parse_json(value)
            for name in (path,) if isinstance(found, dict) and path in found else names:
                if not isinstance(found, dict) or name not in found:
                    return False
                found = found[name]
            if type(found) is int:
                return str(found) == text
            return (found if isinstance(found, str) else json.dumps(found)) == text
        except (ValueError, HostileValue):
            return False

    return has_field
