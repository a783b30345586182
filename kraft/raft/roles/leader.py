"""Leader: it writes the log. A record is committed when a majority has it on disk together with a record of the
leader's own term.

Check quorum: a leader that has received no request from a majority for 1.5 fetch timeouts resigns, because another
leader may have been elected without its knowledge (KIP-595).
"""

from __future__ import annotations

from moldau.kraft.quorum.control_records import leader_change, quorum_records
from moldau.kraft.quorum.voter_set import ReplicaKey, VoterNode
from moldau.kraft.raft.describe import describe_leader
from moldau.kraft.raft.events import Append, Lead, RequestReceived, Respond, ResponseReceived
from moldau.kraft.raft.fetch_service import FetchService, divergence_of_replica
from moldau.kraft.raft.leader_discovery import leader_report_of, transition_to_leader
from moldau.kraft.raft.log_view import OffsetAndEpoch
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.outgoing_requests import begin_request
from moldau.kraft.raft.replica_states import ReplicaStates, replica_id_of
from moldau.kraft.raft.roles.role import RaftRole
from moldau.kraft.raft.transitions import BecomeResigned, Transition
from moldau.kraft.raft.voters.version_upgrade import VersionUpgrade
from moldau.kraft.raft.voters.voter_changes import VoterChanges
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest


class LeaderRole(RaftRole):
    """The role of the leader for one term: it writes the first batch, answers fetches, commits records and changes the
    voters."""

    __slots__ = ("_changes", "_epoch_start_offset", "_granted", "_heard_ms", "_replicas", "_service", "_upgrade")

    def __init__(self, member: QuorumMember, granted: tuple[int, ...]) -> None:
        super().__init__(member)
        self._granted = granted
        self._epoch_start_offset = member.log.end_offset
        """The end offset of the log at the election.

        The leader commits nothing until a record from this offset on is durable on a majority.
        """
        self._replicas = ReplicaStates(member)
        self._service = FetchService(member)
        self._upgrade = VersionUpgrade(member)
        self._changes = VoterChanges(member, self._replicas, self._upgrade)
        self._heard_ms: dict[int, int] = {}
        """The time (ms) at which each voter last fetched, or acknowledged a BeginQuorumEpoch."""

    def enter(self) -> Transition | None:
        """Write the first batch of the term, which names the leader. Records of earlier terms are committed together
        with it.

        `format --standalone` leaves the voters in the bootstrap checkpoint. If they are not in the log yet, the batch
        has the voters, too.
        """
        member = self.member
        records = [leader_change(member.node_id, member.voters, self._granted, member.wall_ms)]
        if not member.history.is_in_log:
            records += quorum_records(member.history.kraft_version, member.voters, member.wall_ms)
        member.put(Append(member.epoch, records))
        member.put(Lead(member.epoch))
        self._begin_epoch()
        return None

    def leave(self) -> None:
        """End the term. The election state is already that of the next role, so the responses have the new epoch."""
        self._service.end_term(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._changes.end_term()

    # Time

    def tick(self) -> Transition | None:
        deadline_ms = self._replicas.majority_deadline_ms()
        if deadline_ms is not None and self.member.now_ms >= deadline_ms:
            return self.resign()
        self._begin_epoch()
        self._service.answer_waiting_fetches()
        self._changes.tick()
        return None

    def deadline_ms(self) -> int | None:
        peers = self.member.peers
        deadlines = [self._replicas.majority_deadline_ms(), self._service.deadline_ms(), self._changes.deadline_ms()]
        for voter in self._reachable():
            if not peers.is_waiting(voter.id):
                deadlines.append(max(self._begin_ms(voter), peers.ready_ms(voter.id)))
        return min((each for each in deadlines if each is not None), default=None)

    def _begin_epoch(self) -> None:
        """Send BeginQuorumEpoch to each voter from which this leader has received nothing for half a fetch timeout."""
        member = self.member
        for voter in self._reachable():
            to = member.destination(voter)
            is_silent = member.now_ms >= self._begin_ms(voter)
            if to is not None and is_silent and member.peers.can_send(voter.id, member.now_ms):
                member.peers.send(to, begin_request(member, voter))

    def _begin_ms(self, voter: VoterNode) -> int:
        heard_ms = self._heard_ms.get(voter.id)
        return 0 if heard_ms is None else heard_ms + self.member.settings.fetch_timeout_ms // 2

    def _reachable(self) -> list[VoterNode]:
        return [voter for voter in self.member.other_voters() if voter.endpoints]

    # The log

    def on_log_appended(self) -> Transition | None:
        self._changes.on_log_appended()
        self._service.answer_waiting_fetches()
        return None

    def on_log_flushed(self) -> Transition | None:
        return self._commit()

    def _commit(self) -> Transition | None:
        """Advance the high watermark to the offset before which all records are durable on a majority, if a record of
        this term is among them.

        Records of an earlier term that a majority has can still be overwritten by another leader. They are committed
        only together with a later record of this term (Raft, section 5.4.2 and figure 8).

        A leader that removed itself leads until its removal is committed, then resigns (Raft, section 6; KIP-853).
        """
        high_watermark = self._replicas.durable_on_majority()
        if high_watermark <= max(self._service.high_watermark, self._epoch_start_offset):
            return None
        self._service.high_watermark = high_watermark
        member = self.member
        member.commit(high_watermark)
        self._changes.on_commit(high_watermark)
        self._service.answer_waiting_fetches()
        is_removed = not member.is_voter and member.history.last_offset < high_watermark
        return self.resign() if is_removed else None

    # The end of the term

    def resign(self) -> Transition | None:
        return BecomeResigned(self._replicas.successors())

    def stop(self, timeout_ms: int) -> Transition | None:
        return self.resign()

    # kraft.version

    def refusal_of_version(self, version: int) -> str | None:
        return self._upgrade.refusal(version)

    def raise_version(self, version: int) -> None:
        self._upgrade.write(version)

    # Responses

    def on_response(self, event: ResponseReceived) -> Transition | None:
        member = self.member
        if isinstance(event.request, ApiVersionsRequest):
            self._changes.on_response(event)
            return None
        report = leader_report_of(event.response)
        transition = transition_to_leader(member, report) if report is not None else None
        if transition is not None:
            return transition
        if report is not None and report.is_success:
            self._heard_ms[event.to.node_id] = member.now_ms
        elif event.response is not None:
            member.peers.back_off(event.to.node_id, member.now_ms)
        return self.tick()

    # Requests

    def on_request(self, event: RequestReceived) -> Transition | None:
        match event.request:
            case FetchRequest():
                return self._fetch(event, event.request)
            case FetchSnapshotRequest():
                self._fetch_snapshot(event, event.request)
            case DescribeQuorumRequest():
                self.member.put(Respond(event.token, describe_leader(self.member, self._replicas, self._service)))
            case AddRaftVoterRequest():
                self._changes.add(event, event.request, self._service.high_watermark)
            case RemoveRaftVoterRequest():
                self._changes.remove(event, event.request, self._service.high_watermark)
            case UpdateRaftVoterRequest():
                self._changes.update(event, event.request, self._service.high_watermark)
        return None

    def _fetch(self, event: RequestReceived, request: FetchRequest) -> Transition | None:
        (partition,) = request.topics[0].partitions
        key = ReplicaKey(replica_id_of(request), partition.replica_directory_id)
        self._heard_from(key)
        place = divergence_of_replica(self.member.log, partition.fetch_offset, partition.last_fetched_epoch)
        if isinstance(place, SnapshotId):
            self._service.respond_snapshot(event, place)
        elif isinstance(place, OffsetAndEpoch):
            self._service.respond_diverging(event, place)
        else:
            if key.id >= 0:
                self._replicas.note_fetch(key, partition.fetch_offset)
            transition = self._commit()
            if transition is not None:
                self.member.put(self._service.empty_response(event))
                return transition
            self._service.fetch(event, key, partition)
        return None

    def _fetch_snapshot(self, event: RequestReceived, request: FetchSnapshotRequest) -> None:
        (partition,) = request.topics[0].partitions
        self._heard_from(ReplicaKey(request.replica_id, partition.replica_directory_id))
        self._service.fetch_snapshot(event, partition)

    def _heard_from(self, key: ReplicaKey) -> None:
        self._replicas.note_request(key)
        if self.member.voters.has(key):
            self._heard_ms[key.id] = self.member.now_ms
