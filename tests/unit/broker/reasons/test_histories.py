"""Twenty histories of groups, those that are asked about most in trackers of clients: each has exactly these symptoms,
and its first sentence says this.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from moldau.broker.reasons.explain import explain_group
from moldau.broker.reasons.facts import (
    DEAD_GROUP_STATE,
    GroupFacts,
    MemberFacts,
    RedeliveredRecords,
    redelivered_records,
)
from moldau.coordinator.group.history import Cause, GroupEvent
from moldau.coordinator.share_coordinator.state import StateBatch
from tests.unit.broker.reasons.test_explain import MEMBER, NOW_MS, facts, orders, rebalances, told

OTHER: Final = MemberFacts("consumer-4-uuid", "consumer-4", "/10.0.0.8")
STATIC: Final = MemberFacts("i-1-uuid", "app", "/10.0.0.9", "instance-1")


def of(cause: Cause, member: MemberFacts = MEMBER, number: int = 0, detail: str = "") -> GroupEvent:
    """An event of a member."""
    return GroupEvent(cause, member.member_id, member.client_id, member.host, number, detail)


class Story(NamedTuple):
    """A history that is asked about, what is known of it, and what is said."""

    name: str
    known: GroupFacts
    symptoms: list[str]
    said: str


STORIES: Final = (
    Story(
        "it stands still and sends heartbeats",
        facts(orders(high_watermark=5_100, lag_ms=600_000, committed_at_ms=NOW_MS - 600_000)),
        ["stands-still"],
        "was heard of 2 s ago: it is busy with the records that it has, stands still, or does not commit",
    ),
    Story(
        "it is slower than its producers",
        facts(orders(high_watermark=5_100, lag_ms=60_000)),
        ["slow"],
        "so it goes on and is behind",
    ),
    Story(
        "it takes longer than max.poll.interval.ms, again and again",
        facts(orders(), history=told(*rebalances(*[of(Cause.JOIN_TIMED_OUT, number=300_000)] * 4))),
        ["rebalances"],
        "did not join again within 5 min (max.poll.interval.ms)",
    ),
    Story(
        "it commits after it has lost the partition",
        facts(orders(), history=told(of(Cause.COMMIT_REFUSED, detail="REBALANCE_IN_PROGRESS"))),
        ["commits-refused"],
        "with REBALANCE_IN_PROGRESS",
    ),
    Story(
        "it commits in the generation before",
        facts(orders(), history=told(of(Cause.COMMIT_REFUSED, detail="ILLEGAL_GENERATION"))),
        ["commits-refused"],
        "with ILLEGAL_GENERATION: the group had rebalanced before it",
    ),
    Story(
        "retention was faster",
        facts(orders(committed_offset=40, log_start_offset=60, high_watermark=100)),
        ["records-lost", "slow"],
        "up to 20 records from offset 40 to 59 are gone",
    ),
    Story(
        "retention was faster, and auto.offset.reset went on",
        facts(orders(), history=told(GroupEvent(Cause.RECORDS_LOST, number=20, detail="orders-2"))),
        ["records-lost"],
        "orders-2: up to 20 records were gone before the commit of 1 min ago went past them",
    ),
    Story(
        "the topic was made again under its name",
        facts(orders(committed_offset=500, high_watermark=20)),
        ["offset-beyond-end"],
        "the committed offset 500 is beyond the end 20",
    ),
    Story(
        "its offset expired",
        facts(
            orders(committed_offset=None, committed_at_ms=None),
            history=told(GroupEvent(Cause.OFFSETS_EXPIRED, number=1)),
        ),
        ["offsets-expired", "not-committed"],
        "1 offset of the group expired 1 min ago",
    ),
    Story(
        "its offsets were deleted",
        facts(orders(), history=told(GroupEvent(Cause.OFFSETS_DELETED, number=2))),
        ["offsets-deleted"],
        "2 offsets of the group were deleted by a request",
    ),
    Story(
        "it goes back",
        facts(orders(), history=told(GroupEvent(Cause.COMMIT_WENT_BACK, number=7, detail="orders-2"))),
        ["commit-went-back"],
        "set orders-2 back by 7 offsets",
    ),
    Story(
        "an administrator skipped records of two partitions",
        facts(
            orders(member_id=None),
            members=(),
            state="Empty",
            history=told(
                GroupEvent(Cause.OFFSETS_SET_AHEAD, number=7, detail="orders-1"),
                GroupEvent(Cause.OFFSETS_SET_AHEAD, number=12, detail="orders-2"),
            ),
        ),
        ["offsets-set"],
        "set 2 partitions, orders-2 the furthest, ahead by 12 offsets: a reset by an administrator",
    ),
    Story(
        "the last process was killed",
        facts(
            orders(high_watermark=150, member_id=None),
            members=(),
            state="Empty",
            history=told(of(Cause.SESSION_EXPIRED, number=45_000)),
        ),
        ["no-members"],
        "was not heard of for its session of 45 s",
    ),
    Story(
        "the last process was closed",
        facts(
            orders(high_watermark=150, member_id=None),
            members=(),
            state="Empty",
            history=told(of(Cause.LEFT, detail="the consumer is being closed")),
        ),
        ["no-members"],
        "left ('the consumer is being closed')",
    ),
    Story(
        "it never had a member",
        facts(orders(high_watermark=150, member_id=None), members=(), state="Empty"),
        ["no-members"],
        "the group has no members. It lags by 50 records",
    ),
    Story(
        "it rebalances and does not end",
        facts(
            orders(high_watermark=100), state="PreparingRebalance", history=told(*rebalances(of(Cause.JOINED, OTHER)))
        ),
        ["rebalancing"],
        "consumer-4 at 10.0.0.8 joined",
    ),
    Story(
        "two applications have one group id",
        facts(orders(), history=told(of(Cause.REFUSED, OTHER, detail="INCONSISTENT_GROUP_PROTOCOL"))),
        ["refused"],
        "two applications use one group id",
    ),
    Story(
        "two processes have one group.instance.id",
        facts(orders(), history=told(of(Cause.FENCED, STATIC, detail="FENCED_INSTANCE_ID"))),
        ["fenced"],
        "two processes use one group.instance.id",
    ),
    Story(
        "a static member is replaced again and again",
        facts(orders(), history=told(*[of(Cause.RETURNED, STATIC)] * 4)),
        ["taken-over"],
        "one group.instance.id",
    ),
    Story(
        "a topic grows",
        facts(orders(), history=told(*rebalances(*[GroupEvent(Cause.TOPICS_CHANGED)] * 3))),
        ["rebalances"],
        "3 times because",
    ),
    Story(
        "an open transaction holds it",
        facts(
            orders(
                committed_offset=100,
                last_stable_offset=100,
                high_watermark=180,
                lag_ms=90_000,
                committed_at_ms=NOW_MS - 90_000,
            ),
        ),
        ["held-by-transaction"],
        "at offset 100, for 1 min 30 s",
    ),
    Story(
        "a partition has no member",
        facts(orders(), orders(partition=3, member_id=None, high_watermark=170)),
        ["unread"],
        "orders-3: no member reads it now, and it has lag",
    ),
    Story(
        "it began to read and commits nothing",
        facts(orders(committed_offset=None, committed_at_ms=None)),
        ["not-committed"],
        "orders-2",
    ),
    Story(
        "Apache Kafka coordinates it",
        GroupFacts("g", "classic", "Stable", [MEMBER], [orders(high_watermark=150)], None),
        ["lags", "no-history"],
        "member consumer-3 at 10.0.0.7 reads it",
    ),
    Story(
        "a record of a share group comes back again and again",
        facts(
            orders(
                member_id=None, redelivered=[RedeliveredRecords(17, 17, 4, False), RedeliveredRecords(19, 22, 2, False)]
            ),
            kind="share",
        ),
        ["redelivered"],
        "orders-2: 5 records were delivered more than once and came back: a consumer released them, or did not "
        "acknowledge them in time; most often the record at offset 17 4 times",
    ),
    Story(
        "a record of a share group is given up",
        facts(orders(member_id=None, redelivered=[RedeliveredRecords(17, 17, 5, True)]), kind="share"),
        ["given-up"],
        "orders-2: 1 record was delivered more than once and is given up: a consumer rejected it, or "
        "share.delivery.count.limit was reached; most often the record at offset 17 5 times",
    ),
    Story(
        "its first members join",
        facts(orders(), history=told(*rebalances(*[of(Cause.JOINED, OTHER)] * 9))),
        ["well"],
        "has no lag",
    ),
    Story(
        "a member was away once",
        facts(
            orders(),
            history=told(
                *rebalances(of(Cause.SESSION_EXPIRED, number=45_000)), of(Cause.FENCED, detail="UNKNOWN_MEMBER_ID")
            ),
        ),
        ["removed"],
        "member consumer-3 at 10.0.0.7 was not heard of for its session of 45 s",
    ),
    Story(
        "its topic was deleted",
        facts(orders(), history=told(GroupEvent(Cause.TOPIC_DELETED, number=3, detail="orders"))),
        ["topic-deleted"],
        "the topic orders was deleted 1 min ago, and 3 offsets of the group with it",
    ),
    Story(
        "its start offsets were set",
        facts(orders(member_id=None), kind="share", history=told(GroupEvent(Cause.OFFSETS_SET, number=2))),
        ["offsets-set"],
        "the start offsets of 2 partitions were set by a request 1 min ago",
    ),
    Story(
        "it is not there any more",
        facts(members=(), state=DEAD_GROUP_STATE, kind="", history=told(GroupEvent(Cause.OFFSETS_EXPIRED, number=1))),
        ["gone", "offsets-expired"],
        "there is no group of this name now",
    ),
    Story(
        "a share group is behind",
        facts(orders(committed_offset=0, high_watermark=150, unacknowledged_count=50, member_id=None), kind="share"),
        ["lags"],
        "orders-2 lags by 50 records, 0 s: 1 member of the group reads it",
    ),
    Story(
        "a share group has acknowledged nothing",
        facts(orders(committed_offset=None, member_id=None), kind="share"),
        ["not-committed"],
        "the group, of 1 member, has acknowledged nothing of orders-2",
    ),
    Story("all is well", facts(orders()), ["well"], "has no lag"),
)


@pytest.mark.parametrize("story", STORIES, ids=[each.name for each in STORIES])
def test_a_history_is_told_by_its_causes_alone(story: Story) -> None:
    found = explain_group(story.known)
    assert [each.symptom for each in found] == story.symptoms
    assert story.said in found[0].text


def test_what_is_not_known_of_the_past_is_not_told_as_known() -> None:
    *_, last = explain_group(GroupFacts("g", "classic", "Stable", [MEMBER], [orders()], None))
    assert last.symptom == "no-history"
    assert last.text.endswith(
        "the broker keeps no history of groups, or the user may not describe the group's settings"
    )


def test_records_that_were_acknowledged_do_not_come_back() -> None:
    available, acknowledged, archived = 0, 2, 4
    batches = [
        StateBatch(5, 5, acknowledged, 3),
        StateBatch(6, 7, available, 3),
        StateBatch(8, 8, available, 1),
        StateBatch(9, 9, archived, 5),
        StateBatch(10, 10, archived, 1),
    ]
    assert redelivered_records(batches) == [RedeliveredRecords(6, 7, 3, False), RedeliveredRecords(9, 9, 5, True)]


def test_there_are_twenty_and_they_differ() -> None:
    assert len({each.name for each in STORIES}) == len(STORIES) > 20
    assert len({symptom for each in STORIES for symptom in each.symptoms}) >= 18
