"""Where a role may go from here: the machine makes the role that a turn asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kraft.raft.voters.voters import Address, ReplicaKey


class EnterEpoch(NamedTuple):
    """Unattached in a later epoch, of which nothing is known but that there is it."""

    epoch: int


class CastVote(NamedTuple):
    """Unattached, having voted in the epoch that it is in."""

    candidate: ReplicaKey


class GiveUp(NamedTuple):
    """Unattached in the epoch that it is in, whoever leads it: the one who did is out of reach."""


class Stand(NamedTuple):
    """Prospective: ask who would vote for this node."""


class Run(NamedTuple):
    """Candidate in the next epoch."""


class Win(NamedTuple):
    """Leader: these have voted for this node."""

    granted: tuple[int, ...]


class FollowLeader(NamedTuple):
    """Follower in this epoch, or in a later one."""

    epoch: int
    leader_id: int
    endpoints: Mapping[str, Address]


class StepDown(NamedTuple):
    """Resigned in the epoch that it led."""

    preferred: tuple[ReplicaKey, ...]
    """Who should stand in its place, the best first."""


Turn: TypeAlias = EnterEpoch | CastVote | GiveUp | Stand | Run | Win | FollowLeader | StepDown
