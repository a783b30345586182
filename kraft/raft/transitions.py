"""The transitions between roles: a role returns one, and the machine creates the role that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from moldau.kraft.quorum.voter_set import Address, ReplicaKey
from moldau.protocol.late_tuple import NamedTuple


class EnterEpoch(NamedTuple):
    """Unattached in a later epoch, of which this node knows neither leader nor candidate."""

    epoch: int


class GrantVote(NamedTuple):
    """Unattached in the current epoch, with a vote granted in it."""

    candidate: ReplicaKey


class BecomeUnattached(NamedTuple):
    """Unattached in the current epoch: its leader, if it has one, cannot be reached."""


class BecomeProspective(NamedTuple):
    """Prospective in the current epoch: ask the voters for pre-votes."""


class BecomeCandidate(NamedTuple):
    """Candidate in the next epoch."""


class BecomeLeader(NamedTuple):
    """Leader of the epoch in which this node was candidate; `granted`: the voters that granted their votes."""

    granted: tuple[int, ...]


class BecomeFollower(NamedTuple):
    """Follower in the current epoch, or in a later one."""

    epoch: int
    leader_id: int
    endpoints: Mapping[str, Address]


class BecomeResigned(NamedTuple):
    """Resigned in the epoch that this node led."""

    preferred: tuple[ReplicaKey, ...]
    """The voters that should become candidates, the one with the longest log first."""


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
