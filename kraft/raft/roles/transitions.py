"""Where a role may go from here: the machine makes the role that a turn asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kraft.raft.voters.voters import Address, ReplicaKey


class EnterEpoch(NamedTuple):
    """Unattached in a later epoch, of which nothing is known but that there is it."""

    epoch: int


class GrantVote(NamedTuple):
    """Unattached, having voted in the epoch that it is in."""

    candidate: ReplicaKey


class BecomeUnattached(NamedTuple):
    """Unattached in the epoch that it is in, whoever leads it: the one who did is out of reach."""


class BecomeProspective(NamedTuple):
    """Prospective: ask who would vote for this node."""


class BecomeCandidate(NamedTuple):
    """Candidate in the next epoch."""


class BecomeLeader(NamedTuple):
    """Leader: these have voted for this node."""

    granted: tuple[int, ...]


class BecomeFollower(NamedTuple):
    """Follower in this epoch, or in a later one."""

    epoch: int
    leader_id: int
    endpoints: Mapping[str, Address]


class BecomeResigned(NamedTuple):
    """Resigned in the epoch that it led."""

    preferred: tuple[ReplicaKey, ...]
    """Who should stand in its place, the best first."""


Transition: TypeAlias = (
    EnterEpoch
    | GrantVote
    | BecomeUnattached
    | BecomeProspective
    | BecomeCandidate
    | BecomeLeader
    | BecomeFollower
    | BecomeResigned
)
