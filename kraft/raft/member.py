"""The state that a node of the quorum keeps in every role: its identity, log, voters and election state, outgoing
messages, and the requests to its peers that have no response yet."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.quorum.voter_set import Address, ReplicaKey, VoterNode, VoterSet
from moldau.kraft.raft.election_state import NO_NODE, ElectionState
from moldau.kraft.raft.events import Commit, Destination, Effect, OutgoingRequest, ResponseReceived, Send
from moldau.kraft.raft.log_view import LogView
from moldau.kraft.raft.outbox import Outbox
from moldau.kraft.raft.settings import QuorumIdentity, RaftSettings
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.schema import ZERO_UUID

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = (1).to_bytes(16, "big")

ELECTION_BACKOFF_MS: Final = 100


class DurableEnd(NamedTuple):
    """The end of a log that is completely durable.

    A replica fetches from this end: the fetch offset tells the leader that every record before it is durable on this
    replica (KIP-595).
    """

    offset: int
    epoch: int
    """The epoch of the last record."""


class QuorumMember:
    """The state of a node of the quorum that every role shares. Only a transition changes the election."""

    def __init__(
        self,
        identity: QuorumIdentity,
        settings: RaftSettings,
        log: LogView,
        history: QuorumHistory,
        election: ElectionState,
        random: random.Random,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.log = log
        self.history = history
        self.random = random
        self.election = election
        self.leader_endpoints: Mapping[str, Address] = {}
        """The endpoints of the leader that `election` names; empty if this node does not follow it."""
        self.outbox = Outbox(election)
        self.peers = PeerRequests(self.outbox, settings.request_timeout_ms, settings.retry_backoff_ms)
        self.flushed_end_offset = log.end_offset
        """The offset before which every record of this node's log is durable."""
        self.high_watermark = -1
        """The high watermark that this process has learnt; -1 if it has not learnt one yet."""
        self.failed_elections = 0
        """The number of elections that this node has lost since it last had a leader."""
        self.is_stopping = False
        self.is_loading = False
        """Whether a snapshot is replacing the log."""
        self.now_ms = 0
        self.wall_ms = 0

    # Identity and voters

    @property
    def node_id(self) -> int:
        return self.identity.node_id

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.identity.node_id, self.identity.directory_id)

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.voters.has(self.key)

    @property
    def may_be_candidate(self) -> bool:
        """Whether this node may hold an election: it is a voter, or its removal is in the log but not known to be
        committed. Without such a node the other voters might have no majority to commit the removal.

        DIVERGES: in Apache Kafka a voter stops being one when it reads the record of its removal, committed or not.
        """
        history = self.history
        is_removal_open = history.last_offset >= self.high_watermark and history.voters_before.has(self.key)
        return self.is_voter or is_removal_open

    @property
    def has_leader(self) -> bool:
        """Whether this node follows a leader. quorum-state may also name a leader that has resigned or cannot be
        reached.
        """
        return self.election.leader_id != NO_NODE and bool(self.leader_endpoints)

    @property
    def leader_id(self) -> int:
        return self.election.leader_id if self.has_leader else NO_NODE

    def other_voters(self) -> list[VoterNode]:
        return self.voters.others(self.node_id)

    def endpoints_of(self, node_id: int) -> Mapping[str, Address]:
        """The addresses of a node by listener name, from the voter set; empty if the node is not a voter."""
        voter = self.voters.by_id.get(node_id)
        return dict(voter.endpoints) if voter is not None else {}

    def destination(self, voter: VoterNode) -> Destination | None:
        address = voter.address(self.identity.listener)
        return None if address is None else Destination(voter.id, *address)

    def voted_key(self, key: ReplicaKey) -> ReplicaKey:
        """The key under which quorum-state stores a vote for the replica `key`.

        With kraft.version 0 the file stores a candidate by its id alone.
        """
        return key if self.history.kraft_version > 0 else key._replace(directory_id=ZERO_UUID)

    # Time

    def election_deadline_ms(self) -> int:
        """A random time (ms) between one and two election timeouts from now, so that split votes are rare (Raft,
        section 5.2)."""
        timeout_ms = self.settings.election_timeout_ms
        return self.now_ms + timeout_ms + self.random.randrange(timeout_ms)

    def fetch_deadline_ms(self) -> int:
        """The time (ms) at which a follower without a response of its leader becomes prospective.

        DIVERGES: Apache Kafka's followers all wait for just the fetch timeout; here each waits up to a tenth longer.
        Otherwise several followers that lost their leader at the same time would become candidates together and split
        the votes.
        """
        timeout_ms = self.settings.fetch_timeout_ms
        return self.now_ms + timeout_ms + self.random.randrange(max(1, timeout_ms // 10))

    def election_backoff_ms(self) -> int:
        """A random time (ms) for which a candidate waits after it has lost an election. Its maximum doubles with each
        further loss."""
        self.failed_elections += 1
        pause_ms_max = min(self.settings.election_backoff_max_ms, ELECTION_BACKOFF_MS << self.failed_elections)
        return self.random.randrange(max(1, pause_ms_max))

    # Effects

    def put(self, effect: Effect) -> None:
        """Add an effect to the outbox."""
        self.outbox.put(effect)

    def commit(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.put(Commit(high_watermark))

    def durable_end(self) -> DurableEnd | None:
        """The end of the log; None while a part of the log is not durable.

        A fetch must not start at an end that a crash could undo.
        """
        log = self.log
        is_behind = self.is_loading or self.flushed_end_offset < log.end_offset
        return None if is_behind else DurableEnd(log.end_offset, log.last_epoch)

    def is_log_as_long(self, last_epoch: int, end_offset: int) -> bool:
        """Whether a candidate's log is at least as long as this node's: its last epoch is later, or equal with an end
        offset that is not smaller.

        A candidate with a shorter log may lack committed records (Raft, section 5.4.1: election restriction).
        """
        return (last_epoch, end_offset) >= (self.log.last_epoch, self.log.end_offset)


class PeerRequests:
    """The requests to other nodes that have no response yet, by node id. A bootstrap server has a negative id."""

    def __init__(self, outbox: Outbox, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._outbox = outbox
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._in_flight: dict[int, OutgoingRequest] = {}
        self._ready_ms: dict[int, int] = {}

    def is_waiting(self, node_id: int) -> bool:
        """Whether a request to this peer has no response yet."""
        return node_id in self._in_flight

    def ready_ms(self, node_id: int) -> int:
        """The time (ms) from which on a request may be sent to this peer; 0 if one may be sent at once."""
        return self._ready_ms.get(node_id, 0)

    def can_send(self, node_id: int, now_ms: int) -> bool:
        return node_id not in self._in_flight and self.ready_ms(node_id) <= now_ms

    def send(self, to: Destination, request: OutgoingRequest) -> None:
        self._in_flight[to.node_id] = request
        self._outbox.put(Send(to, request, self._request_timeout_ms))

    def note_response(self, event: ResponseReceived, now_ms: int) -> bool:
        """Note that a request got a response or failed.

        Returns False if an earlier role sent the request, so that the response is to be ignored.
        """
        if self._in_flight.get(event.to.node_id) is not event.request:
            return False
        del self._in_flight[event.to.node_id]
        if event.response is None:
            self.back_off(event.to.node_id, now_ms)
        else:
            self._ready_ms.pop(event.to.node_id, None)
        return True

    def back_off(self, node_id: int, now_ms: int) -> None:
        """Delay the next request to the peer by `retry_backoff_ms`, because the peer gave no usable response."""
        self._ready_ms[node_id] = now_ms + self._retry_backoff_ms

    def forget(self) -> None:
        """Forget the requests of the earlier role, so that their responses are ignored."""
        self._in_flight.clear()
        self._ready_ms.clear()
