"""A transaction opens in a leader's log only with the guard of its verification; markers end it."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.partition import Partition
from moldau.replication.verification import (
    EPOCH_BUMP_PRODUCE_VERSION,
    guard_for_client_batch,
    guard_for_coordinator_batch,
)
from moldau.storage.log.append import AppendResult
from moldau.storage.producers.verification import VerificationGuard
from tests.support.node import batch
from tests.support.partitions import partition

OLD = EPOCH_BUMP_PRODUCE_VERSION - 1
NEW = EPOCH_BUMP_PRODUCE_VERSION
NONE = ErrorCode.NONE


@pytest.fixture
def leader() -> Partition:
    made = partition()
    made.become_leader(1, 5, (1,))
    return made


def of_transaction(sequence: int = 0, *, epoch: int = 0, producer_id: int = 7) -> bytes:
    return build_batch(
        [Record(b"k", b"v", 1)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def append(
    leader: Partition, records: bytes, guard: VerificationGuard | None = None, version: int = OLD
) -> AppendResult:
    return leader.append(records, -1, 0, version, guard)


def end(leader: Partition, *, epoch: int = 0, version: int = 0, is_commit: bool = True) -> ErrorCode:
    return leader.end_transaction(
        7, epoch, 0, is_commit=is_commit, coordinator_epoch=0, transaction_version=version
    ).error


def test_the_first_batch_of_a_transaction_is_verified_and_no_other(leader: Partition) -> None:
    first = of_transaction(0)
    assert append(leader, first).error is ErrorCode.INVALID_TXN_STATE
    guard = guard_for_client_batch(leader, first, 0, OLD)
    assert guard is not None and append(leader, first, guard).error is NONE
    assert guard_for_client_batch(leader, of_transaction(1), 0, OLD) is None
    assert append(leader, of_transaction(1)).error is NONE
    assert end(leader) is NONE
    assert guard_for_client_batch(leader, of_transaction(1), 0, OLD) is None, "it is a duplicate"
    assert guard_for_client_batch(leader, of_transaction(2), 0, OLD) is not None


def test_a_batch_without_a_transaction_that_is_sent_again_with_one_is_verified(leader: Partition) -> None:
    """As a duplicate it would be acknowledged, although its records belong to no transaction."""
    plain = build_batch([Record(b"k", b"v", 1)], producer_id=7, producer_epoch=0, base_sequence=0)
    assert append(leader, plain).error is NONE
    for version in (OLD, NEW):
        assert guard_for_client_batch(leader, of_transaction(0), 0, version) is not None


def test_what_the_log_refuses_or_takes_anyway_is_not_verified(leader: Partition) -> None:
    assert end(leader, epoch=3) is NONE
    for records in (batch("plain"), b"", of_transaction()[:40], of_transaction(epoch=2)):
        assert guard_for_client_batch(leader, records, 0, NEW) is None
    assert append(leader, of_transaction(epoch=2)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    leader.become_follower(2, 6)
    assert guard_for_client_batch(leader, of_transaction(epoch=3), 0, NEW) is None
    assert append(leader, of_transaction(epoch=3)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_batch_that_comes_after_the_marker_opens_nothing(leader: Partition) -> None:
    guard = guard_for_client_batch(leader, of_transaction(), 0, OLD)
    assert end(leader, is_commit=False) is NONE
    assert append(leader, of_transaction(), guard).error is ErrorCode.INVALID_TXN_STATE
    assert leader.last_stable_offset == leader.high_watermark == 1


def test_a_verification_ends_with_the_term_and_the_client_tries_again(leader: Partition) -> None:
    guard = guard_for_client_batch(leader, of_transaction(), 0, OLD)
    leader.become_follower(2, 6)
    leader.become_leader(1, 7, (1,))
    assert append(leader, of_transaction(), guard).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append(leader, of_transaction()).error is ErrorCode.INVALID_TXN_STATE
    again = guard_for_client_batch(leader, of_transaction(), 0, OLD)
    assert again is not guard and append(leader, of_transaction(), again).error is NONE


def test_a_term_that_follows_without_another_role_ends_a_verification_too(leader: Partition) -> None:
    guard = guard_for_client_batch(leader, of_transaction(), 0, OLD)
    leader.become_leader(1, 6, (1,))
    assert append(leader, of_transaction(), guard).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_changed_in_sync_set_ends_no_verification(leader: Partition) -> None:
    guard = guard_for_client_batch(leader, of_transaction(), 0, OLD)
    leader.become_leader(1, 5, (1,), partition_epoch=4)
    assert append(leader, of_transaction(), guard).error is NONE


def test_where_verification_is_off_the_new_protocol_adds_partitions_all_the_same(leader: Partition) -> None:
    leader.verifies_transactions = False
    assert guard_for_client_batch(leader, of_transaction(), 0, OLD) is None
    guard = guard_for_client_batch(leader, of_transaction(), 0, NEW)
    assert guard is not None and guard.supports_epoch_bump
    assert append(leader, of_transaction()).error is NONE


def test_a_coordinators_offsets_are_verified_like_a_clients_batch(leader: Partition) -> None:
    records = of_transaction(-1)
    guard = guard_for_coordinator_batch(leader, 7, 0, 0, supports_epoch_bump=False)
    assert guard is not None
    assert end(leader) is NONE
    assert leader.append_internal(records, 0, guard).error is ErrorCode.INVALID_TXN_STATE
    guard = guard_for_coordinator_batch(leader, 7, 0, 0, supports_epoch_bump=True)
    assert leader.append_internal(records, 0, guard).error is NONE
    assert guard_for_coordinator_batch(leader, 7, 0, 0, supports_epoch_bump=True) is None, "it is open"
    assert leader.append_internal(records, 0, None).error is NONE
    assert end(leader, epoch=1, version=2) is NONE
    assert guard_for_coordinator_batch(leader, 7, 0, 0, supports_epoch_bump=True) is None, "its epoch is over"
    assert leader.append_internal(records, 0).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_that_is_repeated_ends_no_later_transaction(leader: Partition) -> None:
    """KIP-1228: under transaction.version 2 the marker's epoch is that of the next transaction."""
    guard = guard_for_client_batch(leader, of_transaction(), 0, NEW)
    assert append(leader, of_transaction(), guard, NEW).error is NONE
    assert end(leader, epoch=1, version=2) is NONE
    guard = guard_for_client_batch(leader, of_transaction(epoch=1), 0, NEW)
    assert end(leader, epoch=1, version=2) is NONE, "the coordinator did not hear of it"
    assert append(leader, of_transaction(epoch=1), guard, NEW).error is NONE
    assert end(leader, epoch=1, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert leader.last_stable_offset == 3 < leader.high_watermark
    assert append(leader, of_transaction(1, epoch=0), None, NEW).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(leader, epoch=2, version=2) is NONE
    assert leader.last_stable_offset == leader.high_watermark


def test_a_marker_needs_enough_replicas_in_sync_and_a_leader(leader: Partition) -> None:
    leader.min_insync_replicas = 2
    assert end(leader) is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.become_follower(2, 6)
    assert end(leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
