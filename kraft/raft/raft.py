"""The Raft machine: it is in one role at a time, and each event may change it.

A voter becomes a candidate in three steps: it waits as unattached or follower, asks for pre-votes as prospective, and
asks for votes as candidate in the next epoch. So a voter that cannot win starts no epoch (KIP-996). `TRANSITIONS` is
the whole table of transitions, as in KIP-595, KIP-853 and KIP-996; `EVENTS` says which events each role can receive.

No vote is granted in an epoch that has a leader. So quorum-state keeps the leader's id while the epoch lasts, also when
the leader cannot be reached. A leader that restarts begins as resigned: it does not know which records of its epoch it
sent before, and must not number other ones in the same epoch (KIP-595).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.quorum.voter_set import Address
from moldau.kraft.raft.election_state import NO_NODE, ElectionState
from moldau.kraft.raft.events import (
    DeadlineReached,
    Effect,
    ElectionSaved,
    Event,
    Follow,
    LogAppended,
    LogFlushed,
    LogTruncated,
    RaiseVersion,
    RequestReceived,
    Resign,
    ResponseReceived,
    SnapshotLoaded,
    SnapshotRefused,
    Started,
    Stop,
    Stopped,
)
from moldau.kraft.raft.incoming_requests import handle_request
from moldau.kraft.raft.log_view import LogView
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.roles.candidate import CandidateRole
from moldau.kraft.raft.roles.follower import FollowerRole
from moldau.kraft.raft.roles.leader import LeaderRole
from moldau.kraft.raft.roles.prospective import ProspectiveRole
from moldau.kraft.raft.roles.resigned import ResignedRole
from moldau.kraft.raft.roles.role import RaftRole
from moldau.kraft.raft.roles.unattached import UnattachedRole
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

TRANSITIONS: Final[Mapping[tuple[type[RaftRole], type[Transition]], type[RaftRole]]] = {
    (UnattachedRole, EnterEpoch): UnattachedRole,
    (UnattachedRole, GrantVote): UnattachedRole,
    (UnattachedRole, BecomeProspective): ProspectiveRole,
    (UnattachedRole, BecomeFollower): FollowerRole,
    (UnattachedRole, BecomeResigned): ResignedRole,  # Taken at a restart if quorum-state names this node as leader.
    (ProspectiveRole, EnterEpoch): UnattachedRole,
    (ProspectiveRole, GrantVote): UnattachedRole,
    (ProspectiveRole, BecomeUnattached): UnattachedRole,
    (ProspectiveRole, BecomeCandidate): CandidateRole,
    (ProspectiveRole, BecomeFollower): FollowerRole,
    (CandidateRole, EnterEpoch): UnattachedRole,
    (CandidateRole, BecomeProspective): ProspectiveRole,
    (CandidateRole, BecomeLeader): LeaderRole,
    (CandidateRole, BecomeFollower): FollowerRole,
    (LeaderRole, EnterEpoch): UnattachedRole,
    (LeaderRole, BecomeFollower): FollowerRole,
    (LeaderRole, BecomeResigned): ResignedRole,
    (FollowerRole, EnterEpoch): UnattachedRole,
    (FollowerRole, BecomeUnattached): UnattachedRole,  # An observer, which cannot become a candidate.
    (FollowerRole, BecomeProspective): ProspectiveRole,
    (FollowerRole, BecomeFollower): FollowerRole,
    (ResignedRole, EnterEpoch): UnattachedRole,
    (ResignedRole, BecomeFollower): FollowerRole,
}
"""The role after a transition from a role. A transition that the table does not have is a bug of this package."""

EVENTS_OF_EVERY_ROLE: Final = frozenset(
    {ElectionSaved, LogFlushed, RequestReceived, ResponseReceived, DeadlineReached, Resign, RaiseVersion, Stop}
)
EVENTS_WHILE_BEHIND: Final = EVENTS_OF_EVERY_ROLE | {SnapshotLoaded, SnapshotRefused}
"""The events that a role can receive while a snapshot may be replacing its log. A node in that state cannot become a
candidate."""
EVENTS: Final[Mapping[type[RaftRole], frozenset[type[Event]]]] = {
    UnattachedRole: EVENTS_WHILE_BEHIND | {Started},
    ProspectiveRole: EVENTS_OF_EVERY_ROLE,
    CandidateRole: EVENTS_OF_EVERY_ROLE,
    LeaderRole: EVENTS_OF_EVERY_ROLE | {LogAppended},
    FollowerRole: EVENTS_WHILE_BEHIND | {LogAppended, LogTruncated},
    ResignedRole: EVENTS_OF_EVERY_ROLE,
}
"""The events that each role can receive. Any other event is a bug of the code that passed it to the machine."""


class Raft:
    """The Raft state machine of one node.

    The caller passes it every event in the order in which events happen, and carries out its effects in their order.
    """

    def __init__(
        self,
        identity: QuorumIdentity,
        settings: RaftSettings,
        log: LogView,
        history: QuorumHistory,
        election: ElectionState,
        random: Random,
    ) -> None:
        """Create the machine of a node.

        `history` comes from the log and `election` from quorum-state; both must be durable.
        """
        self.member = QuorumMember(identity, settings, log, history, election, random)
        self.role: RaftRole = UnattachedRole(self.member)
        self._stop_timeout_ms: int | None = None
        self._announced: tuple[int, int] | None = None
        """The epoch and leader id of the last Follow effect; None while this node leads."""

    # What the shell reads

    @property
    def node_id(self) -> int:
        return self.member.node_id

    @property
    def epoch(self) -> int:
        return self.member.epoch

    @property
    def leader_id(self) -> int:
        """The id of the leader; -1 if none is known, or if this node does not follow it."""
        return self.member.leader_id

    @property
    def leader_endpoints(self) -> Mapping[str, Address]:
        """The leader's controller listeners by name; empty if this node follows no leader."""
        return self.member.leader_endpoints

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, LeaderRole)

    @property
    def high_watermark(self) -> int:
        """The high watermark that this process has learnt; -1 if it has not learnt one yet."""
        return self.member.high_watermark

    @property
    def quorum(self) -> QuorumDescription:
        """The kraft.version and the voters by the newest records in the log, committed or not."""
        return self.member.history.description

    @property
    def kraft_version(self) -> int:
        """The kraft.version of the newest record in the log, committed or not."""
        return self.member.history.kraft_version

    def refusal_of_version(self, version: int) -> str | None:
        """Why kraft.version cannot be changed to `version`; None if it can."""
        return self.role.refusal_of_version(version)

    def next_deadline_ms(self) -> int | None:
        """The time (ms, clock of `now_ms`) at which a DeadlineReached is due; it may be in the past. None if there is
        no deadline."""
        return self.role.deadline_ms()

    # Events

    def step(self, event: Event, now_ms: int, wall_ms: int) -> list[Effect]:
        """Handle one event. Returns the effects, which the caller carries out in their order.

        `now_ms` is the time on a clock that never goes back; `wall_ms` is written into records and responses.
        """
        assert type(event) in EVENTS[type(self.role)], f"{event} in the role {type(self.role).__name__}"
        self.member.now_ms, self.member.wall_ms = now_ms, wall_ms
        self._react(event)
        return self.member.outbox.take_effects()

    def _react(self, event: Event) -> None:
        member = self.member
        match event:
            case Started():
                self._start()
            case ElectionSaved(election):
                # Effects that depend on the epoch or the vote leave only now, after both are durable: after a crash
                # this node must not vote twice.
                member.outbox.on_election_saved(election)
                if election.promise == member.election.promise:
                    self.transition(self.role.on_election_saved())
            case LogAppended(end_offset, descriptions):
                # The newest voters count as soon as they are in the log, before they are committed (Raft, section 6).
                assert end_offset == member.log.end_offset, "the log ends elsewhere"
                member.history.append(descriptions)
                self.transition(self.role.on_log_appended())
            case LogTruncated(end_offset):
                member.history.truncate(end_offset)
                member.flushed_end_offset = min(member.flushed_end_offset, end_offset)
                self.transition(self.role.on_log_truncated())
            case LogFlushed(end_offset):
                # The leader's own copy counts only once it is durable: a leader that loses it in a crash must not have
                # counted it.
                assert end_offset <= member.log.end_offset, "more is durable than was written"
                member.flushed_end_offset = end_offset
                self.transition(self.role.on_log_flushed())
            case RequestReceived():
                handle_request(self, event)
            case ResponseReceived():
                if member.peers.note_response(event, member.now_ms):
                    self.transition(self.role.on_response(event))
            case DeadlineReached():
                self.transition(self.role.tick())
            case SnapshotLoaded(snapshot_id, quorum):
                member.history.replace(snapshot_id.end_offset, quorum)
                member.flushed_end_offset = snapshot_id.end_offset
                self._snapshot_ended()
                member.commit(snapshot_id.end_offset)
            case SnapshotRefused():
                self._snapshot_ended()
            case Resign(epoch):
                if epoch == member.epoch:
                    self.transition(self.role.resign())
            case RaiseVersion(epoch, version):
                if epoch == member.epoch:
                    self.role.raise_version(version)
            case Stop(timeout_ms):
                self._stop(timeout_ms)

    def _start(self) -> None:
        """Enter the role that follows from quorum-state.

        If the log has a later epoch than quorum-state, the file was lost. This node then begins in the last epoch of
        its log. It can grant no second vote in that epoch, because the log of every candidate of that epoch is shorter
        than its own.
        """
        member = self.member
        election = member.election
        if member.log.last_epoch > election.epoch:
            self.transition(EnterEpoch(member.log.last_epoch))
        elif election.leader_id == member.node_id and not member.voters.is_only(member.node_id):
            self.transition(BecomeResigned(tuple(voter.key for voter in member.other_voters())))
        elif election.leader_id not in (NO_NODE, member.node_id) and member.endpoints_of(election.leader_id):
            self.transition(BecomeFollower(election.epoch, election.leader_id, member.endpoints_of(election.leader_id)))
        else:
            self._announce()
            self.transition(self.role.enter())

    def _stop(self, timeout_ms: int) -> None:
        """Begin a clean stop of this node.

        Only a leader, or a node that has just resigned, sends EndQuorumEpoch to the other voters first.
        """
        self.member.is_stopping = True
        self._stop_timeout_ms = timeout_ms
        if isinstance(self.role, LeaderRole | ResignedRole):
            self.transition(self.role.stop(timeout_ms))
        else:
            self.member.put(Stopped())

    def _snapshot_ended(self) -> None:
        self.member.is_loading = False
        self.transition(self.role.on_snapshot_ended())

    # Transitions

    def transition(self, transition: Transition | None) -> None:
        """Set the election state of the transition, then change the role. The new role may request further transitions.

        The role that ends answers its waiting requests after the election state is set, so that the responses have the
        new epoch.
        """
        while transition is not None:
            before = self.role
            kind = TRANSITIONS.get((type(before), type(transition)))
            assert kind is not None, f"{transition} out of the role {type(before).__name__}"
            leader_deadline_ms = before.leader_deadline_ms()
            self._elect(transition)
            self.member.peers.forget()
            self.role = self._made(transition, leader_deadline_ms)
            before.leave()
            self._announce()
            transition = self.role.enter()

    def _elect(self, transition: Transition) -> None:
        member = self.member
        election = member.election
        if not isinstance(transition, BecomeProspective):
            member.leader_endpoints = {}
        match transition:
            case EnterEpoch(epoch):
                assert epoch > election.epoch
                election = ElectionState(epoch)
            case GrantVote(candidate):
                election = ElectionState(election.epoch, NO_NODE, *member.voted_key(candidate))
            case BecomeCandidate():
                # A candidate votes for itself; the vote is durable before the node asks others for theirs.
                election = ElectionState(election.epoch + 1, NO_NODE, *member.voted_key(member.key))
            case BecomeLeader():
                election = election._replace(leader_id=member.node_id)
                member.leader_endpoints = member.identity.endpoints
                member.failed_elections = 0
            case BecomeFollower(epoch, leader_id, endpoints):
                before = election if epoch == election.epoch else ElectionState(epoch)
                assert before.leader_id in (NO_NODE, leader_id), "an epoch has one leader (election safety)"
                election = before._replace(leader_id=leader_id)
                member.leader_endpoints = endpoints
                member.failed_elections = 0
        member.election = election
        member.outbox.save(election)

    def _made(self, transition: Transition, leader_deadline_ms: int | None) -> RaftRole:
        member = self.member
        match transition:
            case EnterEpoch():
                return UnattachedRole(member, leader_deadline_ms)
            case GrantVote() | BecomeUnattached():
                return UnattachedRole(member)
            case BecomeProspective():
                return ProspectiveRole(member)
            case BecomeCandidate():
                return CandidateRole(member)
            case BecomeLeader(granted):
                return LeaderRole(member, granted)
            case BecomeFollower():
                return FollowerRole(member)
            case BecomeResigned(preferred):
                return ResignedRole(member, preferred, self._stop_timeout_ms)

    def _announce(self) -> None:
        """Tell the other parts of the node by a `Follow` effect which leader to follow, if it has changed."""
        if self.is_leader:
            self._announced = None
            return
        told = (self.member.epoch, self.member.leader_id)
        if told != self._announced:
            self._announced = told
            self.member.put(Follow(*told))
