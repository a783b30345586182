"""The transitions between roles. A role returns one, and the machine creates the role that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from moldau.kraft.quorum.voter_set import Address, ReplicaKey
from moldau.protocol.late_tuple import NamedTuple


class EnterEpoch(NamedTuple):
    """The transition to unattached in a later epoch, of which this node knows neither a leader nor a candidate."""

    epoch: int


class GrantVote(NamedTuple):
    """The transition to unattached in the current epoch, with a vote granted to `candidate` in it."""

    candidate: ReplicaKey


class BecomeUnattached(NamedTuple):
    """The transition to unattached in the current epoch, because no leader of the epoch is known or can be reached."""


class BecomeProspective(NamedTuple):
    """The transition to prospective in the current epoch: this node asks the voters for pre-votes."""


class BecomeCandidate(NamedTuple):
    """The transition to candidate in the next epoch."""


class BecomeLeader(NamedTuple):
    """The transition to leader of the epoch in which this node was candidate. `granted` has the voters that granted
    their votes."""

    granted: tuple[int, ...]


class BecomeFollower(NamedTuple):
    """The transition to follower in the current epoch or in a later one."""

    epoch: int
    leader_id: int
    endpoints: Mapping[str, Address]


class BecomeResigned(NamedTuple):
    """The transition to resigned in the epoch in which this node led."""

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
