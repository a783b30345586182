"""The manifest of a backup: it lists the metadata snapshot, and for each partition the range of offsets and its pieces.

A manifest is written after all objects that it names. It is JSON. A reader checks the type and the range of each field,
and raises `CorruptObject` if a check fails. Fields that this version does not know are ignored.

    {"format_version": 1, "backup_id": "20261129T221701Z-1", "cluster_id": "…", "began_ms": …, "asked_ms": …,
     "ended_ms": …, "metadata": {"end_offset": …, "epoch": …, "size": …, "crc32c": "…"},
     "topics": [{"name": "orders", "topic_id": "…", "partitions": [
        {"partition": 0, "start_offset": …, "end_offset": …, "last_epoch": …,
         "pieces": [[first offset, end offset, size, "crc32c", largest timestamp], …]}]}],
     "decided": {"0": …}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from moldau.protocol.primitives import BytesLike
from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text
from moldau.storage.tiered.manifest import JsonFields, checked_integer, checked_text
from moldau.storage.tiered.port import CorruptObject

FORMAT_VERSION: Final = 1
MANIFEST_SIZE_MAX: Final = 1 << 30
"""The largest manifest in bytes: enough for some ten million pieces."""


class Piece(NamedTuple):
    """A range of offsets of a partition, whose batches are one object, byte for byte as in the log. An offset of the
    range that is in no batch was in no batch of the log either."""

    first_offset: int
    """The base offset of the first batch, or the end offset of the previous piece."""
    end_offset: int
    """The end offset of this piece (exclusive)."""
    size: int
    """The size in bytes. A piece of 0 bytes has no object, because the log had no batch in its range."""
    crc32c: int
    """The CRC-32C of all bytes of this piece."""
    max_timestamp_ms: int
    """The largest timestamp in the headers of the batches of this piece; -1 if it has no batches."""


class MetadataPiece(NamedTuple):
    """The metadata snapshot of a backup: an object with the bytes of a KRaft `.checkpoint` file."""

    end_offset: int
    """The offset of the metadata log at which the snapshot ends (exclusive)."""
    epoch: int
    """The epoch of the last record in the snapshot."""
    size: int
    crc32c: int


class PartitionBackup(NamedTuple):
    """The log of a partition in a backup.

    The pieces follow one another without a gap. The first one begins at or before `start_offset`, the last one ends at
    `end_offset`. Without pieces the two offsets are equal.
    """

    partition: int
    start_offset: int
    """The log start offset of the partition."""
    end_offset: int
    """The end offset of the partition in the backup (exclusive): its high watermark when the backup read it."""
    last_epoch: int
    """The leader epoch of the last batch of the partition in the backup; -1 if there is none."""
    pieces: tuple[Piece, ...]


class TopicBackup(NamedTuple):
    name: str
    topic_id: bytes
    partitions: tuple[PartitionBackup, ...]


class PartitionKey(NamedTuple):
    """The partition of a topic in a backup."""

    topic: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class BackupManifest:
    backup_id: str
    cluster_id: str
    began_ms: int
    """The time (ms since 1970) just before the backup asked for the first log end. Everything acknowledged before it is
    in the backup.
    """
    ends_known_ms: int
    """The time (ms since 1970) when the backup knew the ends of all logs. Nothing written later is in the backup."""
    ended_ms: int
    """The time (ms since 1970) when the backup was complete."""
    metadata: MetadataPiece
    topics: tuple[TopicBackup, ...]
    """The topics in the backup, in the order of their names."""
    transaction_log_ends: Mapping[int, int] = field(default_factory=dict)
    """The end offset of each partition of `__transaction_state`, read before the end of any other log. All records of a
    transaction that was decided below these offsets are in the backup. Empty if the source could not read them first.
    """

    def partitions(self) -> Iterator[tuple[PartitionKey, PartitionBackup]]:
        """All partitions of the backup, in the order of topic and partition."""
        for topic in self.topics:
            for each in topic.partitions:
                yield PartitionKey(topic.name, topic.topic_id, each.partition), each

    @property
    def size(self) -> int:
        """The number of bytes of all objects that the backup names."""
        return self.metadata.size + sum(piece.size for _, each in self.partitions() for piece in each.pieces)

    def encode(self) -> bytes:
        """Encode the manifest as JSON. Equal manifests give equal bytes."""
        metadata = self.metadata._asdict() | {"crc32c": _crc_text(self.metadata.crc32c)}
        fields = {
            "format_version": FORMAT_VERSION,
            "backup_id": self.backup_id,
            "cluster_id": self.cluster_id,
            "began_ms": self.began_ms,
            "asked_ms": self.ends_known_ms,
            "ended_ms": self.ended_ms,
            "metadata": metadata,
            "topics": [
                {
                    "name": topic.name,
                    "topic_id": uuid_text(topic.topic_id),
                    "partitions": [_fields_of(each) for each in topic.partitions],
                }
                for topic in self.topics
            ],
            "decided": {str(partition): offset for partition, offset in self.transaction_log_ends.items()},
        }
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def decode_manifest(key: str, data: BytesLike) -> BackupManifest:
    """Decode a manifest. `key`: the key of its object, for error messages. Raises `CorruptObject`."""
    fields = JsonFields(key, data, FORMAT_VERSION)
    manifest = BackupManifest(
        backup_id=fields.get("backup_id", checked_text),
        cluster_id=fields.get("cluster_id", checked_text),
        began_ms=fields.get("began_ms", checked_integer),
        ends_known_ms=fields.get("asked_ms", checked_integer),
        ended_ms=fields.get("ended_ms", checked_integer),
        metadata=fields.get("metadata", _metadata_of),
        topics=fields.get("topics", _topics_of),
        transaction_log_ends=fields.optional("decided", _decided_of, {}),
    )
    for partition, each in manifest.partitions():
        problem = _problem_of(each)
        if problem is not None:
            raise CorruptObject(f"{key}: {partition}: {problem}")
    return manifest


def _problem_of(partition: PartitionBackup) -> str | None:
    """Describe why the pieces of a partition do not cover its offsets; None if they do."""
    start, end, pieces = partition.start_offset, partition.end_offset, partition.pieces
    if not 0 <= start <= end:
        return f"it goes from offset {start} to {end}"
    if not pieces:
        return None if start == end else f"no piece has the offsets from {start} to {end}"
    if pieces[0].first_offset > start:
        return f"its first piece begins at offset {pieces[0].first_offset}, after {start}"
    following = pieces[0].first_offset
    for piece in pieces:
        if piece.first_offset != following or piece.end_offset <= following:
            return f"a piece has the offsets from {piece.first_offset} to {piece.end_offset} after {following}"
        following = piece.end_offset
    return None if following == end else f"its last piece ends at offset {following}, not at {end}"


def _fields_of(partition: PartitionBackup) -> dict[str, object]:
    pieces = [[*piece[:3], _crc_text(piece.crc32c), piece.max_timestamp_ms] for piece in partition.pieces]
    return {**partition._asdict(), "pieces": pieces}


def _topics_of(value: object) -> tuple[TopicBackup, ...]:
    return tuple(
        TopicBackup(
            checked_text(each["name"]),
            parse_uuid(checked_text(each["topic_id"])),
            tuple(_partition_of(partition) for partition in _list_of(each["partitions"])),
        )
        for each in _list_of(value)
    )


def _partition_of(fields: Any) -> PartitionBackup:
    return PartitionBackup(
        checked_integer(fields["partition"]),
        checked_integer(fields["start_offset"]),
        checked_integer(fields["end_offset"]),
        checked_integer(fields["last_epoch"]),
        tuple(_piece_of(each) for each in _list_of(fields["pieces"])),
    )


def _piece_of(value: Any) -> Piece:
    first, end, size, crc, timestamp = _list_of(value)
    return Piece(
        checked_integer(first), checked_integer(end), checked_integer(size), _crc_of(crc), checked_integer(timestamp)
    )


def _metadata_of(fields: Any) -> MetadataPiece:
    end_offset, epoch, size = (checked_integer(fields[name]) for name in ("end_offset", "epoch", "size"))
    return MetadataPiece(end_offset, epoch, size, _crc_of(fields["crc32c"]))


def _decided_of(fields: Any) -> dict[int, int]:
    return {int(partition): checked_integer(offset) for partition, offset in fields.items()}


def _list_of(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError
    return value


def _crc_text(crc: int) -> str:
    return f"{crc:08x}"


def _crc_of(value: object) -> int:
    return int(checked_text(value), 16)
