"""Control records: transaction markers and Raft records, which consumers do not show to applications."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct
from struct import error as StructError

from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import CONTROL_BIT, NO_LEADER_EPOCH, NO_SEQUENCE, TRANSACTIONAL_BIT
from moldau.protocol.record_builder import Record, append_record, assemble

CONTROL_KEY = Struct(">hh")
CONTROL_KEY_VERSION = 0
END_TRANSACTION_MARKER = Struct(">hi")
END_TRANSACTION_MARKER_VERSION = 0
CACHED_MARKERS_MAX = 128
"""The number of encoded transaction markers that are cached: two for each partition of `__transaction_state`."""


class ControlRecordType(IntEnum):
    """The type of a control record: the second field of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


CONTROL_RECORD_TYPES = tuple(ControlRecordType)


def encode_control_key(kind: ControlRecordType) -> bytes:
    return CONTROL_KEY.pack(CONTROL_KEY_VERSION, kind)


def control_record_type(key: BytesLike | None) -> ControlRecordType | None:
    """The type of a control record; None for the types of later releases, which readers ignore.

    Raises `MalformedMessage` if the key is missing or too short. A longer key is one of a later version.
    """
    if key is None:
        raise MalformedMessage("a control record has no key")
    try:
        version, number = CONTROL_KEY.unpack_from(key)
    except StructError:
        raise MalformedMessage(f"a control record has a key of {len(key)} bytes") from None
    if version < 0:
        raise MalformedMessage(f"a control record has key version {version}")
    return CONTROL_RECORD_TYPES[number] if 0 <= number < len(CONTROL_RECORD_TYPES) else None


def end_transaction_marker(
    *,
    commits: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Make the control batch that ends a producer's transaction in a partition."""
    return assemble(
        (_end_of_transaction(commits, coordinator_epoch),),
        base_offset,
        partition_leader_epoch,
        TRANSACTIONAL_BIT | CONTROL_BIT,
        0,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )


@lru_cache(CACHED_MARKERS_MAX)
def _end_of_transaction(commits: bool, coordinator_epoch: int) -> bytes:
    """The encoded record of a transaction marker, with an offset delta and a timestamp delta of 0."""
    kind = ControlRecordType.COMMIT if commits else ControlRecordType.ABORT
    value = END_TRANSACTION_MARKER.pack(END_TRANSACTION_MARKER_VERSION, coordinator_epoch)
    encoded = bytearray()
    append_record(encoded, Record(encode_control_key(kind), value), 0, 0)
    return bytes(encoded)


def coordinator_epoch_of(value: BytesLike | None) -> int:
    """The coordinator epoch in the value of a transaction marker. Raises `MalformedMessage` if the value is cut
    short."""
    if value is None or len(value) < END_TRANSACTION_MARKER.size:
        raise MalformedMessage("an end-of-transaction marker is cut short")
    version, epoch = END_TRANSACTION_MARKER.unpack_from(value)
    if version < 0:
        raise MalformedMessage(f"an end-of-transaction marker has version {version}")
    return int(epoch)
