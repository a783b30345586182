"""Fetching the metadata of a cluster: a snapshot in parts, the log behind it up to what is committed."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.backup.sources.metadata_log import ReplayedMetadata
from moldau.backup.sources.quorum import QuorumLeader, _LeaderLog
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.record_frame import encode_record
from moldau.kraft.snapshot.batches import load_snapshot, snapshot_batches
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.protocol.messages.fetch import SnapshotId as FetchedSnapshotId
from moldau.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.metadata import FeatureLevelRecord, TopicRecord
from moldau.tables.client.cluster import TransientError
from moldau.tables.client.settings import Address

EPOCH = 4
FEATURES = FeatureLevelRecord(name="metadata.version", feature_level=30)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))


def batch(offset: int, *records: object) -> bytes:
    values = [Record(None, encode_record(each, 0), 5_000 + offset) for each in records]
    return build_batch(values, base_offset=offset, partition_leader_epoch=EPOCH)


LOG = [batch(10, topic(1)), batch(11, topic(2), topic(3)), batch(13, topic(4))]
SNAPSHOT = b"".join(
    snapshot_batches(
        [FEATURES, topic(0)], QuorumDescription(), metadata_version=30, epoch=3, last_contained_ms=0, now_ms=0
    )
)


class Controller:
    """The leader of a quorum whose log starts at offset 10; it sends a batch, or a part of the snapshot, at a time."""

    address = Address("c", 9093)

    def __init__(self, part_size: int = 50) -> None:
        self.part_size = part_size
        self.asked: list[object] = []
        self.error = ErrorCode.NONE
        self.is_diverging = False

    def ask(self, request: object, reply: object, version: int, *, wait_ms: int = 0) -> Any:
        self.asked.append(request)
        if isinstance(request, FetchSnapshotRequest):
            return self._part(request)
        assert isinstance(request, FetchRequest)
        wanted = request.topics[0].partitions[0]
        assert wanted.current_leader_epoch == EPOCH
        answer = PartitionData(partition_index=0, high_watermark=13, error_code=self.error)
        if self.is_diverging:
            answer.diverging_epoch = EpochEndOffset(epoch=1, end_offset=2)
        elif wanted.fetch_offset < 10:
            answer.snapshot_id = FetchedSnapshotId(end_offset=10, epoch=3)
        else:
            assert wanted.last_fetched_epoch == (3 if wanted.fetch_offset == 10 else EPOCH)
            answer.records = LOG[{10: 0, 11: 1, 13: 2}[wanted.fetch_offset]]
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[answer])])

    def _part(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        wanted = request.topics[0].partitions[0]
        assert (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch) == (10, 3)
        part = ResponsePartitionSnapshot(
            index=0,
            snapshot_id=wanted.snapshot_id,
            size=len(SNAPSHOT),
            position=wanted.position,
            unaligned_records=SNAPSHOT[wanted.position : wanted.position + self.part_size],
        )
        return FetchSnapshotResponse(topics=[ResponseTopicSnapshot(name="", partitions=[part])])


def read(controller: Controller, end_offset: int = 13) -> ReplayedMetadata:
    connection: Any = controller
    return _LeaderLog(connection, QuorumLeader(controller.address, EPOCH, end_offset), "cluster").read()


def names(metadata: ReplayedMetadata) -> set[str]:
    return {each.name for each in metadata.image.topics.by_id.values()}


@pytest.mark.parametrize("part_size", [7, 50, 1 << 20])
def test_a_snapshot_in_parts_and_the_log_behind_it(part_size: int) -> None:
    metadata = read(Controller(part_size))
    assert names(metadata) == {"t0", "t1", "t2", "t3"}
    assert (metadata.end_offset, metadata.epoch) == (13, EPOCH)


def test_what_is_not_committed_is_left_out() -> None:
    assert names(read(Controller(), 11)) == {"t0", "t1"}
    assert names(read(Controller(), 10)) == {"t0"}


def test_the_snapshot_of_a_backup_has_the_same_metadata() -> None:
    metadata = read(Controller())
    snapshot = metadata.snapshot(9_000)
    loaded = load_snapshot(snapshot.data, SnapshotId(snapshot.end_offset, snapshot.epoch)).replay.image
    assert list(loaded.snapshot_records()) == list(metadata.image.snapshot_records())
    assert (snapshot.end_offset, snapshot.epoch) == (13, EPOCH)


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_leader_that_leads_no_more_is_looked_for_again(error: ErrorCode) -> None:
    controller = Controller()
    controller.error = error
    with pytest.raises(TransientError):
        read(controller)


def test_another_history_is_read_again() -> None:
    controller = Controller()
    controller.is_diverging = True
    with pytest.raises(TransientError):
        read(controller)


def test_a_log_with_a_hole_or_a_damaged_batch_is_refused() -> None:
    metadata = ReplayedMetadata(SnapshotId(10, 3), SNAPSHOT)
    with pytest.raises(MalformedMessage, match="no offset 10"):
        metadata.replay(LOG[1])
    damaged = bytearray(LOG[0])
    damaged[-1] ^= 1
    with pytest.raises(MalformedMessage, match="checksum of the metadata at offset 10"):
        metadata.replay(bytes(damaged))
    assert names(metadata) == {"t0"}
    assert metadata.replay(b"".join(LOG)) == len(b"".join(LOG))
    assert metadata.end_offset == 14
