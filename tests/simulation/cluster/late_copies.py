"""Requests that arrive again, late: who lost a connection sends anew on another, and the old one delivers after all.

Inside one connection TCP repeats nothing, so every copy comes on a connection of its own; nobody reads its answer.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_partition import AlterPartitionRequest
from moldau.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from moldau.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.vote import VoteRequest
from moldau.protocol.schema import spec_of
from moldau.testing.simulation.network import FIRST_EPHEMERAL_PORT
from tests.support.node import CONTROLLER_PORT

if TYPE_CHECKING:
    from moldau.testing.simulation.receiving_end import ReceivingEnd
    from tests.support.cluster import Cluster, ClusterNode

KEPT: Final = 300
AT_ONCE_MAX: Final = 8
PAUSE_S: Final = 3.0
COPIED: Final = frozenset(
    spec_of(each).key
    for each in (
        AllocateProducerIdsRequest,
        AlterPartitionRequest,
        AssignReplicasToDirsRequest,
        BeginQuorumEpochRequest,
        BrokerHeartbeatRequest,
        EndQuorumEpochRequest,
        FetchRequest,
        VoteRequest,
    )
)
"""What one node asks of another. A registration is not among them: a late one of a process that is gone would take the
place of the one that lives, in Apache Kafka too."""


HEARTBEAT: Final = spec_of(BrokerHeartbeatRequest).key
OF_THE_DEAD_PAUSE_S: Final = 0.4
"""Between two late heartbeats of a broker that is gone: shorter than any session."""
BEATS_KEPT: Final = 200


class Sent(NamedTuple):
    """`source`, `target`: names of hosts."""

    source: str
    target: str
    port: int
    frame: bytes
    life: object
    """Of the process that sent it."""


class LateCopies:
    """Listens on the cables of a cluster from its beginning; `work` sends what it has heard."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.count = 0
        self._cluster = cluster
        self._random = random
        self._unfinished: dict[int, bytearray] = {}
        """By connection: the beginning of a frame."""
        self._sent: deque[Sent] = deque(maxlen=KEPT)
        self._beats: deque[Sent] = deque(maxlen=BEATS_KEPT)
        cluster.world.network.on_sent = self._heard

    def _heard(self, end: ReceivingEnd, data: bytes) -> None:
        """`data` is on its way to this end of a connection."""
        port = end.port
        if port >= FIRST_EPHEMERAL_PORT:
            return  # an answer
        unfinished = self._unfinished.setdefault(end.number, bytearray())
        unfinished += data
        while len(unfinished) >= 6:
            size, key = struct.unpack_from(">ih", unfinished)
            if len(unfinished) < 4 + size:
                return
            if key in COPIED:
                frame = bytes(unfinished[: 4 + size])
                sent = Sent(end.peer.node.name, end.node.name, port, frame, end.peer.life)
                self._sent.append(sent)
                if key == HEARTBEAT:
                    self._beats.append(sent)
            del unfinished[: 4 + size]

    async def work(self) -> None:
        while True:
            await asyncio.sleep(self._random.random() * PAUSE_S)
            for sent in self._random.sample(self._sent, min(len(self._sent), self._random.randint(1, AT_ONCE_MAX))):
                await self._send_again(sent)

    async def work_for_the_dead(self) -> None:
        """Heartbeats of earlier processes of a host that is down: they are refused, and keep nothing alive."""
        while True:
            await asyncio.sleep(OF_THE_DEAD_PAUSE_S)
            for node in self._cluster.nodes.values():
                former = self._former_beats(node) if not node.is_up else []
                if former:
                    await self._deliver(self._random.choice(former), self._cluster.leader_of_quorum())

    def _former_beats(self, node: ClusterNode) -> list[Sent]:
        """Of processes before the last one that beat: its own heartbeats would keep it alive."""
        beats = [each for each in self._beats if each.source == node.host.name]
        return [each for each in beats if each.life is not beats[-1].life]

    async def _send_again(self, sent: Sent) -> None:
        """To the host that it was sent to, or, of what is for the leader of the quorum, to whoever that is now. Not of
        a host that is down: a beat of its own would keep it alive."""
        hosts = {node.host.name: node for node in self._cluster.nodes.values()}
        leader = self._cluster.leader_of_quorum()
        target = hosts.get(sent.target)
        if sent.port == CONTROLLER_PORT and leader is not None and self._random.random() < 0.5:
            target = leader
        source = hosts.get(sent.source)
        if source is not None and source.is_up:
            await self._deliver(sent, target)

    async def _deliver(self, sent: Sent, target: ClusterNode | None) -> None:
        if target is None or not target.is_up:
            return
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                _, writer = await asyncio.open_connection(target.host.name, sent.port)
            writer.write(sent.frame)
            self.count += 1
            asyncio.get_running_loop().call_later(1, writer.close)
