"""The Raft machine: it is in one role at a time, and each event may change it.

A voter stands in three steps, so that nobody is disturbed by one that cannot win: it waits as unattached or follower,
asks as prospective, and runs as candidate in the next epoch. `TURNS` is the whole table of transitions, as in KIP-595
and KIP-996; `EVENTS` says what each role can meet.

An epoch that has a leader has no votes any more, so quorum-state keeps the leader's id while the epoch lasts, also when
it cannot be reached. A leader that is restarted begins as resigned: it cannot know what it said.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from kraft.raft.control_records import QuorumDescription
from kraft.raft.election import NOBODY, Election
from kraft.raft.events import (
    Answered,
    Appended,
    Effect,
    ElectionSaved,
    Event,
    Flushed,
    Follow,
    RaiseVersion,
    Received,
    Resign,
    SnapshotLoaded,
    SnapshotRefused,
    Started,
    Stop,
    Stopped,
    Tick,
    Truncated,
)
from kraft.raft.incoming_requests import receive
from kraft.raft.log_view import LogView
from kraft.raft.member import Member
from kraft.raft.roles.candidate import Candidate
from kraft.raft.roles.follower import Follower
from kraft.raft.roles.leader import Leader
from kraft.raft.roles.prospective import Prospective
from kraft.raft.roles.resigned import Resigned
from kraft.raft.roles.role import Role
from kraft.raft.roles.transitions import CastVote, EnterEpoch, FollowLeader, GiveUp, Run, Stand, StepDown, Turn, Win
from kraft.raft.roles.unattached import Unattached
from kraft.raft.settings import Identity, RaftSettings
from kraft.raft.voters.quorum_history import QuorumHistory
from kraft.raft.voters.voters import Address

TURNS: Final[Mapping[tuple[type[Role], type[Turn]], type[Role]]] = {
    (Unattached, EnterEpoch): Unattached,
    (Unattached, CastVote): Unattached,
    (Unattached, Stand): Prospective,
    (Unattached, FollowLeader): Follower,
    (Unattached, StepDown): Resigned,  # at the start of one that led
    (Prospective, EnterEpoch): Unattached,
    (Prospective, CastVote): Unattached,
    (Prospective, GiveUp): Unattached,
    (Prospective, Run): Candidate,
    (Prospective, FollowLeader): Follower,
    (Candidate, EnterEpoch): Unattached,
    (Candidate, Stand): Prospective,
    (Candidate, Win): Leader,
    (Candidate, FollowLeader): Follower,
    (Leader, EnterEpoch): Unattached,
    (Leader, FollowLeader): Follower,
    (Leader, StepDown): Resigned,
    (Follower, EnterEpoch): Unattached,
    (Follower, GiveUp): Unattached,  # an observer, which cannot stand
    (Follower, Stand): Prospective,
    (Follower, FollowLeader): Follower,
    (Resigned, EnterEpoch): Unattached,
    (Resigned, FollowLeader): Follower,
}
"""Where a turn leads. One that is not here is a bug."""

ANYWHERE: Final = frozenset({ElectionSaved, Flushed, Received, Answered, Tick, Resign, RaiseVersion, Stop})
BEHIND: Final = ANYWHERE | {SnapshotLoaded, SnapshotRefused}
"""Of a node whose log is being replaced: it cannot stand."""
EVENTS: Final[Mapping[type[Role], frozenset[type[Event]]]] = {
    Unattached: BEHIND | {Started},
    Prospective: ANYWHERE,
    Candidate: ANYWHERE,
    Leader: ANYWHERE | {Appended},
    Follower: BEHIND | {Appended, Truncated},
    Resigned: ANYWHERE,
}
"""What a role can meet. Another event is a bug of whoever sent it."""


class Raft:
    """Feed it every event in the order it happened, and carry out its effects in the order they come."""

    def __init__(
        self,
        identity: Identity,
        settings: RaftSettings,
        log: LogView,
        history: QuorumHistory,
        election: Election,
        random: Random,
    ) -> None:
        """`history`, `election`: as the log and quorum-state hold them. All of it is durable."""
        self.member = Member(identity, settings, log, history, election, random)
        self.role: Role = Unattached(self.member)
        self._stop_timeout_ms: int | None = None
        self._told: tuple[int, int] | None = None
        """(epoch, leader) as the last Follow said; None while leading."""

    # What may be asked

    @property
    def node_id(self) -> int:
        return self.member.node_id

    @property
    def epoch(self) -> int:
        return self.member.epoch

    @property
    def leader_id(self) -> int:
        """-1 where nobody is known to lead."""
        return self.member.leader_id

    @property
    def leader_endpoints(self) -> Mapping[str, Address]:
        """The leader's controller listeners by name; empty where none is followed."""
        return self.member.leader_endpoints

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def high_watermark(self) -> int:
        """-1 until this process has heard of one."""
        return self.member.high_watermark

    @property
    def quorum(self) -> QuorumDescription:
        """As the log describes it, committed or not."""
        return self.member.history.description

    @property
    def kraft_version(self) -> int:
        """As the log says, committed or not."""
        return self.member.history.kraft_version

    def refusal_of_version(self, version: int) -> str | None:
        """Why kraft.version cannot become this; None where it can."""
        return self.role.refusal_of_version(version)

    def next_deadline_ms(self) -> int | None:
        """When a Tick is due, on the clock of `now_ms`; it may be over already."""
        return self.role.deadline_ms()

    # Events

    def step(self, event: Event, now_ms: int, wall_ms: int) -> list[Effect]:
        """`now_ms` is of a clock that never goes back; `wall_ms` is written into records and answers."""
        assert type(event) in EVENTS[type(self.role)], f"{event} in the role {type(self.role).__name__}"
        self.member.now_ms, self.member.wall_ms = now_ms, wall_ms
        self._react(event)
        return self.member.outbox.take()

    def _react(self, event: Event) -> None:
        member = self.member
        match event:
            case Started():
                self._start()
            case ElectionSaved(election):
                member.outbox.saved(election)
                if election.promise == member.election.promise:
                    self.turn(self.role.saved())
            case Appended(end_offset, descriptions):
                assert end_offset == member.log.end_offset, "the log ends elsewhere"
                member.history.append(descriptions)
                self.turn(self.role.appended())
            case Truncated(end_offset):
                member.history.truncate(end_offset)
                member.flushed_end_offset = min(member.flushed_end_offset, end_offset)
                self.turn(self.role.truncated())
            case Flushed(end_offset):
                assert end_offset <= member.log.end_offset, "more is durable than was written"
                member.flushed_end_offset = end_offset
                self.turn(self.role.flushed())
            case Received():
                receive(self, event)
            case Answered():
                if member.peers.answered(event, member.now_ms):
                    self.turn(self.role.answered(event))
            case Tick():
                self.turn(self.role.tick())
            case SnapshotLoaded(snapshot_id, quorum):
                member.history.replace(snapshot_id.end_offset, quorum)
                member.flushed_end_offset = snapshot_id.end_offset
                self._snapshot_ended()
                member.commit(snapshot_id.end_offset)
            case SnapshotRefused():
                self._snapshot_ended()
            case Resign(epoch):
                if epoch == member.epoch:
                    self.turn(self.role.resign())
            case RaiseVersion(epoch, version):
                if epoch == member.epoch:
                    self.role.raise_version(version)
            case Stop(timeout_ms):
                self._stop(timeout_ms)

    def _start(self) -> None:
        """In the role that quorum-state leaves it. A log beyond it: quorum-state was lost, but not what it led to."""
        member = self.member
        election = member.election
        if member.log.last_epoch > election.epoch:
            self.turn(EnterEpoch(member.log.last_epoch))
        elif election.leader_id == member.node_id and not member.voters.is_only(member.node_id):
            self.turn(StepDown(tuple(voter.key for voter in member.other_voters())))
        elif election.leader_id not in (NOBODY, member.node_id) and member.endpoints_of(election.leader_id):
            self.turn(FollowLeader(election.epoch, election.leader_id, member.endpoints_of(election.leader_id)))
        else:
            self._tell()
            self.turn(self.role.enter())

    def _stop(self, timeout_ms: int) -> None:
        """Only who leads, or has just led, owes the others a word."""
        self.member.is_stopping = True
        self._stop_timeout_ms = timeout_ms
        if isinstance(self.role, Leader | Resigned):
            self.turn(self.role.stop(timeout_ms))
        else:
            self.member.put(Stopped())

    def _snapshot_ended(self) -> None:
        self.member.is_loading = False
        self.turn(self.role.snapshot_ended())

    # Turns

    def turn(self, turn: Turn | None) -> None:
        """The next role enters in its election; what the last one owes is answered in it too."""
        while turn is not None:
            before = self.role
            kind = TURNS.get((type(before), type(turn)))
            assert kind is not None, f"{turn} out of the role {type(before).__name__}"
            patience_ms = before.patience_ms()
            self._elect(turn)
            self.member.peers.forget()
            self.role = self._made(turn, patience_ms)
            before.leave()
            self._tell()
            turn = self.role.enter()

    def _elect(self, turn: Turn) -> None:
        member = self.member
        election = member.election
        if not isinstance(turn, Stand):
            member.leader_endpoints = {}
        match turn:
            case EnterEpoch(epoch):
                assert epoch > election.epoch
                election = Election(epoch)
            case CastVote(candidate):
                election = Election(election.epoch, NOBODY, *member.voted_key(candidate))
            case Run():
                election = Election(election.epoch + 1, NOBODY, *member.voted_key(member.key))
            case Win():
                election = election._replace(leader_id=member.node_id)
                member.leader_endpoints = member.identity.endpoints
                member.elections_lost = 0
            case FollowLeader(epoch, leader_id, endpoints):
                before = election if epoch == election.epoch else Election(epoch)
                assert before.leader_id in (NOBODY, leader_id), "an epoch has one leader"
                election = before._replace(leader_id=leader_id)
                member.leader_endpoints = endpoints
                member.elections_lost = 0
        member.election = election
        member.outbox.save(election)

    def _made(self, turn: Turn, patience_ms: int | None) -> Role:
        member = self.member
        match turn:
            case EnterEpoch():
                return Unattached(member, patience_ms)
            case CastVote() | GiveUp():
                return Unattached(member)
            case Stand():
                return Prospective(member)
            case Run():
                return Candidate(member)
            case Win(granted):
                return Leader(member, granted)
            case FollowLeader():
                return Follower(member)
            case StepDown(preferred):
                return Resigned(member, preferred, self._stop_timeout_ms)

    def _tell(self) -> None:
        """The node's other parts: whom to follow."""
        if self.is_leader:
            self._told = None
            return
        told = (self.member.epoch, self.member.leader_id)
        if told != self._told:
            self._told = told
            self.member.put(Follow(*told))
