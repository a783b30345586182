"""Manifests: JSON objects that describe a remote storage and its segments, for readers without a broker.

A reader compares each manifest with what it expects; a difference raises `CorruptObject` or `WrongCluster`. Fields that
this version does not know are ignored; another format version is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from moldau.protocol.primitives import BytesLike
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text
from moldau.storage.tiered.layout import DATA_KINDS, REQUIRED_KINDS, ObjectKind
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject, WrongCluster

FORMAT_VERSION: Final = 1
MANIFEST_SIZE_MAX: Final = 4 << 20
"""The largest manifest in bytes: some 60,000 ancestors fit."""

T = TypeVar("T")

_OBJECTS: Final = tuple((kind, kind.value[1:], kind in REQUIRED_KINDS) for kind in DATA_KINDS)
"""Of each kind of object: the kind, its name in a manifest, and whether each segment has it. The tuple is made once,
because a reader may decode a million manifests."""


class ObjectSummary(NamedTuple):
    """The part of a segment's manifest about one object: its size and its checksum."""

    size: int
    """Size of the object in bytes."""
    crc32c: int
    """The CRC-32C of all bytes of the object."""


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """The manifest of a segment: its offsets, its leader epochs, and its objects."""

    cluster_id: str
    partition: RemotePartition
    segment_id: bytes
    start_offset: int
    last_offset: int
    """The last offset of the segment (inclusive)."""
    epochs: tuple[EpochStart, ...]
    """The leader epochs in the segment, each with the offset of its first batch in the segment."""
    max_timestamp_ms: int
    objects: dict[ObjectKind, ObjectSummary]
    generation: int = 0
    """How many times the records were rewritten, by cleaning or erasure, since they were first copied."""
    cleaned_end_offset: int = 0
    """The offset (exclusive) up to which the segment was cleaned; 0 if it was never cleaned
    (`metadata/lineage.py`).
    """
    ancestors: tuple[bytes, ...] = ()
    """The ids of the segments that this one replaces."""
    erased_end_offset: int = 0
    """The offset (exclusive) below which all erase orders are carried out in this segment; 0 if the segment was not
    searched for records of erase orders."""

    def encode(self) -> bytes:
        """Encode the manifest as JSON. Equal fields give the same bytes."""
        fields: dict[str, object] = {
            "format_version": FORMAT_VERSION,
            "cluster_id": self.cluster_id,
            "topic": self.partition.topic,
            "topic_id": uuid_text(self.partition.topic_id),
            "partition": self.partition.partition,
            "segment_id": uuid_text(self.segment_id),
            "start_offset": self.start_offset,
            "last_offset": self.last_offset,
            "leader_epochs": [{"epoch": epoch, "start_offset": offset} for epoch, offset in self.epochs],
            "max_timestamp_ms": self.max_timestamp_ms,
            "generation": self.generation,
            "cleaned_end_offset": self.cleaned_end_offset,
            "ancestors": [uuid_text(each) for each in self.ancestors],
            **({"erased_end_offset": self.erased_end_offset} if self.erased_end_offset else {}),
            "objects": {
                kind.value[1:]: {"size": self.objects[kind].size, "crc32c": f"{self.objects[kind].crc32c:08x}"}
                for kind in DATA_KINDS
                if kind in self.objects
            },
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    def check(self, cluster_id: str, partition: RemotePartition, segment: RemoteSegment, key: str) -> None:
        """Raise `WrongCluster` or `CorruptObject` unless this manifest agrees with the metadata of the segment."""
        if self.cluster_id != cluster_id:
            raise WrongCluster(f"{key} belongs to the cluster {self.cluster_id}, not to {cluster_id}")
        expected = (partition, segment.segment_id, segment.start_offset, segment.last_offset, segment.epochs)
        if (self.partition, self.segment_id, self.start_offset, self.last_offset, self.epochs) != expected:
            raise CorruptObject(f"{key} is the manifest of another segment than the metadata names")
        if self.objects[ObjectKind.LOG].size != segment.size:
            raise CorruptObject(
                f"{key} has {self.objects[ObjectKind.LOG].size} bytes of records, the metadata {segment.size}"
            )
        if (ObjectKind.TRANSACTION_INDEX in self.objects) != segment.has_transaction_index:
            raise CorruptObject(f"{key} and the metadata differ on whether there is a transaction index")


class JsonFields:
    """Reads the fields of a JSON object whose format version is `known_version`. A missing or wrong field raises
    `CorruptObject`."""

    def __init__(self, key: str, data: BytesLike, known_version: int = FORMAT_VERSION) -> None:
        self._key = key
        try:
            self._fields = json.loads(bytes(data))
        except ValueError:
            raise CorruptObject(f"{key} is not JSON") from None
        version = self.get("format_version", checked_integer)
        if version != known_version:
            raise CorruptObject(f"{key} has format version {version}; this version reads {known_version}")

    def get(self, name: str, convert: Callable[[object], T]) -> T:
        if not isinstance(self._fields, dict) or name not in self._fields:
            raise CorruptObject(f"{self._key} has no field {name}")
        try:
            return convert(self._fields[name])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CorruptObject(f"{self._key}: the field {name} is {self._fields[name]!r:.80}") from None

    def optional(self, name: str, convert: Callable[[object], T], default: T) -> T:
        """Return the field, converted; `default` if the object has no such field."""
        is_there = isinstance(self._fields, dict) and name in self._fields
        return self.get(name, convert) if is_there else default


def checked_integer(value: object) -> int:
    """Convert a JSON value into an integer from -1 to 2^63 - 1, for `JsonFields.get`. Raises ValueError for any other
    value."""
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 1 << 63:
        raise ValueError
    return value


def checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def uuid_of(value: object) -> bytes:
    return parse_uuid(checked_text(value))


def _epochs(value: object) -> tuple[EpochStart, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(EpochStart(checked_integer(each["epoch"]), checked_integer(each["start_offset"])) for each in value)


def uuids_of(value: object) -> tuple[bytes, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(uuid_of(each) for each in value)


def _objects(value: object) -> dict[ObjectKind, ObjectSummary]:
    if not isinstance(value, dict):
        raise ValueError
    found: dict[ObjectKind, ObjectSummary] = {}
    for kind, name, is_required in _OBJECTS:
        described = value.get(name)
        if described is not None:
            found[kind] = ObjectSummary(checked_integer(described["size"]), int(checked_text(described["crc32c"]), 16))
        elif is_required:
            raise ValueError
    return found


def decode_manifest(key: str, data: BytesLike) -> SegmentManifest:
    """Decode the manifest of a segment; `key` names the object in error messages. Raises `CorruptObject`."""
    fields = JsonFields(key, data)
    partition = RemotePartition(
        fields.get("topic", checked_text), fields.get("topic_id", uuid_of), fields.get("partition", checked_integer)
    )
    return SegmentManifest(
        cluster_id=fields.get("cluster_id", checked_text),
        partition=partition,
        segment_id=fields.get("segment_id", uuid_of),
        start_offset=fields.get("start_offset", checked_integer),
        last_offset=fields.get("last_offset", checked_integer),
        epochs=fields.get("leader_epochs", _epochs),
        max_timestamp_ms=fields.get("max_timestamp_ms", checked_integer),
        objects=fields.get("objects", _objects),
        generation=fields.get("generation", checked_integer),
        cleaned_end_offset=fields.get("cleaned_end_offset", checked_integer),
        ancestors=fields.get("ancestors", uuids_of),
        erased_end_offset=fields.optional("erased_end_offset", checked_integer, 0),
    )


def encode_cluster_manifest(cluster_id: str) -> bytes:
    """The content of the object at the root of a storage, which names the cluster to which the storage belongs."""
    fields = {"format_version": FORMAT_VERSION, "cluster_id": cluster_id, "written_by": "moldau"}
    return json.dumps(fields, indent=1).encode() + b"\n"


def decode_cluster_manifest(key: str, data: BytesLike) -> str:
    """Decode the manifest of a cluster, and return the cluster id. Raises `CorruptObject`."""
    return JsonFields(key, data).get("cluster_id", checked_text)
