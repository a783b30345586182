"""Requests with one field in a shape that no client sends on purpose: an element named twice, a list that is empty, a
null, an empty name, a number out of range.

Each is one of the requests about records, groups, transactions and the cluster, in the first and in the last version
that asks it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.protocol.schema import Field, WireType, fields_of
from tests.conformance.acl_requests.asked import Asked

LOW: Final = -2
HIGH: Final[dict[object, int]] = {
    WireType.INT8: 99,
    WireType.INT16: 1 << 14,
    WireType.INT32: 1 << 30,
    WireType.INT64: 1 << 62,
}
WAITS: Final = frozenset({"max_wait_ms", "timeout_ms", "min_bytes"})
"""Fields with which a request would wait."""


LEFT_OUT: Final = frozenset(
    {
        # Apache Kafka 4.3.1 leaves one of their shapes without an answer.
        *("Produce", "CreatePartitions", "AddPartitionsToTxn", "WriteTxnMarkers", "AlterConfigs"),
        # Which partitions are in the response depends on the locks of the requests before.
        *("ShareFetch", "ShareAcknowledge"),
    }
)
"""APIs whose requests are asked in no odd shape."""


class Shaped(NamedTuple):
    """A request, and what is odd about it."""

    asked: Asked
    shape: str

    @property
    def name(self) -> str:
        return f"{self.asked.name} {self.shape}"


def shaped(questions: Iterable[Asked]) -> Iterator[Shaped]:
    """Each field of each request in each shape of its type, one at a time."""
    for asked in first_and_last(questions):
        if type(asked.request).__name__.removesuffix("Request") in LEFT_OUT:
            continue
        for path, field in _paths(asked.request, asked.version):
            for shape, value in _shapes(asked, path, field):
                request = copy.deepcopy(asked.request)
                setattr(_owner(request, path[:-1]), field.name, value)
                yield Shaped(Asked(request, asked.version), f"{'.'.join(map(str, path))} {shape}")


def first_and_last(questions: Iterable[Asked]) -> list[Asked]:
    """The first request of each API and kind of fields in its first and last version."""
    by_api: dict[str, dict[int, Asked]] = {}
    for asked in questions:
        by_api.setdefault(type(asked.request).__name__, {}).setdefault(asked.version, asked)
    return [versions[which] for versions in by_api.values() for which in sorted({min(versions), max(versions)})]


Path = tuple[str | int, ...]


def _paths(value: object, version: int, before: Path = ()) -> Iterator[tuple[Path, Field]]:
    for field in fields_of(type(value)):
        if version not in field.versions:
            continue
        yield (*before, field.name), field
        inner = getattr(value, field.name)
        if field.is_array and isinstance(field.kind, type) and inner:
            yield from _paths(inner[0], version, (*before, field.name, 0))
        elif not field.is_array and isinstance(field.kind, type) and inner is not None:
            yield from _paths(inner, version, (*before, field.name))


def _owner(request: object, path: Path) -> object:
    for step in path:
        request = request[step] if isinstance(step, int) else getattr(request, step)  # type: ignore[index]
    return request


def _shapes(asked: Asked, path: Path, field: Field) -> Iterator[tuple[str, object]]:
    value = getattr(_owner(asked.request, path[:-1]), field.name)
    if asked.version in field.nullable and value is not None:
        yield "null", None
    if field.is_array:
        if value:
            yield "empty", []
            yield "first twice", [value[0], *copy.deepcopy(value)]
    elif field.kind is WireType.STRING:
        if value and field.name != "member_id":  # A member without an id gets one by chance.
            yield "empty", ""
        yield "not a name", "a b/ü"
    elif field.kind in HIGH:
        yield "low", LOW
        if field.name not in WAITS:
            yield "high", HIGH[field.kind]
    elif field.kind is WireType.BOOL:
        yield "other", not value
