"""Every event in every role: the pairs that mean something, and the rest, which are bugs."""

from __future__ import annotations

import pytest

from kraft.raft.candidate import Candidate
from kraft.raft.election import Election
from kraft.raft.events import Appended, ElectionSaved, Event, Flushed, Started
from kraft.raft.leader import Leader
from kraft.raft.quorum import Quorum
from kraft.raft.raft import Role
from kraft.raft.unattached import Unattached
from kraft.raft.voters import Voter, Voters

QUORUM = Quorum(1, bytes(16), 0, Voters.of([Voter(1)]))
VOTE = Election(5, voted_id=1)
ROLES: list[Role] = [
    Unattached(QUORUM, Election(4), 10),
    Candidate(QUORUM, VOTE, 10),
    Leader(QUORUM, Election(5, leader_id=1), 10, end_offset=12),
]
EVENTS: list[Event] = [Started(), ElectionSaved(VOTE), Appended(12), Flushed(12)]
NEXT = {
    (Unattached, Started): Candidate,
    (Candidate, ElectionSaved): Leader,
    (Leader, ElectionSaved): Leader,
    (Leader, Appended): Leader,
    (Leader, Flushed): Leader,
}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: type(role).__name__)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_in_every_role(role: Role, event: Event) -> None:
    expected = NEXT.get((type(role), type(event)))
    if expected is None:
        with pytest.raises(AssertionError):
            role.step(event, 0)
    else:
        assert type(role.step(event, 0)[0]) is expected


def test_another_vote_than_its_own_does_not_count() -> None:
    with pytest.raises(AssertionError):
        Candidate(QUORUM, VOTE, 10).step(ElectionSaved(Election(4, voted_id=1)), 0)


def test_more_cannot_be_durable_than_was_written() -> None:
    with pytest.raises(AssertionError):
        Leader(QUORUM, Election(5, leader_id=1), 10, end_offset=12).step(Flushed(13), 0)
    with pytest.raises(AssertionError):
        Leader(QUORUM, Election(5, leader_id=1), 10, end_offset=12).step(Appended(11), 0)


@pytest.mark.parametrize(("voters", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majorities(voters: int, majority: int) -> None:
    assert Voters.of(Voter(number) for number in range(voters)).majority == majority
