"""Quotas of replication: what counts, what is left out, and for how long."""

from __future__ import annotations

from moldau.replication.replica_fetcher import THROTTLE_DELAY_MS, FetcherSettings, ReplicaFetcher
from moldau.replication.replication_quota import (
    UNLIMITED,
    RateWindow,
    ReplicationQuota,
    parse_throttled_partitions,
    throttle_rate_setting,
)
from tests.support.node import batch
from tests.support.partitions import partition
from tests.support.replica_pair import FollowerSide, LeaderSide

MB = 1 << 20


def limited(rate_max: int = MB) -> ReplicationQuota:
    quota = ReplicationQuota()
    quota.bytes_per_s_max = rate_max
    quota.set_throttled_partitions("t", None)
    return quota


def test_a_rate_is_that_of_the_samples_that_are_kept() -> None:
    window = RateWindow(3, 1000)
    assert window.rate(0) == 0
    window.record_bytes(500, 0)
    assert window.rate(0) == 500, "one sample at the least"
    window.record_bytes(500, 999)
    window.record_bytes(500, 1000)
    assert window.rate(1500) == 1000
    assert window.rate(2000) == 750
    assert window.rate(3000) == 250, "the first sample is as old as all that are kept"
    assert window.rate(4000) == 0


def test_a_burst_is_paid_back() -> None:
    quota = limited(MB)
    quota.record_bytes(4 * MB, 0)
    assert [second for second in range(12) if quota.is_exceeded(second * 1000)] == [0, 1, 2, 3]


def test_nothing_is_exceeded_without_a_rate_or_without_throttled_replicas() -> None:
    quota = limited(UNLIMITED)
    quota.record_bytes(100 * MB, 0)
    assert not quota.is_exceeded(0)
    quota.bytes_per_s_max = 1
    assert quota.is_exceeded(0)
    quota.set_throttled_partitions("t", frozenset())
    assert not quota.is_exceeded(0) and quota.is_idle


def test_replicas_are_named_by_partition_and_broker_or_all() -> None:
    assert parse_throttled_partitions("0:1,1:2,2:1", 1) == frozenset({0, 2})
    assert parse_throttled_partitions("*", 1) is None
    assert parse_throttled_partitions("", 1) == frozenset()
    assert parse_throttled_partitions(f"{'9' * 5_000}:1,3:1, 4:1 ,x:1,5:{'1' * 5_000}", 1) == frozenset({3, 4})
    quota = ReplicationQuota()
    quota.set_throttled_partitions("t", frozenset({0, 2}))
    assert [quota.is_throttled("t", index) for index in range(3)] == [True, False, True]
    assert not quota.is_throttled("other", 0)
    assert throttle_rate_setting({}, {"a": "5"}, name="a") == 5 and throttle_rate_setting({}, {}, name="a") == UNLIMITED


def test_a_leader_over_its_rate_leaves_out_who_is_not_in_sync() -> None:
    ours, theirs = partition(), partition()
    leader, follower = LeaderSide(ours), FollowerSide(theirs)
    ours.append(batch("a"), 1, 1000, 9)
    leader.throttles.leader.bytes_per_s_max = 1
    leader.throttles.leader.set_throttled_partitions(ours.topic, None)
    leader.throttles.leader.record_bytes(MB, 0)
    follower.catch_up(leader)
    assert theirs.log.end_offset == 1, "it is in sync"
    ours.isr = (1,)
    ours.append(batch("b"), 1, 1000, 9)
    follower.catch_up(leader)
    assert theirs.log.end_offset == 1
    leader.now_ms += 11_000
    follower.catch_up(leader)
    assert theirs.log.end_offset == 2


def test_a_follower_over_its_rate_asks_for_what_it_has_all_of_alone() -> None:
    quota = limited(1)
    quota.set_throttled_partitions("t", frozenset({0}))
    behind, whole = partition(index=0), partition(index=1)
    machine = ReplicaFetcher(2, FetcherSettings(), quota)
    for each in (behind, whole):
        each.become_follower(1, 5)
        machine.follow(each)
    behind.lag_behind_leader = 5
    quota.record_bytes(MB, 0)
    request = machine.next_request(7, 0)
    assert request is not None
    assert [wish.partition for topic in request.topics for wish in topic.partitions] == [1]
    assert machine.next_deadline_ms() == THROTTLE_DELAY_MS
