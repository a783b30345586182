"""A producer that follows the leaders of partitions, and measures how long each partition goes without an
acknowledgement.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bench.frames import batch_of, produce_error_position, produce_frame, request_frame
from moldau.protocol.compiler import decode
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.produce import ProduceResponse

PAUSE_S: Final = 0.01
"""The time between two records of one partition."""
LEADER_QUERY_INTERVAL_S: Final = 0.05
"""How often all nodes are asked for the leaders, while a partition gets no acknowledgement or a node refuses."""
SILENT_S: Final = 0.15
PATIENCE_S: Final = 0.25
"""The timeout of a connection, and of a request for the leaders."""
METADATA_VERSION: Final = 9
PRODUCE_VERSION: Final = 11
"""A version in which a refusal names the new leader (KIP-951), to which current clients turn at once."""
LOST: Final = (OSError, TimeoutError, asyncio.IncompleteReadError)


class PartitionLeader(NamedTuple):
    """The leader of a partition with its leader epoch. The leader with the highest epoch is the current one."""

    epoch: int
    node_id: int


NO_LEADER: Final = PartitionLeader(-1, -1)


class Connection:
    """A connection to one node, with requests in flight whose replies come in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: list[asyncio.Future[bytes]] = []
        self.is_lost = False
        self._task = asyncio.ensure_future(self._read())

    async def exchange(self, frame: bytes, patience_s: float | None = None) -> bytes:
        if self.is_lost:
            raise ConnectionError("lost")
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        self._writer.write(frame)
        return await asyncio.wait_for(reply, patience_s)

    def abort(self) -> None:
        self.is_lost = True
        self._writer.transport.abort()
        self._task.cancel()
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(ConnectionError("given up"))

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(4)
                body = await self._reader.readexactly(struct.unpack(">i", head)[0])
                reply = self._waiting.pop(0)
                if not reply.done():
                    reply.set_result(head + body)
        except LOST as error:
            self.is_lost = True
            for reply in self._waiting:
                if not reply.done():
                    reply.set_exception(ConnectionError(str(error)))


class FailoverClient(threading.Thread):
    """Produces to some partitions, one record after the other. A `with` block starts and ends it."""

    def __init__(self, ports: Mapping[int, int], topic: str, partitions: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.latest = dict.fromkeys(partitions, 0.0)
        """The time of the last acknowledgement, by partition."""
        self.longest = dict.fromkeys(partitions, 0.0)
        """The longest time between two acknowledgements since `forget_times`, by partition."""
        self._ports = ports
        self._topic = topic
        self._leaders: dict[int, PartitionLeader] = dict.fromkeys(partitions, NO_LEADER)
        self._connections: dict[int, Connection] = {}
        self._asked: dict[int, Connection] = {}
        """Connections for requests for the leaders, which must not wait behind a record."""
        self._silent: dict[int, None] = {}
        """The nodes that did not answer the last request for the leaders."""
        self._refused_at = 0.0
        self._is_ending = False

    def __enter__(self) -> FailoverClient:
        self.start()
        self.await_all(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending = True
        self.join(10)

    def await_all(self, since: float, patience_s: float = 60.0) -> None:
        """Wait until every partition has acknowledged a record that was sent after `since`."""
        deadline = time.monotonic() + patience_s
        while not all(at > since for at in self.latest.values()):
            if time.monotonic() > deadline:
                silent = [partition for partition, at in self.latest.items() if at <= since]
                raise TimeoutError(
                    f"partitions {silent[:5]} of {len(silent)} acknowledge nothing for {patience_s:.0f} s"
                )
            time.sleep(0.005)

    def forget_times(self) -> None:
        for partition in self.longest:
            self.longest[partition] = 0.0

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        tasks = [asyncio.ensure_future(self._write(partition)) for partition in self.latest]
        tasks += [asyncio.ensure_future(self._keep_asking(node_id)) for node_id in self._ports]
        while not self._is_ending:
            await asyncio.sleep(LEADER_QUERY_INTERVAL_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in (*self._connections.values(), *self._asked.values()):
            connection.abort()

    async def _write(self, partition: int) -> None:
        batch = batch_of([100], time.time_ns() // 1_000_000)
        frame = produce_frame(self._topic, batch, partition, PRODUCE_VERSION)
        position = produce_error_position(self._topic)
        while True:
            connection = self._connections.get(self._leaders[partition].node_id)
            try:
                if connection is None or connection.is_lost:
                    raise ConnectionError("not there yet")
                reply = await connection.exchange(frame)
                if struct.unpack_from(">h", reply, position)[0]:
                    if self._is_told(partition, reply):
                        continue
                    raise ConnectionError("refused")
            except LOST:
                self._refused_at = time.monotonic()
                await asyncio.sleep(PAUSE_S)
                continue
            now = time.monotonic()
            if self.latest[partition]:
                self.longest[partition] = max(self.longest[partition], now - self.latest[partition])
            self.latest[partition] = now
            await asyncio.sleep(PAUSE_S)

    def _is_told(self, partition: int, reply: bytes) -> bool:
        """Whether a refusal names a leader that was not known before."""
        response = decode(ProduceResponse, memoryview(reply)[9:], PRODUCE_VERSION)
        hint = response.responses[0].partition_responses[0].current_leader
        if hint is None or hint.leader_id < 0 or hint.leader_epoch <= self._leaders[partition].epoch:
            return False
        self._leaders[partition] = PartitionLeader(hint.leader_epoch, hint.leader_id)
        return True

    async def _keep_asking(self, node_id: int) -> None:
        """Ask one node for the leaders while a partition gets no acknowledgement. Each node has its own task, so that a
        silent node delays no other.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        frame = request_frame(request, METADATA_VERSION)
        asked = 0.0
        while True:
            is_silent = min(self.latest.values()) < time.monotonic() - SILENT_S
            if is_silent or self._refused_at > asked:
                asked = time.monotonic()
                found = await self._ask(node_id, frame)
                if found is not None:
                    self._silent.pop(node_id, None)
                    await self._connect(self._connections, node_id)
                    self._hear(found)
                else:
                    self._silent[node_id] = None
                await asyncio.sleep(LEADER_QUERY_INTERVAL_S)
            else:
                await asyncio.sleep(PAUSE_S)

    def _hear(self, found: MetadataResponse) -> None:
        """Note the leaders that a node reported. Requests that wait at a former leader are sent to the new one."""
        for each in found.topics[0].partitions if found.topics else ():
            newest, known = PartitionLeader(each.leader_epoch, each.leader_id), self._leaders[each.partition_index]
            if newest > known and newest.node_id > 0:
                self._leaders[each.partition_index] = newest
                if known.node_id in self._silent and known.node_id in self._connections:
                    self._connections.pop(known.node_id).abort()

    async def _connect(self, connections: dict[int, Connection], node_id: int) -> Connection | None:
        connection = connections.get(node_id)
        if connection is not None and not connection.is_lost:
            return connection
        try:
            opened = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", self._ports[node_id]), PATIENCE_S)
        except LOST:
            return None
        connections[node_id] = Connection(*opened)
        return connections[node_id]

    async def _ask(self, node_id: int, frame: bytes) -> MetadataResponse | None:
        connection = await self._connect(self._asked, node_id)
        if connection is None:
            return None
        try:
            reply = await connection.exchange(frame, PATIENCE_S)
        except LOST:
            connection.abort()
            return None
        return decode(MetadataResponse, memoryview(reply)[9:], METADATA_VERSION)
