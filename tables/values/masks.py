"""Masking: changes parts of records before they are shown to a reader.

    TOPICS:PART[.FIELD…]      orders*:value.card.number      *:headers.authorization      users:key

TOPICS is a name with wildcards. It matches a topic whose name begins with two underscores only if it begins with two
underscores, too. PART is key, value or headers. FIELD names a field of JSON, at any index of the lists on the way; `*`
is any name. Without FIELD the whole part is changed. The whole part is also changed if it cannot be parsed. The numbers
of other fields keep their digits, also those that a float does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, TypeAlias

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.record_builder import Record, RecordHeader

PARTS: Final = ("key", "value", "headers")
HIDDEN_TEXT: Final = "***"
"""The text that replaces a hidden value."""
DROP_VALUE: Final = object()
"""The result of a change that removes a field or a header. A whole key or value becomes empty."""
INTERNAL: Final = "__"

Change: TypeAlias = Callable[[Any], object]
"""A function that changes a value. For a field of JSON it takes the decoded value and returns the new one. For a
header, or a whole key or value, it takes bytes and returns bytes or `DROP_VALUE`."""


def hide_value(value: object) -> object:
    """Return `HIDDEN_TEXT` in place of any value; as bytes if the value is bytes."""
    return HIDDEN_TEXT.encode() if isinstance(value, bytes) else HIDDEN_TEXT


class MaskRule(NamedTuple):
    """A rule of masking: the topics, the part of their records, and the change of this part."""

    topics: str
    part: str
    path: Sequence[str]
    change: Change = hide_value

    def means(self, topic: str) -> bool:
        """Whether the rule applies to a topic."""
        return fnmatchcase(topic, self.topics) and topic.startswith(INTERNAL) <= self.topics.startswith(INTERNAL)


def mask_rule(text: str, change: Change = hide_value) -> MaskRule:
    """Parse a rule such as `orders*:value.card.number`. Raises ValueError."""
    topics, _, place = text.partition(":")
    part, *path = place.split(".")
    if not topics or part not in PARTS or not all(path):
        raise ValueError(f"{text} is not TOPICS:PART or TOPICS:PART.FIELD, where PART is one of {', '.join(PARTS)}")
    if part == "headers" and path:
        path = [".".join(path)]  # The name of a header may have points.
    return MaskRule(topics, part, path, change)


class Masks:
    """The rules of masking for one topic."""

    def __init__(self, rules: Iterable[MaskRule], topic: str) -> None:
        self._rules: dict[str, list[MaskRule]] = {}
        for rule in rules:
            if rule.means(topic):
                self._rules.setdefault(rule.part, []).append(rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def may_change(self, part: str, *paths: Sequence[str]) -> bool:
        """Whether a rule changes a part of records. With `paths` of JSON fields: whether a rule changes one of them, or
        a field around or within it.
        """
        return any(
            all(name in (each, "*") for name, each in zip(rule.path, path, strict=False))
            for rule in self._rules.get(part, ())
            for path in paths or ((),)
        )

    def mask_record(self, record: Record) -> Record:
        """Return the record after the changes of all rules."""
        rules = self._rules.get("headers", [])
        headers = record.headers
        if rules:
            headers = tuple(each for each in (_header(rules, *header) for header in headers) if each is not None)
        return record._replace(
            key=self._masked("key", record.key), value=self._masked("value", record.value), headers=headers
        )

    def _masked(self, part: str, data: bytes | None) -> bytes | None:
        rules = self._rules.get(part)
        if not rules or data is None:
            return data
        for rule in rules:
            if not rule.path:
                return _whole(rule.change, data)
        import json  # A node reads the rules at its start, and masks nothing there.

        from moldau.tables.values.bounds import HostileValue, parse_json
        from moldau.tables.values.exact_json import exact_number, exact_text

        try:
            value = parse_json(data, exact_number)
            for rule in rules:
                value = _changed(value, rule.path, partial(_with_floats, rule.change))
            return exact_text(json.dumps(value, ensure_ascii=False)).encode("utf-8", "surrogatepass")
        except (ValueError, HostileValue):
            return _whole(rules[0].change, data)


def _header(rules: Iterable[MaskRule], name: str, value: bytes | None) -> RecordHeader | None:
    for rule in rules:
        if not rule.path or rule.path[0] in (name, "*"):
            changed = rule.change(b"" if value is None else value)
            return (name, changed) if isinstance(changed, bytes) else None
    return name, value


def _whole(change: Change, data: bytes) -> bytes:
    changed = change(data)
    return changed if isinstance(changed, bytes) else b""


def _changed(value: Any, path: Sequence[str], change: Change) -> Any:
    """A copy of a decoded JSON value in which `change` is applied to every field that `path` names.

    `path` is not empty. `*` names every field, and a list applies the path to each element. A field whose change
    returns `DROP_VALUE` is removed.
    """
    if isinstance(value, list):
        return [_changed(each, path, change) for each in value]
    if not isinstance(value, dict):
        return value
    name, rest = path[0], path[1:]
    fields = {
        key: each if name not in (key, "*") else _changed(each, rest, change) if rest else change(each)
        for key, each in value.items()
    }
    return {key: each for key, each in fields.items() if each is not DROP_VALUE}


def _with_floats(change: Change, value: Any) -> object:
    """Change a field that `exact_json` has parsed."""
    from moldau.tables.values.exact_json import plain_value

    return change(plain_value(value))
