"""aiokafka's transactions as driver operations, to be run on one loop."""

# mypy: disable-error-code="import-untyped,no-any-return,misc"

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.conformance.drivers.aiokafka_records import record_of
from tests.conformance.outcome import Refused
from tests.conformance.record import Json, Record, from_wire, to_wire

PATIENCE_S = 60


class Transactor:
    """A transactional producer; every record is acknowledged before `send` returns."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=20,
        )

    async def send(self, topic: str, records: list[Record]) -> list[int]:
        sent = [
            await self.producer.send(topic, value=record.value, key=record.key, partition=record.partition)
            for record in records
        ]
        return [(await asyncio.wait_for(future, PATIENCE_S)).offset for future in sent]

    async def end(self, *, commit: bool) -> None:
        end = self.producer.commit_transaction() if commit else self.producer.abort_transaction()
        await asyncio.wait_for(end, PATIENCE_S)


class Pipeline:
    """A member of a group that writes what it reads, with its offsets in the same transaction."""

    def __init__(self, bootstrap: str, transactional_id: str, group: str, topic: str) -> None:
        self._group = group
        self._transactor = Transactor(bootstrap, transactional_id, 60_000)
        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )

    async def open(self) -> None:
        await self._transactor.producer.start()
        await self._consumer.start()

    async def read(self, count: int) -> list[Record]:
        records: list[Record] = []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while len(records) < count and loop.time() < deadline:
            batches = await self._consumer.getmany(timeout_ms=1000, max_records=count - len(records))
            records += [record_of(each) for batch in batches.values() for each in batch]
        return records

    async def step(self, count: int, into: str, end: str) -> list[Json]:
        records = await self.read(count)
        producer = self._transactor.producer
        await producer.begin_transaction()
        await self._transactor.send(into, records)
        places = {place: await self._consumer.position(place) for place in self._consumer.assignment()}
        await producer.send_offsets_to_transaction(places, self._group)
        if end != "leave":
            await self._transactor.end(commit=end == "commit")
        return [to_wire(record) for record in records]

    async def close(self) -> None:
        await self._consumer.stop()
        await self._transactor.producer.stop()


class AiokafkaTransactions:
    """The transactional producers of one driver, by the names that scenarios give them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._transactors: dict[str, Transactor] = {}
        self._pipelines: dict[str, Pipeline] = {}

    async def transactor_open(self, transactor: str, id: str, timeout_ms: int) -> object:
        opened = Transactor(self._bootstrap, id, timeout_ms)
        await asyncio.wait_for(opened.producer.start(), PATIENCE_S)
        self._transactors[transactor] = opened
        return None

    async def transactor_begin(self, transactor: str) -> object:
        try:
            await self._transactors[transactor].producer.begin_transaction()
        except AssertionError as error:  # so aiokafka says that its state forbids it
            raise Refused("INVALID_TXN_STATE", str(error)) from None
        return None

    async def transactor_send(self, transactor: str, topic: str, records: list[Json]) -> object:
        return await self._transactors[transactor].send(topic, [from_wire(record) for record in records])

    async def transactor_end(self, transactor: str, commit: bool) -> object:
        await self._transactors[transactor].end(commit=commit)
        return None

    async def transactor_close(self, transactor: str) -> object:
        await asyncio.wait_for(self._transactors.pop(transactor).producer.stop(), PATIENCE_S)
        return None

    async def pipeline_open(self, pipeline: str, id: str, group: str, topic: str) -> object:
        opened = Pipeline(self._bootstrap, id, group, topic)
        await opened.open()
        self._pipelines[pipeline] = opened
        return None

    async def pipeline_step(self, pipeline: str, count: int, into: str, end: str) -> object:
        return await self._pipelines[pipeline].step(count, into, end)

    async def pipeline_close(self, pipeline: str) -> object:
        await self._pipelines.pop(pipeline).close()
        return None
