"""Reads the state at the end of a remote segment, with which a follower begins its log at that offset.

The leader epochs and the producer snapshot of the segment are compared with its manifest. The leader epochs are also
compared with the metadata of the segment, and with the leader epoch that the *leader* has at the offset before its
local log. A segment of another lineage is refused: with its epochs, a follower and the leader would find no divergence
although their logs differ.

A follower whose log ends before the leader's local log start begins at the leader's first local segment. Its leader
epochs and producer states come from the remote segment with the offset before that. An offset is read from remote
storage by leader epoch, so the follower first asks the leader for that epoch (`epoch_to_ask_for`, `epoch_before`).
"""

from __future__ import annotations

from moldau.storage.checkpoints.leader_epochs import EpochEnd, EpochStart, decode_epochs
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
from moldau.storage.log.truncation import RemoteStart
from moldau.storage.producers.producer_snapshot import CorruptSnapshot, decode_snapshot
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import CorruptObject, RemoteStorage
from moldau.storage.tiered.segment_copy import get_checked_object, get_manifest


async def read_follower_state(
    storage: RemoteStorage,
    cluster_id: str,
    partition: RemotePartition,
    segment: RemoteSegment,
    *,
    epoch: int,
    offset: int,
    log_start_offset: int,
) -> RemoteStart:
    """Read the state with which a follower begins its log at the end of a remote segment. The segment contains
    `offset`, which the leader has in leader epoch `epoch`.

    Raises `RemoteStorageError`, and its subclass `CorruptObject` if the segment does not have these leader epochs.
    """
    manifest = await get_manifest(storage, cluster_id, partition, segment)
    data = await get_checked_object(storage, partition, segment, manifest, ObjectKind.LEADER_EPOCHS)
    key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.LEADER_EPOCHS)
    epochs = _checked_epochs(key, data, segment, epoch, offset)
    producers = await get_checked_object(storage, partition, segment, manifest, ObjectKind.PRODUCER_SNAPSHOT)
    try:
        decode_snapshot(producers)
    except CorruptSnapshot as error:
        key = object_key(partition, segment.start_offset, segment.segment_id, ObjectKind.PRODUCER_SNAPSHOT)
        raise CorruptObject(f"{key}: {error}") from None
    end_offset = segment.last_offset + 1
    return RemoteStart(end_offset, min(log_start_offset, end_offset), epochs, producers)


def _checked_epochs(key: str, data: bytes, segment: RemoteSegment, epoch: int, offset: int) -> tuple[EpochStart, ...]:
    try:
        entries = decode_epochs(data, key)
    except CorruptCheckpoint as error:
        raise CorruptObject(str(error)) from None
    last_offset = segment.last_offset
    entries = [each for each in entries if each.start_offset <= last_offset]
    before = [each for each in entries if each.start_offset <= segment.start_offset][-1:]
    inside = [each for each in entries if each.start_offset > segment.start_offset]
    in_segment = (*(EpochStart(each.epoch, segment.start_offset) for each in before), *inside)
    if in_segment != segment.epochs:
        raise CorruptObject(f"{key} has other leader epochs than the metadata: {in_segment}, {segment.epochs}")
    at_offset = [each.epoch for each in entries if each.start_offset <= offset][-1:]
    if at_offset != [epoch]:
        raise CorruptObject(f"{key} has offset {offset} in the leader epochs {at_offset}, the leader has it in {epoch}")
    return tuple(entries)


def epoch_to_ask_for(local_start: EpochStart) -> int | None:
    """The leader epoch whose end a follower requests from the leader (OffsetForLeaderEpoch); None if no request is
    needed.

    `local_start`: the leader's local log start offset and the leader epoch of the record at that offset.
    """
    return local_start.epoch - 1 if local_start.epoch > 0 else None


def epoch_before(local_start: EpochStart, earlier: EpochEnd | None) -> int:
    """The leader epoch of the offset before the leader's local log.

    `local_start`: the leader's local log start offset and the leader epoch of the record at that offset. `earlier`: the
    leader's response, with its largest epoch below `local_start.epoch` and the end of that epoch (exclusive).
    """
    if earlier is not None and earlier.end_offset > local_start.start_offset - 1:
        return earlier.epoch
    return local_start.epoch
