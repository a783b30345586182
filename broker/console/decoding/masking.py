"""Masking: parts of records that the console neither shows nor finds, by the rules of moldau.console.masks.

    TOPICS:PART[.FIELD…]      orders*:value.card.number      *:headers.authorization      users:key

TOPICS is a name with wildcards; a topic whose name begins with two underscores is meant only by a rule that begins so
too. PART is key, value or headers. FIELD names a field of JSON, of Avro or of Protobuf, at any index of the lists on
the way; `*` is any name. Without FIELD the whole part is masked, as it is if it cannot be parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from moldau.broker.config.console import mask_rule_parts
from moldau.protocol.record_builder import Record

SHOWN: Final = "***"
"""What is shown in place of a masked value."""
INTERNAL: Final = "__"


class Masks:
    """The rules for one topic."""

    def __init__(self, rules: Iterable[str], topic: str) -> None:
        self._paths: dict[str, list[Sequence[str]]] = {}
        for rule in rules:
            topics, part, path = mask_rule_parts(rule)
            if fnmatchcase(topic, topics) and topic.startswith(INTERNAL) <= topics.startswith(INTERNAL):
                self._paths.setdefault(part, []).append(path)

    def __bool__(self) -> bool:
        return bool(self._paths)

    def applied(self, record: Record) -> Record:
        """The record as it may be shown."""
        named = self._paths.get("headers", [])
        headers = record.headers
        if named:
            headers = tuple(
                (name, SHOWN.encode() if any(not path or path[0] in (name, "*") for path in named) else value)
                for name, value in headers
            )
        return record._replace(
            key=self._masked("key", record.key), value=self._masked("value", record.value), headers=headers
        )

    def _masked(self, part: str, data: bytes | None) -> bytes | None:
        paths = self._paths.get(part)
        if not paths or data is None:
            return data
        if not all(paths):
            return SHOWN.encode()
        from moldau.tables.values.bounds import HostileValue, parse_json  # With it come the libraries of HTTP.

        try:
            value = parse_json(data)
            for path in paths:
                value = masked(value, path)
            return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        except (ValueError, HostileValue):
            return SHOWN.encode()


def masked(value: object, path: Sequence[str]) -> object:
    """A value of JSON without what is at a path, which is not empty."""
    if isinstance(value, list):
        return [masked(each, path) for each in value]
    if not isinstance(value, dict):
        return value
    name, rest = path[0], path[1:]
    return {
        key: each if name not in (key, "*") else masked(each, rest) if rest else SHOWN for key, each in value.items()
    }
