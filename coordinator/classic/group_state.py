"""The states of a classic group, the ways between them and what each state answers.

A group is a set of members that share the partitions of some topics. Time is cut into generations: in each, one member
(the leader) deals out the work and all others take their share. Whatever changes the set, or what a member wants, ends
the generation and starts a rebalance, which has two phases:

    Empty ──join──▶ PreparingRebalance ──all joined, or time is up──▶ CompletingRebalance ──plan stored──▶ Stable
      ▲               │  ▲         ▲                                            │                            │
      └──nobody left──┘  │         └────────── a join, a leave, a failure ──────┘                            │
                         └──────────────────── a join, a leave, a failure ───────────────────────────────────┘

* **Empty**: no members, though perhaps offsets, and perhaps members told to come again with the id they were given.
* **PreparingRebalance**: joins are parked until every known member has asked, or the longest rebalance timeout is
  over; members (save static ones) that have not asked by then are out. The first rebalance of an empty group waits a
  little (`group.initial.rebalance.delay.ms`) so that members which start together meet in one generation.
* **CompletingRebalance**: joins are answered with a new generation; syncs are parked until the leader brings the
  assignment and its record is committed.
* **Stable**: everybody has an assignment; heartbeats keep it so.
* **Dead**: the group is not known: it was deleted, or never was. No live group is in it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from protocol.errors import ErrorCode


class GroupState(Enum):
    """The value is Kafka's name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

FORMER_STATES: Final = {
    EMPTY: {PREPARING},
    PREPARING: {EMPTY, COMPLETING, STABLE},
    COMPLETING: {PREPARING},
    STABLE: {COMPLETING},
    DEAD: {EMPTY},
}
"""From which states a group may come into each."""

HEARTBEAT_ANSWERS: Final = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING: ErrorCode.NONE,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}
"""What a member with the right id and generation hears."""

COMMIT_ANSWERS: Final = {
    EMPTY: ErrorCode.NONE,
    PREPARING: ErrorCode.NONE,
    COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.ILLEGAL_GENERATION,
}
"""Whether a member with the right id and generation may commit offsets: until the rebalance's first phase ends, the
old owners may still say how far they came."""

DELETE_ANSWERS: Final = {
    EMPTY: ErrorCode.NONE,
    PREPARING: ErrorCode.NON_EMPTY_GROUP,
    COMPLETING: ErrorCode.NON_EMPTY_GROUP,
    STABLE: ErrorCode.NON_EMPTY_GROUP,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}
"""Whether the group may be deleted."""
