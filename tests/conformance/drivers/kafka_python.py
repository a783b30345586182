"""kafka-python as a driver: producing, assigned reading and group members."""

# mypy: disable-error-code="import-untyped,no-any-return,misc"

from __future__ import annotations

import sys
import threading

import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.conformance.drivers.kafka_python_records import record_of, refused
from tests.conformance.drivers.kafka_python_transactions import KafkaPythonTransactions
from tests.conformance.drivers.serve import serve
from tests.conformance.record import Json, from_wire, to_wire

STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


class Member(ConsumerRebalanceListener):
    """One subscribed consumer with the thread that polls it."""

    def __init__(self, topic: str, **config: object) -> None:
        self._lock = threading.Lock()
        self._records: list[Json] = []
        self._revoked: list[tuple[str, int]] = []
        self._held: set[tuple[str, int]] = set()
        self._rebalances = 0
        self._stopping = False
        self._failure: Exception | None = None
        self._consumer = KafkaConsumer(**config)
        self._consumer.subscribe([topic], listener=self)
        # A leader that hears of the topic's partitions after its first round begins a second one, and forgets the
        # assignment under way if its poll ends just then (kafka-python 3.0.12): it is to know them before it joins.
        self._consumer.partitions_for_topic(topic)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._rebalances += 1
        self._held |= {tuple(partition) for partition in assigned}

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._revoked += [tuple(partition) for partition in revoked]
        self._held -= {tuple(partition) for partition in revoked}

    def _poll(self) -> None:
        try:
            while not self._stopping:
                batches = self._consumer.poll(timeout_ms=100)
                with self._lock:
                    self._records += [to_wire(record_of(each)) for batch in batches.values() for each in batch]
            self._consumer.close()
        except Exception as error:
            self._failure = error

    def state(self) -> dict[str, object]:
        if self._failure is not None:
            raise self._failure
        with self._lock:
            records, self._records = self._records, []
        revoked, self._revoked = self._revoked, []
        held = sorted(self._held)
        return {"assignment": held, "records": records, "revoked": revoked, "rebalances": self._rebalances}

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class KafkaPython(KafkaPythonTransactions):
    """Operations over topics' records; those of transactions and of the admin client are inherited."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._members: dict[str, Member] = {}

    def hello(self) -> object:
        lacks = {
            "null headers": "kafka-python takes no header without a value",
            "null records": "kafka-python takes no record without key and value",
        }
        return {"version": f"kafka-python {kafka.__version__}", "lacks": lacks}

    def produce(self, topic: str, records: list[Json], codec: str, acks: str, idempotent: bool) -> object:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=50,
            max_request_size=16_000_000,
            max_block_ms=60_000,
            delivery_timeout_ms=60_000,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in map(from_wire, records)
            ]
            producer.flush(30)
            return refused(lambda: [future.get(timeout=60).offset for future in sent])
        finally:
            producer.close(timeout=5)

    def consume(
        self, topic: str, partition: int, offset: int, count: int, reset: str, isolation: str | None, wait_s: int
    ) -> object:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset=reset,
            isolation_level=isolation or "read_uncommitted",
            max_partition_fetch_bytes=16_000_000,
        )
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, offset)
        read: list[Json] = []
        try:
            while len(read) < count and (batches := refused(lambda: consumer.poll(timeout_ms=wait_s * 1000))):
                read += [to_wire(record_of(each)) for each in batches[place]]
        finally:
            consumer.close()
        return read[:count]

    def init_transactions(self, id: str) -> object:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=id, max_block_ms=10_000)
        try:
            refused(producer.init_transactions)
        finally:
            producer.close(timeout=1)
        return None

    def member_open(
        self, member: str, group: str, topic: str, strategy: str, instance_id: str | None, session_timeout_ms: int
    ) -> object:
        self._members[member] = Member(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            group_instance_id=instance_id,
            enable_auto_commit=True,  # its listener cannot commit: the client does, before partitions go
            auto_offset_reset="earliest",
            partition_assignment_strategy=[STRATEGIES[strategy]],
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=500,
        )
        return None

    def member_state(self, member: str) -> object:
        return self._members[member].state()

    def member_close(self, member: str) -> object:
        self._members.pop(member).close()
        return None


if __name__ == "__main__":
    serve(KafkaPython(sys.argv[1]))
