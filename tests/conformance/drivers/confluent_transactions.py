"""confluent-kafka's transactions as driver operations."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tests.conformance.drivers.confluent_admin import ConfluentAdmin
from tests.conformance.drivers.confluent_records import record_of, refusal
from tests.conformance.record import Json, Record, from_wire, to_wire

R = TypeVar("R")
PATIENCE_S = 60


def refused(attempt: Callable[[], R]) -> R:
    try:
        return attempt()
    except KafkaException as error:
        raise refusal(error.args[0]) from None


class Transactor:
    """A transactional producer; every record is acknowledged before `send` returns."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 20,
            }
        )
        refused(lambda: self.producer.init_transactions(PATIENCE_S))

    def send(self, topic: str, records: list[Record]) -> list[int]:
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            offsets.append(message.offset() or 0)

        for record in records:
            refused(
                lambda record=record: self.producer.produce(  # type: ignore[misc]
                    topic, value=record.value, key=record.key, partition=record.partition, on_delivery=delivered
                )
            )
        refused(lambda: self.producer.flush(PATIENCE_S))
        if errors:
            raise refusal(errors[0])
        return offsets

    def end(self, *, commit: bool) -> None:
        end = self.producer.commit_transaction if commit else self.producer.abort_transaction
        refused(lambda: end(PATIENCE_S))


class Pipeline:
    """A member of a group that writes what it reads, with its offsets in the same transaction."""

    def __init__(self, bootstrap: str, transactional_id: str, group: str, topic: str) -> None:
        self._transactor = Transactor(bootstrap, transactional_id, 60_000)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._consumer.subscribe([topic])

    def read(self, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count and time.monotonic() < deadline:
            for message in self._consumer.consume(count - len(records), timeout=1):
                error = message.error()
                if error is not None:
                    raise refusal(error)
                records.append(record_of(message))
        return records

    def step(self, count: int, into: str, end: str) -> list[Json]:
        records = self.read(count)
        producer = self._transactor.producer
        refused(producer.begin_transaction)
        self._transactor.send(into, records)
        places = self._consumer.position(self._consumer.assignment())
        member = self._consumer.consumer_group_metadata()
        refused(lambda: producer.send_offsets_to_transaction(places, member, PATIENCE_S))
        if end != "leave":
            self._transactor.end(commit=end == "commit")
        return [to_wire(record) for record in records]

    def close(self) -> None:
        self._consumer.close()


class ConfluentTransactions(ConfluentAdmin):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._transactors: dict[str, Transactor] = {}
        self._pipelines: dict[str, Pipeline] = {}

    def transactor_open(self, transactor: str, id: str, timeout_ms: int) -> object:
        self._transactors[transactor] = Transactor(self.bootstrap, id, timeout_ms)
        return None

    def transactor_begin(self, transactor: str) -> object:
        refused(self._transactors[transactor].producer.begin_transaction)
        return None

    def transactor_send(self, transactor: str, topic: str, records: list[Json]) -> object:
        return self._transactors[transactor].send(topic, [from_wire(record) for record in records])

    def transactor_end(self, transactor: str, commit: bool) -> object:
        self._transactors[transactor].end(commit=commit)
        return None

    def transactor_close(self, transactor: str) -> object:
        del self._transactors[transactor]
        return None

    def pipeline_open(self, pipeline: str, id: str, group: str, topic: str) -> object:
        self._pipelines[pipeline] = Pipeline(self.bootstrap, id, group, topic)
        return None

    def pipeline_step(self, pipeline: str, count: int, into: str, end: str) -> object:
        return self._pipelines[pipeline].step(count, into, end)

    def pipeline_close(self, pipeline: str) -> object:
        self._pipelines.pop(pipeline).close()
        return None
