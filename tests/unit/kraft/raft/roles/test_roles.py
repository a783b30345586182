"""Every event in every role: the pairs that mean something, and the rest, which are bugs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.quorum.voter_set import ReplicaKey, VoterNode, VoterSet
from moldau.kraft.raft.election_state import ElectionState
from moldau.kraft.raft.events import (
    DeadlineReached,
    Destination,
    ElectionSaved,
    Event,
    LogAppended,
    LogFlushed,
    LogTruncated,
    RaiseVersion,
    RequestReceived,
    Resign,
    ResponseReceived,
    SaveElection,
    SnapshotLoaded,
    SnapshotRefused,
    Started,
    Stop,
)
from moldau.kraft.raft.raft import EVENTS, TRANSITIONS, Raft
from moldau.kraft.raft.roles.role import RaftRole
from moldau.kraft.raft.settings import QuorumIdentity, RaftSettings
from moldau.kraft.raft.transitions import (
    BecomeCandidate,
    BecomeFollower,
    BecomeLeader,
    BecomeProspective,
    BecomeResigned,
    BecomeUnattached,
    EnterEpoch,
    GrantVote,
    Transition,
)
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from tests.simulation.raft.replicated_log import Entry, ReplicatedLog

VOTERS = VoterSet.from_voters(
    VoterNode(each, bytes(15) + bytes([each]), (("C", (f"h{each}", 1)),)) for each in (1, 2, 3)
)
DESCRIPTION = QuorumDescription(1, VOTERS)
ENDPOINTS = {"C": ("h2", 1)}
EPOCH = 4
WAYS: dict[str, list[Transition]] = {
    "UnattachedRole": [],
    "ProspectiveRole": [BecomeProspective()],
    "CandidateRole": [BecomeProspective(), BecomeCandidate()],
    "LeaderRole": [BecomeProspective(), BecomeCandidate(), BecomeLeader((1, 2))],
    "FollowerRole": [BecomeFollower(EPOCH, 2, ENDPOINTS)],
    "ResignedRole": [BecomeProspective(), BecomeCandidate(), BecomeLeader((1, 2)), BecomeResigned(())],
}
"""How each role is come to from a start in epoch 4."""
EVENTS_BY_NAME: dict[str, Callable[[Raft], Event]] = {
    "Started": lambda _: Started(),
    "ElectionSaved": lambda raft: ElectionSaved(raft.member.election),
    "LogAppended": lambda raft: LogAppended(raft.member.log.end_offset),
    "LogTruncated": lambda raft: LogTruncated(raft.member.log.end_offset),
    "LogFlushed": lambda raft: LogFlushed(raft.member.log.end_offset),
    "RequestReceived": lambda _: RequestReceived(1, DescribeQuorumRequest(), 2),
    "ResponseReceived": lambda _: ResponseReceived(Destination(2, "h2", 1), DescribeQuorumRequest(), None),  # type: ignore[arg-type]
    "DeadlineReached": lambda _: DeadlineReached(),
    "SnapshotLoaded": lambda _: SnapshotLoaded(SnapshotId(10, 4), DESCRIPTION),
    "SnapshotRefused": lambda _: SnapshotRefused(SnapshotId(10, 4)),
    "RaiseVersion": lambda raft: RaiseVersion(raft.epoch, 1),
    "Resign": lambda raft: Resign(raft.epoch),
    "Stop": lambda _: Stop(100),
}
TRANSITIONS_BY_NAME: dict[str, Transition] = {
    "EnterEpoch": EnterEpoch(9),
    "GrantVote": GrantVote(ReplicaKey(2)),
    "BecomeUnattached": BecomeUnattached(),
    "BecomeProspective": BecomeProspective(),
    "BecomeCandidate": BecomeCandidate(),
    "BecomeLeader": BecomeLeader((1, 2)),
    "BecomeFollower": BecomeFollower(9, 2, ENDPOINTS),
    "BecomeResigned": BecomeResigned(()),
}


def raft_in(role: str) -> Raft:
    """In the role, with its election durable."""
    log = ReplicatedLog()
    log.append([Entry(EPOCH, None)] * 10)
    log.durable_end_offset = 10
    raft = Raft(
        QuorumIdentity(1, "cluster", VOTERS.by_id[1].directory_id, {"C": ("h1", 1)}, "C"),
        RaftSettings(),
        log,
        QuorumHistory(VOTERS, [(0, DESCRIPTION)]),
        ElectionState(EPOCH),
        random.Random(1),
    )
    for transition in WAYS[role]:
        raft.transition(transition)
    assert type(raft.role).__name__ == role
    return raft


def save(raft: Raft) -> None:
    for effect in raft.member.outbox.take_effects():
        if isinstance(effect, SaveElection):
            raft.member.outbox.on_election_saved(effect.election)


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
        raft.member.outbox.take_effects()
    before, event = raft.role, EVENTS_BY_NAME[name](raft)
    if type(event) not in EVENTS[type(before)]:
        with pytest.raises(AssertionError):
            raft.step(event, 0, 0)
        assert raft.role is before
        return
    raft.step(event, 0, 0)
    after = type(raft.role)
    reachable = {kind for (start, _), kind in TRANSITIONS.items() if start is type(before)}
    assert after is type(before) or after in reachable


@pytest.mark.parametrize("role", WAYS)
@pytest.mark.parametrize("name", TRANSITIONS_BY_NAME)
def test_every_transition_out_of_every_role(role: str, name: str) -> None:
    raft, transition = raft_in(role), TRANSITIONS_BY_NAME[name]
    expected = TRANSITIONS.get((type(raft.role), type(transition)))
    if expected is None:
        with pytest.raises(AssertionError):
            raft.transition(transition)
    else:
        raft.transition(transition)
        assert type(raft.role) is expected


def test_the_tables_know_every_role_and_every_transition() -> None:
    roles = {kind.__name__ for kind in EVENTS}
    assert roles == set(WAYS) == {kind.__name__ for kind in RaftRole.__subclasses__()}
    assert {transition.__name__ for _, transition in TRANSITIONS} == set(TRANSITIONS_BY_NAME)
    assert {event.__name__ for events in EVENTS.values() for event in events} == set(EVENTS_BY_NAME)


@pytest.mark.parametrize(("voters", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majorities(voters: int, majority: int) -> None:
    assert VoterSet.from_voters(VoterNode(number) for number in range(voters)).majority == majority
