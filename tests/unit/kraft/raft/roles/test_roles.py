"""Every event in every role: the pairs that mean something, and the rest, which are bugs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kraft.raft.control_records import QuorumDescription
from kraft.raft.election import Election
from kraft.raft.events import (
    Answered,
    Appended,
    Destination,
    ElectionSaved,
    Event,
    Flushed,
    RaiseVersion,
    Received,
    Resign,
    SaveElection,
    SnapshotLoaded,
    SnapshotRefused,
    Started,
    Stop,
    Tick,
    Truncated,
)
from kraft.raft.raft import EVENTS, TURNS, Raft
from kraft.raft.roles.role import Role
from kraft.raft.roles.transitions import CastVote, EnterEpoch, FollowLeader, GiveUp, Run, Stand, StepDown, Turn, Win
from kraft.raft.settings import Identity, RaftSettings
from kraft.raft.voters.quorum_history import QuorumHistory
from kraft.raft.voters.voters import ReplicaKey, Voter, Voters
from kraft.snapshot.names import SnapshotId
from protocol.messages.describe_quorum import DescribeQuorumRequest
from tests.simulation.raft.replicated_log import Entry, ReplicatedLog

VOTERS = Voters.of(Voter(each, bytes(15) + bytes([each]), (("C", (f"h{each}", 1)),)) for each in (1, 2, 3))
DESCRIPTION = QuorumDescription(1, VOTERS)
ENDPOINTS = {"C": ("h2", 1)}
EPOCH = 4
WAYS: dict[str, list[Turn]] = {
    "Unattached": [],
    "Prospective": [Stand()],
    "Candidate": [Stand(), Run()],
    "Leader": [Stand(), Run(), Win((1, 2))],
    "Follower": [FollowLeader(EPOCH, 2, ENDPOINTS)],
    "Resigned": [Stand(), Run(), Win((1, 2)), StepDown(())],
}
"""How each role is come to from a start in epoch 4."""
EVENTS_BY_NAME: dict[str, Callable[[Raft], Event]] = {
    "Started": lambda _: Started(),
    "ElectionSaved": lambda raft: ElectionSaved(raft.member.election),
    "Appended": lambda raft: Appended(raft.member.log.end_offset),
    "Truncated": lambda raft: Truncated(raft.member.log.end_offset),
    "Flushed": lambda raft: Flushed(raft.member.log.end_offset),
    "Received": lambda _: Received(1, DescribeQuorumRequest(), 2),
    "Answered": lambda _: Answered(Destination(2, "h2", 1), DescribeQuorumRequest(), None),  # type: ignore[arg-type]
    "Tick": lambda _: Tick(),
    "SnapshotLoaded": lambda _: SnapshotLoaded(SnapshotId(10, 4), DESCRIPTION),
    "SnapshotRefused": lambda _: SnapshotRefused(SnapshotId(10, 4)),
    "RaiseVersion": lambda raft: RaiseVersion(raft.epoch, 1),
    "Resign": lambda raft: Resign(raft.epoch),
    "Stop": lambda _: Stop(100),
}
TURNS_BY_NAME: dict[str, Turn] = {
    "EnterEpoch": EnterEpoch(9),
    "CastVote": CastVote(ReplicaKey(2)),
    "GiveUp": GiveUp(),
    "Stand": Stand(),
    "Run": Run(),
    "Win": Win((1, 2)),
    "FollowLeader": FollowLeader(9, 2, ENDPOINTS),
    "StepDown": StepDown(()),
}


def raft_in(role: str) -> Raft:
    """In the role, with its election durable."""
    log = ReplicatedLog()
    log.append([Entry(EPOCH, None)] * 10)
    log.durable_end_offset = 10
    raft = Raft(
        Identity(1, "cluster", VOTERS.by_id[1].directory_id, {"C": ("h1", 1)}, "C"),
        RaftSettings(),
        log,
        QuorumHistory(VOTERS, [(0, DESCRIPTION)]),
        Election(EPOCH),
        random.Random(1),
    )
    for turn in WAYS[role]:
        raft.turn(turn)
    assert type(raft.role).__name__ == role
    return raft


def save(raft: Raft) -> None:
    for effect in raft.member.outbox.take():
        if isinstance(effect, SaveElection):
            raft.member.outbox.saved(effect.election)


@pytest.mark.parametrize("role", WAYS)
@pytest.mark.parametrize("name", EVENTS_BY_NAME)
def test_every_event_in_every_role(role: str, name: str) -> None:
    """What can be met leaves the node in a role of the table; what cannot is refused before anything changes."""
    raft = raft_in(role)
    if name != "ElectionSaved":
        save(raft)
    else:
        raft.member.outbox.save(raft.member.election._replace(leader_id=2))
        raft.member.election = raft.member.election._replace(leader_id=2)
        raft.member.outbox.take()
    before, event = raft.role, EVENTS_BY_NAME[name](raft)
    if type(event) not in EVENTS[type(before)]:
        with pytest.raises(AssertionError):
            raft.step(event, 0, 0)
        assert raft.role is before
        return
    raft.step(event, 0, 0)
    after = type(raft.role)
    reachable = {kind for (start, _), kind in TURNS.items() if start is type(before)}
    assert after is type(before) or after in reachable


@pytest.mark.parametrize("role", WAYS)
@pytest.mark.parametrize("name", TURNS_BY_NAME)
def test_every_turn_out_of_every_role(role: str, name: str) -> None:
    raft, turn = raft_in(role), TURNS_BY_NAME[name]
    expected = TURNS.get((type(raft.role), type(turn)))
    if expected is None:
        with pytest.raises(AssertionError):
            raft.turn(turn)
    else:
        raft.turn(turn)
        assert type(raft.role) is expected


def test_the_tables_know_every_role_and_every_turn() -> None:
    roles = {kind.__name__ for kind in EVENTS}
    assert roles == set(WAYS) == {kind.__name__ for kind in Role.__subclasses__()}
    assert {turn.__name__ for _, turn in TURNS} == set(TURNS_BY_NAME)
    assert {event.__name__ for events in EVENTS.values() for event in events} == set(EVENTS_BY_NAME)


@pytest.mark.parametrize(("voters", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majorities(voters: int, majority: int) -> None:
    assert Voters.of(Voter(number) for number in range(voters)).majority == majority
