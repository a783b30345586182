"""kafka-python's transactions as driver operations."""

# mypy: disable-error-code="import-untyped,no-any-return,misc"

from __future__ import annotations

import time

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from tests.conformance.drivers.kafka_python_admin import KafkaPythonAdmin
from tests.conformance.drivers.kafka_python_records import record_of, refused
from tests.conformance.record import Json, Record, from_wire, to_wire

PATIENCE_S = 60


class Transactor:
    """A transactional producer; every record is acknowledged before `send` returns."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=PATIENCE_S * 1000,
            linger_ms=20,
        )
        refused(self.producer.init_transactions)

    def send(self, topic: str, records: list[Record]) -> list[int]:
        sent = [
            refused(
                lambda record=record: self.producer.send(
                    topic, value=record.value, key=record.key, partition=record.partition
                )
            )
            for record in records
        ]
        refused(lambda: self.producer.flush(PATIENCE_S))
        return refused(lambda: [future.get(timeout=PATIENCE_S).offset for future in sent])

    def end(self, *, commit: bool) -> None:
        refused(self.producer.commit_transaction if commit else self.producer.abort_transaction)


class Pipeline:
    """A member of a group that writes what it reads, with its offsets in the same transaction."""

    def __init__(self, bootstrap: str, transactional_id: str, group: str, topic: str) -> None:
        self._transactor = Transactor(bootstrap, transactional_id, 60_000)
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )

    def read(self, count: int) -> list[Record]:
        records: list[Record] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count and time.monotonic() < deadline:
            wanted = count - len(records)
            batches = refused(lambda wanted=wanted: self._consumer.poll(timeout_ms=1000, max_records=wanted))
            records += [record_of(each) for batch in batches.values() for each in batch]
        return records

    def step(self, count: int, into: str, end: str) -> list[Json]:
        records = self.read(count)
        producer = self._transactor.producer
        refused(producer.begin_transaction)
        self._transactor.send(into, records)
        places = {place: OffsetAndMetadata(self._consumer.position(place), "", -1) for place in self._assigned()}
        refused(lambda: producer.send_offsets_to_transaction(places, self._consumer.group_metadata()))
        if end != "leave":
            self._transactor.end(commit=end == "commit")
        return [to_wire(record) for record in records]

    def _assigned(self) -> list[object]:
        return sorted(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()
        self._transactor.producer.close(timeout=5)


class KafkaPythonTransactions(KafkaPythonAdmin):
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
        self._transactors.pop(transactor).producer.close(timeout=5)
        return None

    def pipeline_open(self, pipeline: str, id: str, group: str, topic: str) -> object:
        self._pipelines[pipeline] = Pipeline(self.bootstrap, id, group, topic)
        return None

    def pipeline_step(self, pipeline: str, count: int, into: str, end: str) -> object:
        return self._pipelines[pipeline].step(count, into, end)

    def pipeline_close(self, pipeline: str) -> object:
        self._pipelines.pop(pipeline).close()
        return None
