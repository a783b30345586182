"""What must hold at every moment of a simulated quorum, each with the number of its invariant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.kraft.quorum.voter_set import ReplicaKey, VoterSet
from moldau.kraft.raft.election_state import ElectionState
from moldau.kraft.raft.events import IncomingResponse, OutgoingRequest
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.vote import VoteRequest, VoteResponse
from tests.simulation.raft.replicated_log import Entry, ReplicatedLog, Snapshot

if TYPE_CHECKING:
    from tests.simulation.raft.host import Host
    from tests.simulation.raft.world import World


class Invariants:
    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """By epoch."""
        self.committed_entries: list[Entry] = []
        self._written: dict[tuple[int, int], tuple[object, int]] = {}
        """By offset and epoch: the value, and the epoch of the record before it."""
        self._epochs: dict[int, int] = {}
        self.voters: set[ReplicaKey] = set()
        """Only a voter of the log may become one: with kraft.version 1 no other node may."""
        self.is_leader_complete = True
        """False for a scenario in which a disk was lost: then nothing is owed to what only it held."""

    def leads(self, host: Host, epoch: int) -> None:
        """I1: one leader in an epoch. I2: it holds everything that was committed."""
        assert self.leaders.setdefault(epoch, host.node_id) == host.node_id, f"two leaders in epoch {epoch}"
        if not self.is_leader_complete:
            return
        log = host.log
        assert log.end_offset >= len(self.committed_entries), f"leader {host.node_id} lacks what was committed"
        for offset in range(log.start_offset, len(self.committed_entries)):
            assert log.at(offset) == self.committed_entries[offset], f"leader {host.node_id} differs at {offset}"

    def saved(self, host: Host, election: ElectionState) -> None:
        """I1: the epoch on disk never goes back, and a vote in it is never another one."""
        before = host.election
        assert election.epoch >= before.epoch, "the epoch in quorum-state goes back"
        if election.epoch == before.epoch and before.voted_id >= 0:
            assert election.voted_id == before.voted_id, f"node {host.node_id} votes twice in epoch {election.epoch}"

    def asks(self, host: Host, request: OutgoingRequest) -> None:
        """I1: it asks in no epoch that a crash could take back; a candidate's own vote is durable too."""
        if isinstance(request, VoteRequest):
            (vote,) = request.topics[0].partitions
            is_own = host.election.voted_id == host.node_id and host.election.epoch == vote.replica_epoch
            key = ReplicaKey(host.node_id, host.directory_id)
            assert not self.voters or key in self.voters, f"node {host.node_id} stands, and is no voter: {key}"
            assert vote.pre_vote or is_own, f"node {host.node_id} runs on a vote that is not durable"
            assert vote.replica_epoch <= host.election.epoch, f"node {host.node_id} asks in an epoch of its own"

    def answers(self, host: Host, request: OutgoingRequest, response: IncomingResponse) -> None:
        """I1: it answers in no epoch, and grants no vote, that a crash could take back."""
        if isinstance(response, VoteResponse) and isinstance(request, VoteRequest) and response.topics:
            (vote,), (answer,) = request.topics[0].partitions, response.topics[0].partitions
            assert answer.leader_epoch <= host.election.epoch, f"node {host.node_id} answers in an epoch of its own"
            if answer.vote_granted and not vote.pre_vote and host.election.epoch == vote.replica_epoch:
                voted_id = host.election.voted_id
                assert voted_id == vote.replica_id, f"node {host.node_id} grants a vote that is not durable"

        if isinstance(response, FetchResponse) and isinstance(request, FetchRequest) and response.responses:
            (asked,), (data,) = request.topics[0].partitions, response.responses[0].partitions
            is_refused = response.error_code != ErrorCode.NONE or data.error_code != ErrorCode.NONE
            assert is_refused or asked.current_leader_epoch == host.raft.epoch, (
                f"node {host.node_id} answers a fetch of epoch {asked.current_leader_epoch} in {host.raft.epoch}"
            )

    def stepped(self, host: Host) -> None:
        """I7: a node vouches for what its disk has."""
        epoch = host.raft.epoch
        known = (host.incarnation, epoch)
        last = self._epochs.get(host.node_id, 0)
        assert known[0] << 32 | epoch >= last, "the epoch of a running node goes back"
        self._epochs[host.node_id] = known[0] << 32 | epoch
        assert host.election.epoch <= epoch, "quorum-state is ahead of the node"
        assert host.log.last_epoch <= epoch, (
            f"node {host.node_id} is in epoch {epoch}, its log in {host.log.last_epoch}"
        )
        member = host.raft.member
        assert member.flushed_end_offset <= host.log.durable_end_offset, (
            f"node {host.node_id} counts {member.flushed_end_offset} as durable: {host.log.durable_end_offset}"
        )
        is_removed = not member.is_voter and member.history.last_offset < member.high_watermark
        assert not (host.raft.is_leader and is_removed), f"node {host.node_id} leads, and its removal is committed"

    def described(self, host: Host) -> None:
        """A node takes for the quorum what its own log says of it, also when that was cut or replaced."""
        said = host.described_by_log()
        assert host.raft.quorum == said, f"node {host.node_id} knows {host.raft.quorum}, and its log says {said}"

    def appended(self, host: Host, base_offset: int, entries: Sequence[Entry]) -> None:
        """I4: records of one offset and epoch are the same, and so is everything before them."""
        before = host.log.last_epoch
        if host.is_leading:
            self._changes_voters(host, entries)
        for entry in entries:
            if entry.description is not None and entry.description.voters is not None:
                self.voters |= {voter.key for voter in entry.description.voters.by_id.values()}
        for offset, entry in enumerate(entries, base_offset):
            written = self._written.setdefault((offset, entry.epoch), (entry.value, before))
            assert written == (entry.value, before), f"node {host.node_id} has another record at {offset}"
            assert entry.epoch >= before, "epochs in a log go up"
            before = entry.epoch

    def _changes_voters(self, host: Host, entries: Sequence[Entry]) -> None:
        """The last change is committed, and something of this term: else two majorities may have no voter in common."""
        before, history = host.raft.quorum, host.raft.member.history
        for entry in entries:
            said = entry.description
            if said is not None and said.voters is not None and said.voters.by_id.keys() != before.voters.by_id.keys():  # type: ignore[union-attr]
                assert history.last_offset < host.high_watermark, "a change of the voters before the last is committed"
                newest = host.log.at(host.high_watermark - 1)
                assert newest.epoch == host.raft.epoch, (
                    "a change of the voters before anything of this term is committed"
                )

    def committed(self, host: Host, high_watermark: int) -> None:
        """I4, I8: what was committed anywhere is everywhere the same, for ever."""
        log = host.log
        if host.is_leading:
            assert log.at(high_watermark - 1).epoch == host.raft.epoch, "an earlier epoch is committed by counting"
        assert high_watermark <= log.end_offset, f"node {host.node_id} commits what it has not got"
        for offset in range(max(log.start_offset, len(self.committed_entries)), high_watermark):
            self.committed_entries.append(log.at(offset))
        assert len(self.committed_entries) >= high_watermark
        for offset in range(max(log.start_offset, high_watermark - 50), high_watermark):
            assert log.at(offset) == self.committed_entries[offset], (
                f"node {host.node_id} commits another record at {offset}"
            )
        if host.is_leading and high_watermark == len(self.committed_entries):
            self._is_on_majority(host, high_watermark)

    def loaded(self, host: Host, snapshot: Snapshot) -> None:
        assert list(snapshot.entries) == self.committed_entries[: len(snapshot.entries)], "a snapshot of another log"

    def _is_on_majority(self, host: Host, high_watermark: int) -> None:
        """I7: what was committed survives the crash of a minority. What a disk that is gone had fetched may still be on
        its way to the leader."""
        voters = host.raft.quorum.voters
        assert voters is not None
        holders = [
            voter_id
            for voter_id in voters.ids
            for log in self._logs_of(host.world.hosts[voter_id], voters)
            if log.durable_end_offset >= high_watermark
            and (high_watermark <= log.start_offset or log.at(high_watermark - 1) == self.committed_entries[-1])
        ]
        assert len(holders) >= voters.majority, f"{high_watermark} is committed on {holders} of {voters.ids}"

    @staticmethod
    def _logs_of(host: Host, voters: VoterSet) -> list[ReplicatedLog]:
        """Of the disk that votes: one at the most."""
        disks = {**host.former_disks, host.directory_id: host.log}
        return [log for directory_id, log in disks.items() if voters.has(ReplicaKey(host.node_id, directory_id))][-1:]

    def promised(self, request: object, response: IncomingResponse) -> None:
        """An administrator is told of a change of the voters once it is committed: no next leader takes it back."""
        if not isinstance(request, AddRaftVoterRequest | RemoveRaftVoterRequest):
            return
        if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
            return
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        is_added = isinstance(request, AddRaftVoterRequest)
        said = [entry.description.voters for entry in self.committed_entries if entry.description is not None]
        is_done = any(voters is not None and voters.has(key) == is_added for voters in said)
        assert is_done, f"{type(request).__name__} of {key} was answered, and is not committed"

    def at_rest(self, world: World) -> None:
        """I4: after everything healed all logs are the same."""
        leader = world.leader
        assert leader is not None, world.states()
        for host in world.hosts.values():
            self.described(host)
            start_offset = max(host.log.start_offset, leader.log.start_offset)
            for offset in range(start_offset, min(host.high_watermark, leader.log.end_offset)):
                assert host.log.at(offset) == leader.log.at(offset)
