"""acks=1: when a leader says so, its log has the record at the offset that it tells, durable if its topic asks for
that; a broker that does not lead says nothing of the kind.

Looked at when the broker hands the answer over, which is before anybody can know of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import ProduceResponse
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import parse_header
from moldau.replication.partition import Partition
from tests.simulation.invariants.observation import Violation
from tests.support.history import Key
from tests.support.node import Client

if TYPE_CHECKING:
    from moldau.testing.simulation.connection import Connection
    from tests.support.cluster import Cluster, ClusterNode

VERSION: Final = 9
HEAD_SIZE: Final = 61


class Expected(NamedTuple):
    """A batch that was sent, and what its receiver was then: leader epoch and life."""

    key: Key
    data: bytes
    leader_epoch: int
    life: object
    partition: Partition | None


class Place(NamedTuple):
    """Where a batch lies."""

    path: str
    offset: int
    position: int
    head: bytes


class LeaderAnswers:
    """Listens on the cables of a cluster from its beginning."""

    def __init__(self, cluster: Cluster, failed: Callable[[Exception], None], *, flushes: bool) -> None:
        """`flushes`: every topic that is written to is flushed before an acknowledgement."""
        self.count = 0
        self._cluster = cluster
        self._failed = failed
        self._flushes = flushes
        self._expected: dict[int, dict[int, Expected]] = {}
        """By connection and correlation id."""
        self._unfinished: dict[int, bytearray] = {}
        self._found: dict[tuple[int, str], Place] = {}
        cluster.world.network.on_written = self._written

    def expect(self, client: Client, key: Key, data: bytes) -> None:
        """The last request of this client has this batch."""
        end: Any = client.writer.transport
        node = self._node(end)
        partition = replica_on(node, key)
        leader_epoch = -1 if partition is None else partition.leader_epoch
        correlation_id = client._count
        self._expected.setdefault(end.number, {})[correlation_id] = Expected(
            key, data, leader_epoch, node.host.life, partition
        )

    def complain(self, what: str) -> None:
        """A client was told what no client should be told."""
        self._failed(Violation(what))

    def forget(self, client: Client) -> None:
        end: Any = client.writer.transport
        self._expected.pop(end.number, None)
        self._unfinished.pop(end.number, None)

    def _node(self, end: Connection) -> ClusterNode:
        return next(node for node in self._cluster.nodes.values() if node.host.name == end.peer.node.name)

    def _written(self, end: Connection, data: BytesLike) -> None:
        """`data` was handed over for this end of a connection."""
        expected = self._expected.get(end.number)
        if expected is None:
            return
        unfinished = self._unfinished.setdefault(end.number, bytearray())
        unfinished += data
        while len(unfinished) >= 8:
            size, correlation_id = struct.unpack_from(">ii", unfinished)
            if len(unfinished) < 4 + size:
                return
            frame = bytes(unfinished[4 : 4 + size])
            del unfinished[: 4 + size]
            sent = expected.pop(correlation_id, None)
            if sent is not None:
                self._check_answer(self._node(end), sent, frame)

    def _check_answer(self, node: ClusterNode, sent: Expected, frame: bytes) -> None:
        reply = decode(ProduceResponse, frame[5:], VERSION)
        answer = reply.responses[0].partition_responses[0]
        partition = sent.partition
        if answer.error_code != ErrorCode.NONE or partition is None or not node.is_up:
            return
        if partition.log.failure is None and replica_on(node, sent.key) is not partition:
            return  # moved away, or deleted
        if partition.leader_epoch != sent.leader_epoch or node.host.life is not sent.life:
            return  # what was appended in an epoch that is over may be gone
        self.count += 1
        try:
            self._check(node, partition, sent.data, answer.base_offset)
        except Violation as violation:
            self._failed(violation)

    def _check(self, node: ClusterNode, partition: Partition, data: bytes, base_offset: int) -> None:
        name = f"{partition.topic}-{partition.index} on node {node.id}"
        if partition.log.failure is not None:
            if self._flushes and not self._is_durable(node, partition, base_offset):
                raise Violation(f"{name} acknowledges offset {base_offset}, and its disk has failed before")
            return
        if not partition.is_leader:
            raise Violation(f"{name} does not lead, and acknowledges offset {base_offset}")
        count = parse_header(data, 0).last_offset_delta + 1
        if base_offset < 0:
            raise Violation(f"{name} acknowledges a record and tells offset {base_offset}")
        if base_offset + count <= partition.log.log_start_offset:
            return  # deleted since
        if node.host.disk.is_rotten(partition.log.directory) or node.host.disk.has_hole(partition.log.directory):
            return
        found = self._find(node, partition, base_offset)
        if found is None:
            raise Violation(f"{name} acknowledges offset {base_offset}; its log ends at {partition.log.end_offset}")
        begin = found.position + HEAD_SIZE  # the records alone: a leader may write its own time before them
        if bytes(node.host.disk.peek(found.path)[begin : begin + len(data) - HEAD_SIZE]) != data[HEAD_SIZE:]:
            raise Violation(f"{name} acknowledges offset {base_offset}, where {found.head.hex()} lies")
        if self._flushes and not self._is_durable(node, partition, base_offset):
            raise Violation(f"{name} acknowledges offset {base_offset}, which is not durable")

    def _is_durable(self, node: ClusterNode, partition: Partition, base_offset: int) -> bool:
        found = self._find(node, partition, base_offset)
        return found is not None and found.head == head_at(node.host.disk.peek_durable(found.path), found.position)

    def _find(self, node: ClusterNode, partition: Partition, base_offset: int) -> Place | None:
        """The batch that begins at an offset; looked for from where one was found before."""
        segments = [each for each in partition.log.segments if each.base_offset <= base_offset]
        if not segments:
            return None
        path = segments[-1].path(".log")
        stored = node.host.disk.peek(path)
        size = min(segments[-1].size, len(stored))
        before = self._found.get((node.id, path))
        position = 0
        if before is not None and before.offset <= base_offset and before.head == head_at(stored, before.position):
            position = before.position
        while position + HEAD_SIZE <= size:
            header = parse_header(stored, position)
            if header.base_offset >= base_offset:
                if header.base_offset > base_offset:
                    return None
                found = self._found[node.id, path] = Place(path, base_offset, position, head_at(stored, position))
                return found
            position += header.size
        return None


def replica_on(node: ClusterNode, key: Key) -> Partition | None:
    if not node.is_up or node.broker is None or not hasattr(node.broker, "replicas"):
        return None
    return node.broker.replicas.get(*key)


def head_at(stored: BytesLike, position: int) -> bytes:
    return bytes(stored[position : position + HEAD_SIZE])
