"""confluent-kafka (librdkafka) as a driver: producing, assigned reading and group members."""

from __future__ import annotations

import sys
import threading
from functools import partial

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.conformance.drivers.confluent_records import record_of, refusal
from tests.conformance.drivers.confluent_share import ShareMember
from tests.conformance.drivers.confluent_transactions import ConfluentTransactions
from tests.conformance.drivers.librdkafka import STRATEGIES
from tests.conformance.drivers.serve import serve
from tests.conformance.record import Json, from_wire, to_wire


class Member:
    """One subscribed consumer with the thread that polls it."""

    def __init__(self, config: dict[str, str | int | bool], topic: str) -> None:
        self._lock = threading.Lock()
        self._records: list[Json] = []
        self._revoked: list[Json] = []
        self._held: set[tuple[str, int]] = set()
        self._rebalances = 0
        self._stopping = False
        self._consumer = Consumer(config)
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._taken)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._held |= {(partition.topic, partition.partition) for partition in partitions}

    def _taken(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._revoked += [[partition.topic, partition.partition] for partition in partitions]
        self._held -= {(partition.topic, partition.partition) for partition in partitions}
        self._commit()

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def _poll(self) -> None:
        while not self._stopping:
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                with self._lock:
                    self._records.append(to_wire(record_of(message)))

    def state(self) -> object:
        with self._lock:
            records, self._records = self._records, []
        revoked, self._revoked = self._revoked, []
        return {
            "assignment": sorted(self._held),
            "records": records,
            "revoked": revoked,
            "rebalances": self._rebalances,
        }

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        self._commit()
        self._consumer.close()


class Confluent(ConfluentTransactions):
    """Operations over topics' records; those of transactions and of the admin client are inherited."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._members: dict[str, Member] = {}
        self._sharers: dict[str, ShareMember] = {}

    def hello(self) -> object:
        version = f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
        return {"version": version, "lacks": {}}

    def produce(self, topic: str, records: list[Json], codec: str, acks: str, idempotent: bool) -> object:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 50,
                "message.max.bytes": 16_000_000,
                "message.timeout.ms": 60_000,
                "queue.buffering.max.kbytes": 1_000_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        offsets: list[Json] = [-1] * len(records)
        errors: list[KafkaError] = []

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets[index] = message.offset()

        for index, record in enumerate(map(from_wire, records)):
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp=record.timestamp_ms or 0,
                on_delivery=partial(delivered, index),
            )
        producer.flush(30)
        if errors:
            raise refusal(errors[0])
        return offsets

    def consume(
        self, topic: str, partition: int, offset: int, count: int, reset: str, isolation: str | None, wait_s: int
    ) -> object:
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error" if reset == "none" else reset,
            "fetch.message.max.bytes": 16_000_000,
        }
        consumer = Consumer(config if isolation is None else {**config, "isolation.level": isolation})
        consumer.assign([TopicPartition(topic, partition, offset)])
        records: list[Json] = []
        try:
            while len(records) < count and (messages := consumer.consume(count - len(records), timeout=wait_s)):
                for message in messages:
                    error = message.error()
                    if error is not None:
                        raise refusal(error)
                    records.append(to_wire(record_of(message)))
        finally:
            consumer.close()
        return records

    def init_transactions(self, id: str) -> object:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": id})
        try:
            producer.init_transactions(10)
        except KafkaException as error:
            raise refusal(error.args[0]) from None
        return None

    def member_open(
        self, member: str, group: str, topic: str, strategy: str, instance_id: str | None, session_timeout_ms: int
    ) -> object:
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 2_000,
        }
        if strategy == "consumer":
            config["group.protocol"] = "consumer"
        else:
            config["partition.assignment.strategy"] = STRATEGIES[strategy]
            config["session.timeout.ms"] = session_timeout_ms
            config["heartbeat.interval.ms"] = 500
        if instance_id is not None:
            config["group.instance.id"] = instance_id
        self._members[member] = Member(config, topic)
        return None

    def member_state(self, member: str) -> object:
        return self._members[member].state()

    def member_close(self, member: str) -> object:
        gone = self._members.pop(member)
        gone.close()
        return gone.state()

    def share_open(self, member: str, group: str, topic: str, count: int) -> object:
        """`count`: at most so many records in one delivery, or a batch."""
        config: dict[str, str | int | bool] = {"bootstrap.servers": self.bootstrap, "group.id": group}
        self._sharers[member] = ShareMember({**config, "max.poll.records": count}, topic)
        return None

    def share_state(self, member: str, last: bool = False) -> object:
        return self._sharers[member].state(is_last=last)

    def share_close(self, member: str) -> object:
        gone = self._sharers.pop(member)
        gone.close()
        return gone.state()


if __name__ == "__main__":
    serve(Confluent(sys.argv[1]))
