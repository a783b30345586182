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
from moldau.protocol.records.transactions import TransactionLogKey, TransactionLogValue, TransactionPartitions
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
