"""An idempotent producer: one batch for each partition and one request at a time. A batch is repeated with the same
sequence number until a broker has acknowledged it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.key_partitioner import partition_of
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.record_batch import sequence_after
from moldau.protocol.record_builder import Record, RecordHeader, build_batch
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.client.cluster import Cluster, TransientError, check_error
from moldau.tables.client.connection import BrokerConnection
from moldau.tables.client.transaction import ProducerIdentity, add_partitions
from moldau.tables.refusals import Refused

RECORD_OVERHEAD: Final = 24
BUFFERED_BYTES_MAX: Final = 8 << 20
"""The most bytes of unsent records, over all partitions, before the producer sends a request."""
DELIVERY_TIMEOUT_S: Final = 120.0
"""How long (seconds) a request is repeated: as long as Java's producer tries by default (delivery.timeout.ms)."""
ACKS_ALL: Final = -1


class OutgoingRecord(NamedTuple):
    """A record to be written to a topic. If `partition` is None, the hash of the key determines the partition. Records
    without a key go to another partition with each request."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]
    timestamp_ms: int | None = None
    """The timestamp (ms); None means the time at which `send` is called."""


@dataclass(slots=True)
class UnsentRecords:
    """The records of a partition that are not sent yet."""

    records: list[Record] = field(default_factory=list)
    size: int = 0


class TopicProducer:
    """An idempotent producer, for one thread only. Records of one partition are written in the order of `send`."""

    def __init__(
        self,
        cluster: Cluster,
        producer: ProducerIdentity,
        *,
        codec: Codec,
        batch_size: int,
        first_partition: int = 0,
        delivery_s: float = DELIVERY_TIMEOUT_S,
    ) -> None:
        """`first_partition`: the partition for records without a key and a partition number; each further request uses
        the next partition. `delivery_s`: for how long (seconds) one request is repeated."""
        self._cluster = cluster
        self._producer = producer
        self._codec = codec
        self._batch_size = batch_size
        self._delivery_s = delivery_s
        self._turn = first_partition
        self._partitions: dict[str, int] = {}
        self._gathered: dict[TopicPartition, UnsentRecords] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._size = 0
        self.count = 0
        """The number of records that were acknowledged."""
        self.has_begun = False
        """Whether the transaction may have begun, because a request that begins it was sent. The log may then have
        records of the transaction, even if `count` is 0."""

    def send(self, record: OutgoingRecord) -> None:
        """Add a record to the next batch of its partition. If the batch is full, it is sent first. Raises `Refused`,
        with topic and partition, if the record cannot be written."""
        key = record.topic, self._partition(record)
        gathered = self._gathered.setdefault(key, UnsentRecords())
        size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD
        size += sum(len(name) + len(value or b"") + 8 for name, value in record.headers)
        if gathered.size and gathered.size + size > self._batch_size:
            self.flush()
            gathered = self._gathered.setdefault(key, UnsentRecords())
        timestamp = time.time_ns() // 1_000_000 if record.timestamp_ms is None else record.timestamp_ms
        gathered.records.append(Record(record.key, record.value, timestamp, record.headers))
        gathered.size += size
        self._size += size
        if self._size >= BUFFERED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send all unsent records, and wait until all in-sync replicas have them. Raises `Refused`."""
        if not self._gathered:
            return
        gathered, self._gathered, self._size = self._gathered, {}, 0
        self._turn += 1
        new = [key for key in gathered if key not in self._sequences]
        if new and self._producer.transactional_id is not None:
            self.has_begun = True
            add_partitions(self._cluster, self._producer, new)
        batches = {key: self._batch(key, each) for key, each in gathered.items()}
        left = dict(batches)
        self._cluster.retry("produce", lambda: self._produce(left), self._delivery_s)
        for key, each in gathered.items():
            self._sequences[key] = sequence_after(self._sequences.get(key, 0), len(each.records))
            self.count += len(each.records)

    def _partition(self, record: OutgoingRecord) -> int:
        count = self._partitions.get(record.topic)
        if count is None:
            count = self._partitions[record.topic] = self._count_partitions(record.topic)
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise Refused(f"{record.topic}-{record.partition}: the topic has {count} partitions")
            return record.partition
        return self._turn % count if record.key is None else partition_of(record.key, count)

    def _count_partitions(self, topic: str) -> int:
        def attempt() -> int:
            described = self._cluster.topics([topic]).get(topic)
            if described is None or not described.leaders:
                raise Refused(f"topic: there is no topic {topic}")
            return len(described.leaders)

        return self._cluster.retry("metadata", attempt)

    def _batch(self, key: TopicPartition, gathered: UnsentRecords) -> bytes:
        return build_batch(
            gathered.records,
            codec=self._codec,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            base_sequence=self._sequences.get(key, 0),
            is_transactional=self._producer.transactional_id is not None,
        )

    def _produce(self, left: dict[TopicPartition, bytes]) -> None:
        """Send the batches in `left` to the leaders of their partitions, and remove those that were acknowledged from
        it. Raises `TransientError` if a batch has to be sent again."""
        by_leader: dict[BrokerConnection, list[TopicPartition]] = {}
        for key in left:
            by_leader.setdefault(self._cluster.leader_of(key), []).append(key)
        passing: TransientError | None = None
        for leader, keys in by_leader.items():
            topics: dict[str, list[PartitionProduceData]] = {}
            for topic, partition in keys:
                topics.setdefault(topic, []).append(
                    PartitionProduceData(index=partition, records=left[topic, partition])
                )
            request = ProduceRequest(
                transactional_id=self._producer.transactional_id,
                acks=ACKS_ALL,
                timeout_ms=self._cluster.settings.request_timeout_ms,
                topic_data=[TopicProduceData(name=name, partition_data=each) for name, each in topics.items()],
            )
            reply = leader.ask(request, ProduceResponse, 11, wait_ms=self._cluster.settings.request_timeout_ms)
            for topic_reply in reply.responses:
                for each in topic_reply.partition_responses:
                    key = topic_reply.name, each.index
                    try:
                        if each.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                            check_error(each.error_code, f"{key[0]}-{key[1]}")
                        del left[key]
                    except TransientError as problem:
                        passing = problem
        if passing is not None:
            raise passing
