"""A share partition delivers each record until it is acknowledged, and moves its start offset past final records."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.replication.share.acquisition import AcquiredRecords
from moldau.replication.share.changes import (
    AcknowledgeRefusal,
    InconsistentShareState,
    ShareLimits,
    StateWrite,
    StoredBatch,
)
from moldau.replication.share.share_partition import SharePartition
from tests.support.share_partition_stage import ACCEPT, LIMITS, REJECT, RELEASE, RENEW, SharePartitionStage


def ends(stage: SharePartitionStage) -> tuple[int, int]:
    return stage.partition.start_offset, stage.partition.end_offset


def test_records_are_acquired_and_accepted() -> None:
    stage = SharePartitionStage()
    assert stage.acquire_records("m") == [AcquiredRecords(0, 29, 1)]
    assert stage.acquire_records("other") == []
    assert stage.acknowledge("m", 0, 29, ACCEPT) is None
    assert ends(stage) == (30, 30)
    assert stage.stored == dict.fromkeys(range(30), (1, 2))
    assert len(stage.partition.batches) == 0 and stage.partition.next_deadline_ms() is None


def test_whole_record_batches_are_acquired_beyond_the_limit_unless_it_is_strict() -> None:
    stage = SharePartitionStage()
    assert stage.acquire_records("m", records_max=12) == [AcquiredRecords(0, 19, 1)]
    strict = SharePartitionStage()
    assert strict.acquire_records("m", records_max=12, is_strict=True) == [AcquiredRecords(0, 11, 1)]
    assert ends(strict) == (0, 19)
    assert strict.acquire_records("n", records_max=12, is_strict=True) == [
        AcquiredRecords(12, 19, 1),
        AcquiredRecords(20, 23, 1),
    ]


def test_runs_of_about_the_batch_size_end_with_record_batches() -> None:
    stage = SharePartitionStage((4, 4, 4, 4))
    assert stage.acquire_records("m", batch_size=5) == [AcquiredRecords(0, 7, 1), AcquiredRecords(8, 15, 1)]


def test_released_records_are_delivered_again_with_a_higher_count() -> None:
    stage = SharePartitionStage((10,))
    stage.acquire_records("m")
    assert stage.acknowledge("m", 2, 4, RELEASE) is None
    assert stage.partition.next_fetch_offset() == 2
    assert stage.acquire_records("n") == [AcquiredRecords(2, 4, 2)]
    assert stage.states()[3] == ("ACQUIRED", 2)
    assert stage.acknowledge("m", 2, 4, ACCEPT) == AcknowledgeRefusal(
        ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset"
    )


def test_each_offset_of_a_batch_may_have_its_own_type() -> None:
    stage = SharePartitionStage((4,))
    stage.acquire_records("m")
    assert stage.acknowledge("m", 0, 3, ACCEPT, RELEASE, REJECT, 0) is None
    assert stage.states() == {
        0: ("ACKNOWLEDGED", 1),
        1: ("AVAILABLE", 1),
        2: ("ARCHIVED", 1),
        3: ("ARCHIVED", 1),
    }
    assert ends(stage) == (1, 3)
    assert stage.partition.delivery_complete_count == 2
    assert stage.acquire_records("m") == [AcquiredRecords(1, 1, 2)]
    stage.acknowledge("m", 1, 1, ACCEPT)
    assert ends(stage) == (4, 4) and stage.partition.delivery_complete_count == 0


def test_a_lock_that_is_over_releases_its_records() -> None:
    stage = SharePartitionStage((10,))
    stage.acquire_records("m")
    assert stage.partition.next_deadline_ms() == 30_000
    stage.pass_time(29_999)
    assert stage.acquire_records("n") == []
    stage.pass_time(1)
    assert stage.acknowledge("m", 0, 9, ACCEPT) == AcknowledgeRefusal(
        ErrorCode.INVALID_RECORD_STATE, "The batch cannot be acknowledged. The batch is not in the acquired state."
    )
    assert stage.acquire_records("n") == [AcquiredRecords(0, 9, 2)]
    assert stage.partition.next_deadline_ms() == 60_000


def test_a_renewed_lock_lasts_from_now_on() -> None:
    stage = SharePartitionStage((10,))
    stage.acquire_records("m")
    stage.pass_time(20_000)
    assert stage.acknowledge("m", 0, 4, RENEW) is None
    stage.pass_time(20_000)
    assert {offset for offset, state in stage.states().items() if state[0] == "ACQUIRED"} == set(range(5))
    stage.pass_time(10_000)
    assert stage.acquire_records("n") == [AcquiredRecords(0, 9, 2)]
    stage.limits = LIMITS._replace(is_renewable=False)
    assert stage.acknowledge("n", 0, 9, RENEW) == AcknowledgeRefusal(
        ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
    )


def test_a_record_that_was_delivered_as_often_as_allowed_is_archived() -> None:
    stage = SharePartitionStage((4,), LIMITS._replace(delivery_count_max=2))
    stage.acquire_records("m")
    stage.pass_time(30_000)
    assert stage.acquire_records("m") == [AcquiredRecords(0, 3, 2)]
    stage.pass_time(30_000)
    assert ends(stage) == (4, 4)
    assert stage.stored == dict.fromkeys(range(4), (2, 4))


def test_a_record_at_its_last_delivery_is_delivered_alone() -> None:
    stage = SharePartitionStage((16,))
    counts = []
    for _ in range(40):
        counts.append([(each.size, each.delivery_count) for each in stage.acquire_records("m")])
        stage.pass_time(30_000)
    assert counts[:3] == [[(16, 1)], [(16, 2)], [(16, 3)]]
    assert counts[3] == [(8, 4)], "half of the batch at the fourth delivery"
    assert counts[4] == [(1, 5)] and all(size == 1 for (size, count), *_ in filter(None, counts) if count == 5)
    stage.acquire_records("m")


def test_a_write_that_fails_is_undone() -> None:
    stage = SharePartitionStage((10,))
    stage.acquire_records("m")
    write = stage.begin("m", 0, 9, ACCEPT)
    assert isinstance(write, StateWrite) and write.batches == (StoredBatch(0, 9, 2, 1),)
    assert (write.start_offset, write.delivery_complete_count) == (0, 10)
    assert stage.acquire_records("n") == [], "the records are in transition"
    assert isinstance(stage.begin("m", 0, 9, RELEASE), AcknowledgeRefusal)
    stage.partition.finish_state_write(write, is_stored=False)
    assert stage.states()[0] == ("ACQUIRED", 1) and stage.partition.delivery_complete_count == 0
    assert stage.acknowledge("m", 0, 9, ACCEPT) is None


def test_a_lock_that_ends_during_a_write_that_fails_releases_the_records() -> None:
    stage = SharePartitionStage((10,))
    stage.acquire_records("m")
    write = stage.begin("m", 0, 9, ACCEPT)
    assert isinstance(write, StateWrite)
    stage.pass_time(30_000)
    stage.partition.finish_state_write(write, is_stored=False)
    assert stage.states()[0] == ("AVAILABLE", 1)
    assert stage.acquire_records("n") == [AcquiredRecords(0, 9, 2)]


def test_an_acknowledgement_with_one_wrong_part_changes_nothing() -> None:
    stage = SharePartitionStage((10,))
    stage.acquire_records("m", records_max=4, is_strict=True)
    before = stage.states()
    assert stage.acknowledge("m", 0, 5, ACCEPT) == AcknowledgeRefusal(
        ErrorCode.INVALID_RECORD_STATE, "The offset cannot be acknowledged. The offset is not acquired."
    )
    assert stage.states() == before and stage.partition.delivery_complete_count == 0
    assert stage.acknowledge("m", 0, 3, ACCEPT) is None


@pytest.mark.parametrize(
    ("first", "last", "kind", "refusal"),
    [
        (0, 9, 5, AcknowledgeRefusal(ErrorCode.INVALID_REQUEST, "Invalid acknowledge type: [5]")),
        (
            0,
            10,
            ACCEPT,
            AcknowledgeRefusal(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            ),
        ),
        (
            10,
            12,
            ACCEPT,
            AcknowledgeRefusal(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            ),
        ),
    ],
)
def test_an_acknowledgement_of_what_is_not_in_flight(
    first: int, last: int, kind: int, refusal: AcknowledgeRefusal
) -> None:
    stage = SharePartitionStage((10,))
    stage.acquire_records("m")
    assert stage.acknowledge("m", first, last, kind) == refusal


def test_an_acknowledgement_without_anything_in_flight() -> None:
    assert SharePartitionStage().acknowledge("m", 0, 9, ACCEPT) == AcknowledgeRefusal(
        ErrorCode.INVALID_RECORD_STATE,
        "Batch record not found. The request batch offsets are not found in the cache.",
    )


def test_a_session_that_ends_releases_the_records_of_its_member_alone() -> None:
    stage = SharePartitionStage()
    stage.acquire_records("m", records_max=10)
    stage.acquire_records("n", records_max=10)
    stage.release("m")
    assert stage.states()[0] == ("AVAILABLE", 1) and stage.states()[10] == ("ACQUIRED", 1)
    assert stage.acquire_records("o") == [AcquiredRecords(0, 9, 2), AcquiredRecords(20, 29, 1)]


def test_no_more_records_are_in_flight_than_the_group_allows() -> None:
    stage = SharePartitionStage((10, 10, 10), LIMITS._replace(records_max=15))
    assert stage.acquire_records("m", records_max=500) == [AcquiredRecords(0, 19, 1)], "up to the end of a record batch"
    assert not stage.partition.can_acquire and stage.acquire_records("m") == []
    stage.acknowledge("m", 0, 4, RELEASE)
    assert stage.acquire_records("n") == [AcquiredRecords(0, 4, 2)], "records in flight may be delivered again"
    stage.acknowledge("n", 0, 4, ACCEPT)
    stage.acknowledge("m", 5, 9, ACCEPT)
    assert stage.acquire_records("m") == [AcquiredRecords(20, 29, 1)]


def test_deleted_records_are_archived_and_acquired_ones_wait_for_their_locks() -> None:
    stage = SharePartitionStage()
    stage.acquire_records("m", records_max=10)
    stage.acquire_records("n", records_max=10)
    stage.acknowledge("n", 10, 14, RELEASE)
    stage.partition.on_log_start_moved(12)
    assert stage.partition.start_offset == 12
    assert stage.states()[11] == ("ARCHIVED", 1) and stage.states()[12] == ("AVAILABLE", 1)
    assert stage.states()[0] == ("ACQUIRED", 1)
    assert stage.acknowledge("m", 0, 9, ACCEPT) is None, "it has no effect"
    stage.pass_time(30_000)
    assert stage.states()[12] == ("AVAILABLE", 1)
    assert stage.acquire_records("o")[0] == AcquiredRecords(12, 19, 2)
    stage.acknowledge("o", 12, 29, ACCEPT)
    assert ends(stage) == (30, 30)


def test_the_log_start_moves_past_everything_in_flight() -> None:
    stage = SharePartitionStage()
    stage.acquire_records("m", records_max=10)
    stage.partition.on_log_start_moved(25)
    assert ends(stage) == (25, 25) and stage.partition.next_fetch_offset() == 25
    empty = SharePartitionStage()
    empty.partition.on_log_start_moved(5)
    assert ends(empty) == (5, 5)


def test_records_of_aborted_transactions_are_not_delivered() -> None:
    stage = SharePartitionStage((5,))
    stage.append(5, 7, is_transactional=True)
    stage.append(5, 8, is_transactional=True)
    stage.append(1, 7, is_transactional=True, aborts=True)
    stage.append(5, 7, is_transactional=True)
    acquired = stage.acquire_records("m", aborted=[(5, 7)])
    assert acquired == [AcquiredRecords(0, 4, 1), AcquiredRecords(10, 20, 1)]
    assert stage.states()[5] == ("ARCHIVED", 1) and stage.partition.delivery_complete_count == 5
    for first, last, _ in acquired:
        assert stage.acknowledge("m", first, last, ACCEPT) is None
    assert ends(stage) == (21, 21)


def test_another_leader_goes_on_from_what_is_stored() -> None:
    stage = SharePartitionStage()
    stage.acquire_records("m", records_max=10)
    stage.acquire_records("m", records_max=10)
    stage.acknowledge("m", 5, 9, ACCEPT)
    stage.acknowledge("m", 12, 13, RELEASE)
    stage.fail_over()
    assert stage.partition.delivery_complete_count == 5
    assert stage.partition.next_fetch_offset() == 0, "what was acquired only is delivered again"
    assert stage.acquire_records("n", records_max=5) == [AcquiredRecords(0, 4, 1)]
    assert stage.acquire_records("n") == [
        AcquiredRecords(10, 11, 1),
        AcquiredRecords(12, 12, 2),
        AcquiredRecords(13, 13, 2),
        AcquiredRecords(14, 29, 1),
    ]
    for first, last in ((0, 4), (10, 29)):
        assert stage.acknowledge("n", first, last, ACCEPT) is None
    assert ends(stage) == (30, 30)


def test_the_start_offset_does_not_pass_a_gap_of_the_loaded_state() -> None:
    partition = SharePartition(1, lambda: LIMITS)
    partition.load(0, 10, [StoredBatch(10, 11, 2, 1), StoredBatch(15, 16, 2, 1)])
    assert (partition.start_offset, partition.end_offset) == (12, 16)
    assert partition.next_fetch_offset() == 12


@pytest.mark.parametrize("batch", [StoredBatch(9, 12, 2, 1), StoredBatch(12, 11, 2, 1)])
def test_a_state_that_makes_no_sense_is_refused(batch: StoredBatch) -> None:
    with pytest.raises(InconsistentShareState):
        SharePartition(1, lambda: LIMITS).load(0, 10, [batch])


def test_records_that_compaction_removed_are_archived() -> None:
    stage = SharePartitionStage((5, 5, 5))
    stage.acquire_records("m")
    stage.acknowledge("m", 0, 14, RELEASE)
    del stage.log[0]
    assert stage.acquire_records("n") == [AcquiredRecords(5, 14, 2)]
    assert stage.states()[0] == ("ARCHIVED", 1)
    assert stage.acknowledge("n", 5, 14, ACCEPT) is None
    assert ends(stage) == (15, 15)


def test_limits_are_those_of_the_moment() -> None:
    stage = SharePartitionStage((4,), ShareLimits(3, 10, 1_000, False))
    stage.acquire_records("m")
    stage.limits = stage.limits._replace(delivery_count_max=1)
    stage.acknowledge("m", 0, 3, RELEASE)
    assert ends(stage) == (4, 4), "released at the new limit, they are archived"


def test_the_start_offset_does_not_go_back_behind_the_log_start() -> None:
    """The log start passes everything in flight while an acknowledgement of it is being stored."""
    stage = SharePartitionStage((10,))
    stage.acquire_records("a")
    write = stage.begin("a", 0, 9, ACCEPT)
    assert isinstance(write, StateWrite)
    stage.partition.on_log_start_moved(20)
    stage.store(write)
    assert (stage.partition.start_offset, stage.partition.end_offset) == (20, 20)


def test_the_log_start_frees_the_room_of_records_that_are_done() -> None:
    stage = SharePartitionStage((1, 9), LIMITS._replace(records_max=10))
    stage.acquire_records("a", batch_size=1)
    stage.acknowledge("a", 0, 0, RELEASE)
    stage.acknowledge("a", 1, 9, ACCEPT)
    stage.partition.on_log_start_moved(1)
    assert (stage.partition.start_offset, stage.partition.records_count) == (10, 0)


def test_an_aborted_transaction_leaves_room_for_others_however_long_it_is() -> None:
    stage = SharePartitionStage((), LIMITS._replace(records_max=10))
    stage.append(10, 7, is_transactional=True)
    stage.append(1, 7, is_transactional=True, aborts=True)
    assert stage.acquire_records("a", aborted=[(0, 7)], batches_max=1) == []
    assert stage.partition.can_acquire and stage.partition.start_offset == 10


def test_the_start_offset_moves_past_what_compaction_removed_of_a_gap() -> None:
    """Another leader took over while the first records were acquired, and they are not in the log any more."""
    stage = SharePartitionStage((5, 5, 5))
    stage.acquire_records("a", batch_size=1)
    stage.acknowledge("a", 5, 9, ACCEPT)
    stage.fail_over()
    assert stage.partition.next_fetch_offset() == 0
    del stage.log[0]
    (acquired,) = stage.acquire_records("a")
    assert acquired == AcquiredRecords(10, 14, 1)
    assert stage.acknowledge("a", 10, 14, ACCEPT) is None
    assert (stage.partition.start_offset, len(stage.partition.batches)) == (15, 0)


def test_a_gap_that_compaction_emptied_does_not_hold_what_is_done() -> None:
    """As many records as may be in flight follow the gap, and all of them are acknowledged."""
    stage = SharePartitionStage((2, 3, 5, 5), LIMITS._replace(records_max=5))
    del stage.log[1]
    stage.partition.load(0, 0, [StoredBatch(0, 1, 0, 1), StoredBatch(5, 9, 2, 1)])
    assert stage.acquire_records("a", batches_max=1) == [AcquiredRecords(0, 1, 2)]
    assert stage.acknowledge("a", 0, 1, ACCEPT) is None
    assert stage.acquire_records("a") == []
    assert (stage.partition.start_offset, len(stage.partition.batches)) == (10, 0)
    assert stage.acquire_records("a") == [AcquiredRecords(10, 14, 1)]
