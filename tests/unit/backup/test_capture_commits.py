"""Positions of groups at the begin of a window, and their commits in it."""

from __future__ import annotations

from moldau.backup.capture.commits import CommittedGroupOffset, GroupCommitCollector
from moldau.coordinator.group.records import CommittedOffset, offset_key, offset_value, read_offset
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of


def committed(time_ms: int, offset: int | None, *, group: str = "g", topic: str = "orders") -> Record:
    value = None if offset is None else offset_value(CommittedOffset(offset, metadata="secret", commit_ms=time_ms))
    return Record(offset_key(group, topic, 0), value, time_ms)


def noted(*batches: bytes) -> GroupCommitCollector:
    commits = GroupCommitCollector(frozenset(["orders"]), 100, 200)
    for batch in batches:
        ((_, header),) = iterate_batches(batch)
        commits.add_batch(header, batch)
    commits.end_partition()
    return commits


def transactional(producer: int, *records: Record) -> bytes:
    return build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)


def marker(producer: int, *, commits: bool) -> bytes:
    return end_transaction_marker(
        commits=commits, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=150
    )


def test_a_position_is_the_last_commit_before_the_window() -> None:
    commits = noted(
        build_batch([committed(time_ms, offset) for time_ms, offset in ((1, 3), (99, 7), (100, 9), (200, 11))])
    )
    assert commits.positions_at_window_start() == [("g", "orders", 0, 7)]
    assert commits.commits_in_window == [CommittedGroupOffset(100, "g", "orders", 0, 9)]


def test_other_topics_and_deleted_offsets_have_none() -> None:
    commits = noted(
        build_batch([committed(1, 3), committed(2, 4, topic="other"), committed(3, 5, group="h"), committed(4, None)])
    )
    assert commits.positions_at_window_start() == [("h", "orders", 0, 5)]


def test_a_transaction_commits_at_its_marker_or_never() -> None:
    commits = noted(
        transactional(8, committed(1, 3)),
        transactional(9, committed(2, 4, group="aborted")),
        marker(9, commits=False),
        marker(8, commits=True),
        transactional(10, committed(3, 5, group="open")),
    )
    assert commits.positions_at_window_start() == [("g", "orders", 0, 3)]


def test_the_batch_of_positions_is_what_a_coordinator_reads_without_the_metadata_of_commits() -> None:
    commits = noted(build_batch([committed(1, 3), committed(2, 5, group="h")]))
    batch = commits.batch_of_positions(777)
    assert batch is not None and b"secret" not in batch
    assert [read_offset(record)[:4] for record in records_of(batch)] == [
        ("g", "orders", 0, CommittedOffset(3, commit_ms=777)),
        ("h", "orders", 0, CommittedOffset(5, commit_ms=777)),
    ]
    assert noted(build_batch([committed(150, 3)])).batch_of_positions(777) is None
