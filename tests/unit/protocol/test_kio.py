"""Random messages mean the same to us and to kio, an implementation by others, and both write the same bytes."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import itertools
import random
import re
import uuid
from typing import Any, cast

import pytest
from kio.schema import errors as kio_errors
from kio.serial import entity_reader, entity_writer

from moldau.protocol.compiler import decode, encode
from moldau.protocol.schema import Field, WireType, fields_in, fields_of, spec_of
from tests.unit.protocol.facts.reading import declared, served_versions
from tests.unit.protocol.facts.sampling import default_message

pytestmark = pytest.mark.slow

SEEDS = range(2)

NOT_IN_KIO = {
    # kio has the messages of the clients module: no record of the metadata log or of an internal topic, all of which
    # have a record type.
    name
    for name, cls in declared().items()
    if cls.__module__.startswith("moldau.protocol.records.") and spec_of(cls).key is not None
}

NEWER_THAN_KIO = {
    "ApiVersionsRequest": 5,
    "ApiVersionsResponse": 5,
    "DeleteGroupsRequest": 3,
    "DeleteGroupsResponse": 3,
    "StreamsGroupDescribeRequest": 1,
    "StreamsGroupDescribeResponse": 1,
    "StreamsGroupHeartbeatRequest": 1,
    "StreamsGroupHeartbeatResponse": 1,
    "StreamsGroupTopologyDescriptionUpdateRequest": 0,
    "StreamsGroupTopologyDescriptionUpdateResponse": 0,
    "TxnOffsetCommitRequest": 6,
    "TxnOffsetCommitResponse": 6,
    "UnregisterControllerRequest": 0,
    "UnregisterControllerResponse": 0,
}
"""The first version of 4.4, which kio lacks."""

RANGES = {WireType.INT8: 7, WireType.INT16: 15, WireType.INT32: 31, WireType.INT64: 63}
KIO_ERROR_CODES = [code.value for code in kio_errors.ErrorCode]
MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
DATE_MS_MAX = 4_000_000_000_000


def kio_class(cls: type[object], version: int) -> type[Any]:
    """kio's class of a message: `kio.schema.list_offsets.v3.request.ListOffsetsRequest`."""
    stem = re.sub(r"(Request|Response)$", "", cls.__name__)
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower()
    kind = (
        "request" if cls.__name__.endswith("Request") else "response" if cls.__name__.endswith("Response") else "data"
    )
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{kind}")
    return cast("type[Any]", getattr(module, cls.__name__))


class RandomMessage:
    """Draws messages in one version; what kio can hold is asked of its own fields."""

    def __init__(self, version: int, seed: int) -> None:
        self.version = version
        self.random = random.Random(seed)

    def message(self, cls: type[object], theirs: type[Any]) -> object:
        message = default_message(cls)
        their_fields = {field.name: field for field in dataclasses.fields(theirs)}
        plain, tagged, _ = fields_in(cls, self.version)
        for field in plain + tagged:
            if field.tag is None or self.random.random() < 0.6:
                setattr(message, field.name, self.field(field, their_fields[their_name(field, theirs)]))
        return message

    def field(self, field: Field, theirs: dataclasses.Field[Any]) -> object:
        if self.version in field.nullable and self.random.random() < 0.3:
            return None
        if field.is_array:
            return [
                self.value(field, theirs) for _ in range(self.random.choice((0, 1, 1, 2, 3, 130 * (not field.struct))))
            ]
        return self.value(field, theirs)

    def value(self, field: Field, theirs: dataclasses.Field[Any]) -> object:
        if field.struct is not None:
            return self.message(field.struct, struct_class(theirs))
        match theirs.metadata["kafka_type"]:
            case "error_code":
                return self.random.choice(KIO_ERROR_CODES)
            case "datetime_i64":
                return self.random.randrange(DATE_MS_MAX)
            case "timedelta_i64":
                return self.random.randrange(-(1 << 45), 1 << 45)
        return self.primitive(cast("WireType", field.kind))

    def primitive(self, kind: WireType) -> object:
        if kind in RANGES:
            bound = 1 << RANGES[kind]
            return self.random.choice((-bound, -1, 0, 1, bound - 1, self.random.randrange(-bound, bound)))
        size = self.random.choice((0, 1, 5, 126, 127, 128, 129, 300))
        match kind:
            case WireType.BOOL:
                return self.random.random() < 0.5
            case WireType.UINT16:
                return self.random.randrange(1 << 16)
            case WireType.UINT32:
                return self.random.randrange(1 << 32)
            case WireType.FLOAT64:
                return self.random.uniform(-1e9, 1e9)
            case WireType.UUID:
                return self.random.choice((bytes(16), self.random.randbytes(16)))
            case WireType.STRING:
                return "".join(self.random.choices("abcdef-._ ßж漢😀\0", k=size))
        return self.random.randbytes(self.random.choice((size, size, 16_382, 16_383, 16_384)))


def their_name(field: Field, theirs: type[Any]) -> str:
    """kio calls a duration `throttle_time`, not `throttle_time_ms`, and avoids Python's keywords."""
    names = {each.name for each in dataclasses.fields(theirs)}
    candidates: tuple[str, ...] = (
        field.name,
        field.name.removesuffix("_ms"),
        field.name.removesuffix("_timestamp"),
        f"{field.name}_",
    )
    # kio knows TxnOffsetCommit without its version 6, and StreamsGroupHeartbeat without its version 1, which gave these
    # fields other names.
    if field.name == "generation_id_or_member_epoch":
        candidates = (*candidates, "generation_id")
    elif field.name.startswith("acceptable_recovery_lag"):
        candidates = ("acceptable_recovery_lag",) if field.name.endswith("_legacy") else ()
    return next(name for name in candidates if name in names)


def struct_class(field: dataclasses.Field[Any]) -> type[Any]:
    """The class in `X`, `X | None`, `tuple[X, ...]` and `tuple[X, ...] | None`."""
    found: list[type[Any]] = []
    queue = [field.type]
    while queue:
        hint = queue.pop()
        if dataclasses.is_dataclass(hint):
            found.append(cast("type[Any]", hint))
        queue += getattr(hint, "__args__", ())
    (only,) = found
    return only


def same(ours: object, theirs: object, field: Field) -> bool:
    """Whether a value of ours and one of kio's mean the same."""
    if field.is_array:
        if not isinstance(ours, list) or not isinstance(theirs, tuple):
            return ours is theirs is None
        item = field._replace(is_array=False)
        return len(ours) == len(theirs) and all(same(one, other, item) for one, other in zip(ours, theirs, strict=True))
    if field.struct is not None:
        if ours is None and theirs is not None and field.tag is not None:
            ours = default_message(field.struct)
        return ours is theirs is None or (ours is not None and same_struct(ours, theirs))
    return ours == plain_value(theirs, field)


def plain_value(theirs: object, field: Field) -> object:
    match theirs:
        case kio_errors.ErrorCode():
            return theirs.value
        case datetime.timedelta():
            return theirs // MILLISECOND
        case datetime.datetime():
            return (theirs - EPOCH) // MILLISECOND
        case uuid.UUID():
            return theirs.bytes
    return bytes(16) if theirs is None and field.kind is WireType.UUID else theirs


def same_struct(ours: object, theirs: object) -> bool:
    names = {field.name for field in dataclasses.fields(cast("Any", theirs))}
    pairs = []
    for field in fields_of(type(ours)):
        try:
            name = their_name(field, type(theirs))
        except StopIteration:
            continue
        names.discard(name)
        pairs.append((getattr(ours, field.name), getattr(theirs, name), field))
    assert not names, f"{type(ours).__name__} has no {names}"
    return all(same(*pair) for pair in pairs)


@pytest.mark.parametrize("cls", [cls for name, cls in declared().items() if name not in NOT_IN_KIO])
def test_random_messages_mean_the_same_to_kio(cls: type[object]) -> None:
    versions = [version for version in served_versions(cls) if version != NEWER_THAN_KIO.get(cls.__name__)]
    for version, seed in itertools.product(versions, SEEDS):
        theirs = kio_class(cls, version)
        ours = RandomMessage(version, seed).message(cls, theirs)
        written = encode(ours, version)
        read, size = entity_reader(theirs)(written, 0)
        assert size == len(written)
        assert same_struct(ours, read), version
        rewritten = io.BytesIO()
        entity_writer(theirs)(rewritten, read)
        assert rewritten.getvalue() == written
        assert same_struct(decode(cls, written, version), read)


@pytest.mark.parametrize("name", sorted(NOT_IN_KIO))
def test_kio_lacks_what_is_said_here(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        kio_class(declared()[name], 0)


@pytest.mark.parametrize("name", NEWER_THAN_KIO)
def test_kio_lacks_the_versions_that_are_said_here(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        kio_class(declared()[name], NEWER_THAN_KIO[name])
