"""The tables over internal topics: the last record of each key, decoded; what a transaction aborted does not count."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from moldau.protocol.compiler import encode
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.protocol.records.record_frames import type_prefix
from moldau.protocol.records.share_groups import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)
from moldau.protocol.records.share_state import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from moldau.protocol.records.transactions import TransactionLogKey, TransactionLogValue, TransactionPartitions
from moldau.storage.checkpoints.text_checkpoint import HIGH_WATERMARK_CHECKPOINT, read_offsets
from moldau.storage.files.local_files import LocalFiles
from tests.support.recorded_groups import groups_log
from tests.support.segments import write_checkpoints, write_partition
from tests.support.tables import rows_of

TIME_MS = 1_700_000_000_000
TIME = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def commit(group: str, partition: int, offset: int | None) -> Record:
    key = type_prefix(1) + encode(OffsetCommitKey(group=group, topic="t", partition=partition), 0)
    if offset is None:
        return Record(key, None, TIME_MS)
    value = OffsetCommitValue(offset=offset, leader_epoch=2, metadata="m", commit_timestamp=TIME_MS)
    return Record(key, type_prefix(3) + encode(value, 3), TIME_MS)


def group_record(group: str) -> Record:
    member = MemberMetadata(
        member_id="m1", client_id="c", client_host="/h", session_timeout=9, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m1", members=[member])
    key = type_prefix(2) + encode(GroupMetadataKey(group=group), 0)
    return Record(key, type_prefix(3) + encode(value, 3), TIME_MS)


def write(directory: Path, topic: str, *partitions: list[bytes]) -> None:
    ends = {}
    for partition, batches in enumerate(partitions):
        ends[topic, partition] = write_partition(directory, batches, topic=topic, partition=partition)
    write_checkpoints(directory, ends)


def write_more(directory: Path, topic: str, *partitions: list[bytes]) -> None:
    """Another topic beside those that are there."""
    known = read_offsets(LocalFiles(), str(directory), HIGH_WATERMARK_CHECKPOINT)
    written = [write_partition(directory, batches, topic=topic, partition=n) for n, batches in enumerate(partitions)]
    write_checkpoints(directory, {**known, **{(topic, number): end for number, end in enumerate(written)}})


def test_committed_offsets_are_the_last_ones_of_each_group(tmp_path: Path) -> None:
    first = build_batch([commit("g", 0, 5), commit("g", 1, 6), group_record("g"), commit("g", 0, 7)])
    second = build_batch([commit("g", 1, None), commit("h", 3, 9)], base_offset=4)
    write(tmp_path, "__consumer_offsets", [first, second], [])
    rows = rows_of(tmp_path, table="offsets")
    assert [(row["group"], row["topic"], row["partition"], row["offset"]) for row in rows] == [
        ("g", "t", 0, 7),
        ("h", "t", 3, 9),
    ]
    assert (rows[0]["leaderEpoch"], rows[0]["metadata"], rows[0]["commitTimestamp"]) == (2, "m", TIME)
    assert rows[0]["expireTimestamp"] is None


def test_groups_show_their_members(tmp_path: Path) -> None:
    write(tmp_path, "__consumer_offsets", [build_batch([group_record("g"), commit("g", 0, 7)])])
    (row,) = rows_of(tmp_path, table="groups")
    assert (row["group"], row["type"], row["protocolType"], row["generation"], row["protocol"]) == (
        "g",
        "classic",
        "consumer",
        4,
        "range",
    )
    assert row["members"] == [{"memberId": "m1", "groupInstanceId": None, "clientId": "c", "clientHost": "/h"}]


def test_groups_of_all_kinds_are_shown(tmp_path: Path) -> None:
    write(tmp_path, "__consumer_offsets", [groups_log()])
    rows = {row["group"]: row for row in rows_of(tmp_path, table="groups")}
    assert {group: (row["type"], row["protocolType"], row["generation"]) for group, row in rows.items()} == {
        "classic-group": ("classic", "consumer", 1),
        "consumer-group": ("consumer", "consumer", 4),
        "left-group": ("consumer", "consumer", 3),
        "share-group": ("share", "share", 4),
        "streams-group": ("streams", "streams", 4),
    }
    members: dict[str, list[dict[str, str | None]]] = {group: row["members"] for group, row in rows.items()}  # type: ignore
    clients = {group: sorted(str(each["clientId"]) for each in listed) for group, listed in members.items()}
    assert clients["consumer-group"] == ["n0", "n1", "n2"] and clients["share-group"] == ["s0", "s1"]
    assert len(clients["streams-group"]) == 2 and clients["left-group"] == []
    (static,) = [each for each in members["consumer-group"] if each["groupInstanceId"] is not None]
    assert (static["groupInstanceId"], static["clientId"]) == ("static-1", "n1")


def test_offsets_of_an_aborted_transaction_were_never_committed(tmp_path: Path) -> None:
    transactional = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    marker = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp": TIME_MS}
    batches = [
        build_batch([commit("g", 0, 5)], base_offset=0, base_sequence=0, **transactional),  # type: ignore[arg-type]
        end_transaction_marker(commits=True, base_offset=1, **marker),
        build_batch([commit("g", 0, 9)], base_offset=2, base_sequence=1, **transactional),  # type: ignore[arg-type]
        end_transaction_marker(commits=False, base_offset=3, **marker),
    ]
    write(tmp_path, "__consumer_offsets", batches)
    assert [row["offset"] for row in rows_of(tmp_path, table="offsets")] == [5]


def test_transactions_show_their_state_and_partitions(tmp_path: Path) -> None:
    value = TransactionLogValue(
        producer_id=11,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[0, 2])],
        transaction_last_update_timestamp_ms=TIME_MS,
        transaction_start_timestamp_ms=-1,
    )
    key = type_prefix(0) + encode(TransactionLogKey(transactional_id="tx"), 0)
    write(tmp_path, "__transaction_state", [build_batch([Record(key, type_prefix(1) + encode(value, 1), TIME_MS)])])
    (row,) = rows_of(tmp_path, table="transactions")
    assert (row["transactionalId"], row["producerId"], row["producerEpoch"]) == ("tx", 11, 3)
    assert (row["state"], row["timeoutMs"], row["startTimestamp"], row["updateTimestamp"]) == (
        "Ongoing",
        60_000,
        None,
        TIME,
    )
    assert row["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 2}]


ORDERS, GONE = b"o" * 16, b"g" * 16


def share_topics(group: str, **topics: bytes) -> Record:
    """What __consumer_offsets says of the topics of a share group."""
    known = [TopicPartitionsInfo(topic_id=each, topic_name=name, partitions=[0, 1]) for name, each in topics.items()]
    key = type_prefix(15) + encode(ShareGroupStatePartitionMetadataKey(group_id=group), 0)
    value = ShareGroupStatePartitionMetadataValue(initialized_topics=known)
    return Record(key, type_prefix(0) + encode(value, 0), TIME_MS)


def snapshot(group: str, topic_id: bytes, partition: int, start: int | None, epoch: int = 0) -> Record:
    key = type_prefix(0) + encode(ShareSnapshotKey(group_id=group, topic_id=topic_id, partition=partition), 0)
    if start is None:
        return Record(key, None, TIME_MS)
    value = ShareSnapshotValue(
        snapshot_epoch=epoch, state_epoch=1, leader_epoch=3, start_offset=start, create_timestamp=1, write_timestamp=1
    )
    return Record(key, type_prefix(0) + encode(value, 0), TIME_MS)


def update(group: str, topic_id: bytes, partition: int, start: int) -> Record:
    key = type_prefix(1) + encode(ShareUpdateKey(group_id=group, topic_id=topic_id, partition=partition), 0)
    value = ShareUpdateValue(snapshot_epoch=0, leader_epoch=4, start_offset=start)
    return Record(key, type_prefix(0) + encode(value, 0), TIME_MS)


def test_share_groups_show_where_they_go_on(tmp_path: Path) -> None:
    write(
        tmp_path, "__consumer_offsets", [build_batch([commit("g", 0, 5)])], [build_batch([share_topics("s", t=ORDERS)])]
    )
    states = [
        [
            snapshot("s", ORDERS, 0, 7),
            update("s", ORDERS, 0, 9),
            update("s", ORDERS, 0, -1),
            snapshot("s", ORDERS, 1, -1),
        ],
        [snapshot("s", GONE, 0, 3), snapshot("r", ORDERS, 0, 4), snapshot("r", ORDERS, 0, None)],
        [update("q", ORDERS, 1, 2), snapshot("q", ORDERS, 1, 6, epoch=1)],
    ]
    write_more(tmp_path, "__share_group_state", *([build_batch(each)] for each in states))
    rows = rows_of(tmp_path, table="offsets")
    assert [(row["group"], row["topic"], row["partition"], row["offset"], row["leaderEpoch"]) for row in rows] == [
        ("g", "t", 0, 5, 2),
        ("s", "t", 0, 9, 4),
        ("s", "Z2dnZ2dnZ2dnZ2dnZ2dnZw", 0, 3, 3),
        ("q", "t", 1, 6, 3),
    ]
    assert rows[1]["commitTimestamp"] == TIME and rows[1]["expireTimestamp"] is None
    at_an_offset = rows_of(tmp_path, table="offsets", endingOffsets='{"__consumer_offsets": {"0": 1, "1": 0}}')
    assert [row["group"] for row in at_an_offset] == ["g"]


def test_a_group_that_only_commits_is_an_empty_classic_group(tmp_path: Path) -> None:
    """As Flink's are, and as ListGroups shows them. Its row goes with its last offset."""
    batch = build_batch([group_record("g"), commit("g", 0, 7), commit("flink", 0, 1), commit("flink", 1, 2)])
    gone = build_batch([commit("left", 0, 3), commit("left", 0, None)], base_offset=4)
    write(tmp_path, "__consumer_offsets", [batch, gone])
    rows = {row["group"]: row for row in rows_of(tmp_path, table="groups")}
    assert sorted(str(group) for group in rows) == ["flink", "g"]
    assert (rows["flink"]["type"], rows["flink"]["generation"], rows["flink"]["members"]) == ("classic", 0, [])
