"""The states of a classic group, the transitions between them, and the errors that each state gives.

A group is a set of members that divide the partitions of some topics among themselves. Its life is divided into
generations: in each, one member (the leader) assigns partitions to all members. A change of the members or of a
subscription ends the generation and starts a rebalance, which has two phases:

    Empty ──join──▶ PreparingRebalance ──joined, or time out──▶ CompletingRebalance ──assignment stored──▶ Stable
      ▲               │  ▲         ▲                                     │                                  │
      └──no member────┘  │         └───── a join, a leave, a failure ────┘                                  │
                         └─────────────── a join, a leave, a failure ───────────────────────────────────────┘

* **Empty**: the group has no members. It may have offsets, and ids given to members that have not joined with them.
* **PreparingRebalance**: joins are parked until every member has joined, or the longest rebalance timeout is over;
  members that have not joined by then are removed, save static ones. The first rebalance of an empty group lasts for
  `group.initial.rebalance.delay.ms`, so that members which start together are in one generation.
* **CompletingRebalance**: joins are answered with a new generation; syncs are parked until the leader sends the
  assignment and its record is committed.
* **Stable**: every member has its assignment.
* **Dead**: the group does not exist. No group of the shard is in this state.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from moldau.protocol.errors import ErrorCode


class GroupState(Enum):
    """The states of a classic group. The values are Kafka's names in the protocol."""

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
"""The states from which a group may move into each."""

HEARTBEAT_ANSWERS: Final = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING: ErrorCode.NONE,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}
"""The error of a heartbeat with the right member id and generation, by state."""

COMMIT_ANSWERS: Final = {
    EMPTY: ErrorCode.NONE,
    PREPARING: ErrorCode.NONE,
    COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.ILLEGAL_GENERATION,
}
"""The error of an OffsetCommit of a member with the right id and generation, by state.

Until the join phase of a rebalance ends, the owners of the generation before may still commit.
"""

DELETE_ANSWERS: Final = {
    EMPTY: ErrorCode.NONE,
    PREPARING: ErrorCode.NON_EMPTY_GROUP,
    COMPLETING: ErrorCode.NON_EMPTY_GROUP,
    STABLE: ErrorCode.NON_EMPTY_GROUP,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}
"""The error of DeleteGroups, by state."""
