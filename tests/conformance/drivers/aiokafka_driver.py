"""aiokafka as a driver: producing, assigned reading and group members, on a loop in a thread of its own."""

# mypy: disable-error-code="import-untyped,no-any-return,misc"

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from typing import TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from tests.conformance.drivers.aiokafka_admin import AiokafkaAdmin, refusal
from tests.conformance.drivers.aiokafka_records import record_of
from tests.conformance.drivers.aiokafka_transactions import AiokafkaTransactions
from tests.conformance.drivers.serve import serve
from tests.conformance.record import Json, from_wire, to_wire

R = TypeVar("R")

STRATEGIES = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Member(ConsumerRebalanceListener):
    """One subscribed consumer with the task that polls it."""

    def __init__(self, topic: str, **config: object) -> None:
        self._records: list[Json] = []
        self._revoked: list[tuple[str, int]] = []
        self._held: set[tuple[str, int]] = set()
        self._rebalances = 0
        self._consumer = AIOKafkaConsumer(**config)
        self._consumer.subscribe([topic], listener=self)
        self._task: asyncio.Task[None] | None = None

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._rebalances += 1
        self._held |= {tuple(partition) for partition in assigned}

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._revoked += [tuple(partition) for partition in revoked]
        self._held -= {tuple(partition) for partition in revoked}
        if revoked:
            await self._consumer.commit()

    async def open(self) -> None:
        await self._consumer.start()
        self._task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            batches = await self._consumer.getmany(timeout_ms=100)
            self._records += [to_wire(record_of(each)) for batch in batches.values() for each in batch]

    async def state(self) -> dict[str, object]:
        if self._task is not None and self._task.done():
            self._task.result()
        records, self._records = self._records, []
        revoked, self._revoked = self._revoked, []
        held = sorted(self._held)
        return {"assignment": held, "records": records, "revoked": revoked, "rebalances": self._rebalances}

    async def close(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._consumer.commit()
        await self._consumer.stop()


class Aiokafka:
    """Every operation runs on the loop; those of transactions and of the admin client have classes of their own."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._members: dict[str, Member] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._admin = AiokafkaAdmin(bootstrap)
        self._transactions = AiokafkaTransactions(bootstrap)

    def __getattr__(self, name: str) -> object:
        place = self._transactions if name.startswith(("transactor_", "pipeline_")) else self._admin
        operation = getattr(place, name)
        return lambda **args: self._run(operation(**args))

    def _run(self, work: Coroutine[object, object, R]) -> R:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except KafkaError as error:
            raise refusal(error) from None

    def hello(self) -> object:
        lacks = {
            "strategy cooperative": "aiokafka has no cooperative assignor",
            "null records": "aiokafka takes no record without key and value",
        }
        return {"version": f"aiokafka {aiokafka.__version__}", "lacks": lacks}

    def produce(self, topic: str, records: list[Json], codec: str, acks: str, idempotent: bool) -> object:
        return self._run(self._produce(topic, records, codec, acks, idempotent))

    async def _produce(self, topic: str, records: list[Json], codec: str, acks: str, idempotent: bool) -> object:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=20,
            max_request_size=16_000_000,
            max_batch_size=1_000_000,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in map(from_wire, records)
            ]
            done = [await future for future in sent]
            return [each.offset if each is not None else -1 for each in done]
        finally:
            await producer.stop()

    def consume(
        self, topic: str, partition: int, offset: int, count: int, reset: str, isolation: str | None, wait_s: int
    ) -> object:
        place = TopicPartition(topic, partition)
        return self._run(self._consume(place, offset, count, reset, isolation or "read_uncommitted", wait_s))

    async def _consume(
        self, place: TopicPartition, offset: int, count: int, reset: str, isolation: str, wait_s: int
    ) -> object:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset=reset,
            isolation_level=isolation,
            max_partition_fetch_bytes=16_000_000,
        )
        consumer.assign([place])
        await consumer.start()
        consumer.seek(place, offset)
        read: list[Json] = []
        try:
            while len(read) < count and (batches := await consumer.getmany(timeout_ms=wait_s * 1000)):
                read += [to_wire(record_of(each)) for each in batches[place]]
        finally:
            await consumer.stop()
        return read[:count]

    def init_transactions(self, id: str) -> object:
        return self._run(self._init_transactions(id))

    async def _init_transactions(self, id: str) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=id, request_timeout_ms=10_000)
        try:
            await asyncio.wait_for(producer.start(), 15)
        finally:
            await producer.stop()

    def member_open(
        self, member: str, group: str, topic: str, strategy: str, instance_id: str | None, session_timeout_ms: int
    ) -> object:
        config: dict[str, object] = {
            "bootstrap_servers": self._bootstrap,
            "group_id": group,
            "group_instance_id": instance_id,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "partition_assignment_strategy": [STRATEGIES[strategy]],
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": 500,
        }
        self._members[member] = self._run(self._member(topic, config))
        return None

    @staticmethod
    async def _member(topic: str, config: dict[str, object]) -> Member:
        member = Member(topic, **config)
        # Starting waits for the first assignment, which may wait for the other member's next poll.
        await member.open()
        return member

    def member_state(self, member: str) -> object:
        return self._run(self._members[member].state())

    def member_close(self, member: str) -> object:
        return self._run(self._members.pop(member).close())


if __name__ == "__main__":
    serve(Aiokafka(sys.argv[1]))
