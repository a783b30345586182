"""A quorum of simulated hosts on virtual time: one heap of what happens next, one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterSet
from moldau.kraft.raft.events import Effect, IncomingResponse, QuorumRequest, RequestReceived, Send
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.simulation.raft.host import LISTENER, Host, directory_of, voter_of
from tests.simulation.raft.invariants import Invariants
from tests.simulation.raft.network import Network, told

TICKS_AT_ONCE_MAX = 30
"""Of one node in one virtual millisecond: more is a timer that never rests."""


class World:
    """Nodes 1 to `nodes`, of which `voters` vote; the others observe. `kraft_version` 0 has static voters."""

    def __init__(self, seed: int, nodes: int = 3, voters: int | None = None, kraft_version: int = 1) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.trace: list[str] | None = None
        self.invariants = Invariants()
        self.network = Network(self)
        self._queue: list[tuple[int, int, Host | None, int, Callable[[], None]]] = []
        self._count = 0
        self._ticks: dict[tuple[int, int], int] = {}
        self._admin: dict[object, IncomingResponse | None] = {}
        self._asked: dict[object, QuorumRequest] = {}
        named = VoterSet.from_voters(voter_of(node_id) for node_id in range(1, (voters or nodes) + 1))
        initial = QuorumDescription(1, named) if kraft_version == 1 else None
        self.invariants.voters = {voter.key for voter in named.by_id.values()} if initial is not None else set()
        self.bootstrap = tuple(named.ids)
        static = VoterSet.from_voters([]) if kraft_version == 1 else named
        self.hosts = {node_id: self._host(node_id, static, initial) for node_id in range(1, nodes + 1)}

    def _host(self, node_id: int, static: VoterSet, initial: QuorumDescription | None) -> Host:
        """An observer of a dynamic quorum was formatted without voters."""
        is_voter = initial is not None and initial.voters is not None and node_id in initial.voters.by_id
        return Host(self, node_id, static, initial if is_voter else None)

    # Time

    def unique(self) -> int:
        self._count += 1
        return self._count

    def at(self, at_ms: int, host: Host | None, action: Callable[[], None]) -> None:
        """Nothing, if the host was restarted in between."""
        heappush(self._queue, (at_ms, self.unique(), host, host.incarnation if host else 0, action))

    def after(self, delay_ms: int, host: Host | None, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, host, action)

    def run_until(self, is_done: Callable[[], bool], timeout_ms: int) -> None:
        """Raises AssertionError if it is not done in this time: liveness."""
        end_ms = self.now_ms + timeout_ms
        while not is_done():
            assert self._queue and self._queue[0][0] <= end_ms, f"not done in {timeout_ms} ms: {self.states()}"
            self._next()

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self._next()
        self.now_ms = end_ms

    def _next(self) -> None:
        self.now_ms, _, host, incarnation, action = heappop(self._queue)
        if host is None or host.incarnation == incarnation:
            action()

    def count_tick(self, host: Host) -> None:
        place = (host.node_id, self.now_ms)
        self._ticks[place] = self._ticks.get(place, 0) + 1
        assert self._ticks[place] < TICKS_AT_ONCE_MAX, f"node {host.node_id} ticks without end: {self.states()}"

    # Hosts

    def start(self, node_ids: Iterable[int] | None = None) -> None:
        for node_id in node_ids or self.hosts:
            if not self.hosts[node_id].is_up:
                self.hosts[node_id].start()

    def cut_off(self, *node_ids: int) -> None:
        """From everybody else, both ways."""
        for one in node_ids:
            for other in self.hosts:
                if other not in node_ids:
                    self.network.cuts |= {(one, other), (other, one)}

    def heal(self) -> None:
        network = self.network
        network.cuts.clear()
        network.loss = network.doubling = 0.0
        network.delay_ms = 2
        for host in self.hosts.values():
            host.disk_delay_ms = 3
        self.start()

    @property
    def leader(self) -> Host | None:
        """Of the latest epoch, among those who are up."""
        leading = [host for host in self.hosts.values() if host.is_up and host.raft.is_leader]
        return max(leading, key=lambda host: host.raft.epoch, default=None)

    def states(self) -> str:
        return "; ".join(
            f"{host.node_id} {type(host.raft.role).__name__.removesuffix('Role').lower()} epoch={host.raft.epoch} "
            f"leader={host.raft.leader_id} end={host.log.end_offset} hw={host.high_watermark}"
            if host.is_up
            else f"{host.node_id} down"
            for host in self.hosts.values()
        )

    def has_leader(self, *excluded: int) -> bool:
        leader = self.leader
        return leader is not None and leader.node_id not in excluded and leader.high_watermark > 0

    # Clients

    def write(self, every_ms: int) -> None:
        """Let the leader append a value from time to time."""
        leader = self.leader
        if leader is not None and leader.is_leading:
            leader.append(("value", self.unique()))
        self.after(self.random.randint(1, 2 * every_ms), None, lambda: self.write(every_ms))

    def await_progress(self, count: int, timeout_ms: int, hosts: Iterable[int] | None = None) -> None:
        """Until so many more records are committed, and these hosts (all of them) have all of that."""
        goal = len(self.invariants.committed_entries) + count
        wanted = [self.hosts[node_id] for node_id in hosts or self.hosts]
        self.run_until(lambda: all(host.is_up and host.high_watermark >= goal for host in wanted), timeout_ms)

    def ask(self, host: Host, request: QuorumRequest, version: int) -> object:
        """As an administrator: the answer is in `answer_to` of what is returned."""
        token = ("admin", self.unique())
        self._admin[token], self._asked[token] = None, request
        host.feed(RequestReceived(token, request, version, LISTENER))
        return token

    def admin_answered(self, token: object, response: IncomingResponse) -> None:
        assert self._admin[token] is None, "answered twice"
        self.invariants.promised(self._asked[token], response)
        self._admin[token] = response

    def answer_to(self, token: object) -> IncomingResponse | None:
        return self._admin[token]

    def add_voter(self, node_id: int) -> object | None:
        leader = self.leader
        if leader is None:
            return None
        listeners = [Listener(name=LISTENER, host=str(node_id), port=9093)]
        request = AddRaftVoterRequest(
            cluster_id="cluster",
            timeout_ms=3000,
            voter_id=node_id,
            voter_directory_id=directory_of(node_id),
            listeners=listeners,
        )
        return self.ask(leader, request, 1)

    def remove_voter(self, node_id: int) -> object | None:
        leader = self.leader
        if leader is None:
            return None
        request = RemoveRaftVoterRequest(
            cluster_id="cluster", voter_id=node_id, voter_directory_id=directory_of(node_id)
        )
        return self.ask(leader, request, 0)

    # Traces

    def told(self, host: Host, effect: Effect) -> None:
        if self.trace is not None:
            said = f"to {effect.to.host}: {told(effect.request)}" if isinstance(effect, Send) else repr(effect)
            self.trace.append(f"{self.now_ms:6d} {host.node_id} {said[:160]}")
