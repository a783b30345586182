"""Reads one partition, writes what it read to another, and commits the offset, all in one transaction.

Every process begins where the group's committed offset is, and so does one whose transaction was aborted. Each record
of the source has exactly one effect, in its order: `differences` says where that is broken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, cast

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import PartitionData
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from moldau.protocol.record_reader import records_of
from tests.support.cluster_clients import Bootstrap
from tests.support.coordinators import GROUP
from tests.support.history import Key
from tests.support.node import Closed, fetch_request
from tests.support.transactions.application import ABORTS, DIES, Died
from tests.support.transactions.connections import Connections
from tests.support.transactions.ledger import Ledger
from tests.support.transactions.producer import GaveUp, Identity, Refused, TransactionalProducer
from tests.support.transactions.reader import FETCH_VERSION, READ_COMMITTED, told_apart

RECORDS_MAX: Final = 3
"""The most records of one transaction."""
PARTED: Final = "@"
"""The separator between a source record's name and the name of the transaction that processed it."""


class Transformer:
    """All processes of one transactional id, which read the same partition for the same group."""

    def __init__(
        self,
        identity: Identity,
        source: Key,
        target: Key,
        bootstrap_of: Callable[[str], Bootstrap],
        ledger: Ledger,
        *,
        pause_s: float,
    ) -> None:
        self.identity = identity
        self._source = source
        self._target = target
        self._group = f"group-of-{identity.name}"
        self._bootstrap_of = bootstrap_of
        self._ledger = ledger
        self._pause_s = pause_s
        self._incarnation = 0
        self._connections: list[Connections] = []
        self._zombies: list[asyncio.Task[None]] = []

    async def work(self, is_ended: Callable[[], bool]) -> None:
        """Run until the source ends and all of it is transformed."""
        is_done = False
        while not is_done:
            self._incarnation += 1
            name = f"{self.identity.name}.{self._incarnation}"
            connections = Connections(self._bootstrap_of(name))
            self._connections.append(connections)
            producer = TransactionalProducer(name, self.identity, connections, self._ledger)
            try:
                await producer.start()
                is_done = await self._live(producer, connections, is_ended)
            except (Refused, GaveUp, Died):
                pass
        await asyncio.gather(*self._zombies, *(task for each in self._connections for task in each.late))
        for each in self._connections:
            each.close()

    async def _live(
        self, producer: TransactionalProducer, connections: Connections, is_ended: Callable[[], bool]
    ) -> bool:
        """One process. Returns whether it has transformed all records."""
        random, offset = connections.random, await self._committed_offset(connections)
        while True:
            if random.random() < DIES and not is_ended():
                haunting = self._haunt(producer, connections, offset)
                self._zombies.append(asyncio.get_running_loop().create_task(haunting))
                return False
            ends = is_ended()
            records, next_offset, is_end = await self._read(connections, offset)
            if ends and is_end and not records:
                return True
            if records:
                is_committed = await self._transform(producer, random, records, next_offset)
                next_offset = next_offset if is_committed else await self._committed_offset(connections)
            offset = next_offset
            await asyncio.sleep(random.random() * 2 * self._pause_s)

    async def _haunt(self, producer: TransactionalProducer, connections: Connections, offset: int) -> None:
        """A process continues although another one takes over."""
        try:
            await asyncio.sleep(connections.random.random() * 20 * self._pause_s)
            records, next_offset, _ = await self._read(connections, offset)
            if records:
                await self._transform(producer, connections.random, records, next_offset)
        except (Refused, GaveUp, Died):
            pass

    async def _transform(
        self, producer: TransactionalProducer, random: Random, records: Sequence[str], next_offset: int
    ) -> bool:
        """One transaction. Returns whether it is committed."""
        attempt = producer.begin()
        try:
            await producer.produce(attempt, self._target, [f"{each}{PARTED}{attempt.name}" for each in records])
            if random.random() < DIES:
                raise Died
            await producer.commit_offset(self._group, self._source, next_offset)
        except (Refused, GaveUp):
            await producer.end(attempt, is_commit=False)
            await producer.go_on()
            return False
        is_commit = random.random() >= ABORTS
        await producer.end(attempt, is_commit=is_commit)
        return is_commit

    async def _read(self, connections: Connections, offset: int) -> tuple[list[str], int, bool]:
        """Some records, the offset after them, and whether nothing is behind them. Raises `GaveUp`."""
        request = fetch_request(
            [(*self._source, offset)],
            max_wait_ms=100,
            partition_max_bytes=600,
            isolation_level=READ_COMMITTED,
        )
        data: PartitionData = (await self._asked(connections, request)).responses[0].partitions[0]
        stored, records = bytes(cast("bytes", data.records or b"")), list[str]()
        for place, header, is_shown in told_apart(stored, data):
            for record in records_of(stored, place, header) if is_shown else ():
                if record.offset >= offset and len(records) < RECORDS_MAX:
                    records.append((record.value or b"").decode())
                    offset = record.offset + 1
            if len(records) == RECORDS_MAX:
                return records, offset, False
            offset = max(offset, header.next_offset)
        return records, offset, offset >= data.high_watermark

    async def _asked(self, connections: Connections, request: object) -> Any:
        for _ in range(200):
            try:
                reply = await connections.ask(await connections.leader(self._source), request, FETCH_VERSION)
                if reply.responses[0].partitions[0].error_code == ErrorCode.NONE:
                    return reply
            except Closed:
                pass
            await connections.back_off()
        raise GaveUp

    async def _committed_offset(self, connections: Connections) -> int:
        """The offset at which the group continues. Raises `GaveUp`."""
        topic = OffsetFetchRequestTopic(name=self._source[0], partition_indexes=[self._source[1]])
        request = OffsetFetchRequest(group_id=self._group, topics=[topic], require_stable=True)
        for _ in range(200):
            try:
                reply = await connections.ask(await connections.coordinator(GROUP, self._group), request, 7)
                if reply.error_code == ErrorCode.NONE:
                    (partition,) = reply.topics[0].partitions
                    if partition.error_code == ErrorCode.NONE:
                        return max(int(partition.committed_offset), 0)
            except Closed:
                pass
            await connections.back_off()
        raise GaveUp


def differences(source: Sequence[str], target: Sequence[str]) -> list[str]:
    """The differences between the records that were read and their effects."""
    effects = [value.partition(PARTED)[0] for value in target]
    if effects == [*source]:
        return []
    for place, (read, effect) in enumerate(zip([*source, "nothing"], [*effects, "nothing"], strict=False)):
        if read != effect:
            return [f"effects: {len(source)} records had {len(effects)}; number {place} was {read}, not {effect}"]
    return [f"effects: {len(source)} records had {len(effects)}"]
