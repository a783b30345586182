"""Writes the dead letters of share groups to their dead-letter queues, which are topics that the groups' settings name
(KIP-1191).

    a run of records ──▶ may the topic be the queue? ──▶ does it exist? ──▶ read the originals ──▶ Produce to the leader
                         └ no: logged, not written       └ no: create it    (if they are copied)        │
                              ▲ again after a pause ◀─────────┴──────────────────────────────────── retriable error

The originals are fetched from this broker as a consumer fetches them, so that tiered records are found. The requests go
through the listener between brokers, also those to this broker itself: its principal needs READ on the source topics
and WRITE on the queues, as in Apache Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from moldau.broker.config.topics import is_dead_letter_queue
from moldau.broker.metadata.cluster_view import ClusterView, DynamicConfig
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.runtime.environment import Environment
from moldau.coordinator.share_coordinator.state import ShareKey
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.topics import Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.protocol.record_builder import Record
from moldau.replication.share.changes import DeadLetter
from moldau.replication.share.dead_letters import (
    RETRIABLE_PRODUCE_ERRORS,
    DeadLetterSource,
    DeadLetterTopic,
    SourceRecords,
    collect_source_records,
    next_dead_letter_batch,
    refusal_of_queue,
)

log = logging.getLogger("moldau.share")
T = TypeVar("T")

PURPOSE: Final = "dead letters"
ACKS_ALL: Final = -1
RETRY_MS_FIRST: Final = 250
"""The pause (ms) before the second attempt. Each further pause is twice as long, up to `RETRY_MS_MAX`."""
RETRY_MS_MAX: Final = 30_000
FETCH_SIZE_MAX: Final = 1 << 20
"""The maximum number of bytes of source records that one Fetch requests."""
FETCH_WAIT_MS: Final = 500
QUEUE_CONFIGS: Final = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
"""The settings of a topic that the broker creates as a dead-letter queue."""


class QueueSettings(NamedTuple):
    """The settings of a group for its dead-letter queue."""

    topic: str = ""
    """errors.deadletterqueue.topic.name; empty if the group has no dead-letter queue."""
    copies_records: bool = False
    """errors.deadletterqueue.copy.record.enable."""


class DeadLetterCounts:
    """Counts of dead letters for the metrics, each by group id, since the start of the broker."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        """The number of dead letters that were written to a queue."""
        self.requests: Counter[str] = Counter()
        """The number of Produce requests with dead letters."""
        self.failures: Counter[str] = Counter()
        """The number of Produce requests that failed, including those that were repeated."""


class DeadLetterPorts(NamedTuple):
    """The parts of the broker that dead-letter queues use."""

    node_id: int
    environment: Environment
    cluster: ClusterView
    settings: DynamicConfig
    brokers: OtherBrokers
    topic_creation: TopicCreation
    timeout_ms: int
    """The timeout (ms) of a Produce request to a queue."""
    group_settings: Callable[[str], QueueSettings]
    counts: DeadLetterCounts


class DeadLetterRefusal(NamedTuple):
    """The reason why a dead letter is not written."""

    reason: str


class DeadLetterWriter:
    """Writes the dead letters of one run of records. `is_wanted` returns whether this broker still has to write
    them.
    """

    def __init__(
        self, ports: DeadLetterPorts, key: ShareKey, letter: DeadLetter, is_wanted: Callable[[], bool]
    ) -> None:
        self._ports = ports
        self._key = key
        self._letter = letter
        self._is_wanted = is_wanted
        self._next_offset = letter.first_offset
        self._originals = SourceRecords({}, 0, self._next_offset, is_full=False)
        self._failed_attempts = 0

    async def run(self) -> bool:
        """Write the dead letters. Returns True once the queue has all of them, or if it cannot take them; False if
        `is_wanted` has returned False before that.
        """
        while self._next_offset <= self._letter.last_offset and self._is_wanted():
            queue = self._queue()
            if isinstance(queue, DeadLetterRefusal):
                self._give_up(queue.reason)
                return True
            if queue is None:
                await self._pause()
                continue
            if self._copies_records and self._originals.next_offset <= self._next_offset:
                await self._read_originals(self._size_max(queue))
            error = await self._produce(queue)
            if error in RETRIABLE_PRODUCE_ERRORS:
                await self._pause()
            elif error is not ErrorCode.NONE:
                self._give_up(error.name)
                return True
        return self._next_offset > self._letter.last_offset

    @property
    def _copies_records(self) -> bool:
        return self._ports.group_settings(self._key.group_id).copies_records

    def _give_up(self, reason: str) -> None:
        letter = self._letter
        log.error(
            "share group %s: records %d to %d of %s have no dead letter: %s",
            self._key.group_id,
            self._next_offset,
            letter.last_offset,
            self._source_name,
            reason,
        )

    @property
    def _source_name(self) -> str:
        """The source partition, as `topic-partition`. If the topic was deleted, its id replaces its name."""
        topic = self._ports.cluster.image.topics.by_id.get(self._key.topic_id)
        return f"{self._key.topic_id.hex() if topic is None else topic.name}-{self._key.partition}"

    async def _pause(self) -> None:
        pause_ms = min(RETRY_MS_FIRST << min(self._failed_attempts, 16), RETRY_MS_MAX)
        self._failed_attempts += 1
        while pause_ms > 0 and self._is_wanted():
            await asyncio.sleep(RETRY_MS_FIRST / 1000)
            pause_ms -= RETRY_MS_FIRST

    # The topic

    def _queue(self) -> Topic | DeadLetterRefusal | None:
        """The topic of the queue; `DeadLetterRefusal` if the group's setting names no usable topic, and None while the
        topic is being created.
        """
        ports, image = self._ports, self._ports.cluster.image
        name = ports.group_settings(self._key.group_id).topic
        topic = image.topics.by_name(name)
        is_enabled = None
        if topic is not None:
            overrides = image.configs.settings_of(ResourceType.TOPIC, name)
            is_enabled = is_dead_letter_queue(ports.settings.config, overrides)
        config = ports.settings.config
        prefix = config.text("errors.deadletterqueue.topic.name.prefix")
        may_be_created = config.flag("errors.deadletterqueue.auto.create.topics.enable")
        refusal = refusal_of_queue(DeadLetterTopic(name, prefix, is_enabled, may_be_created))
        if refusal is not None:
            return DeadLetterRefusal(refusal)
        if topic is None:
            ports.topic_creation.create(name, configs=QUEUE_CONFIGS)
        return topic

    def _size_max(self, queue: Topic) -> int:
        return self._ports.settings.topic_log_config(self._ports.cluster.image, queue.name).max_message_bytes

    # The source records

    async def _read_originals(self, size_max: int) -> None:
        """Read source records from the next offset on, up to `size_max` bytes, so that dead letters can have copies of
        them. Records that cannot be read are not copied.
        """
        records: dict[int, Record] = {}
        size, next_offset, end_offset = 0, self._next_offset, self._letter.last_offset + 1
        while next_offset < end_offset:
            fetched = await self._fetch(next_offset)
            wanted = range(next_offset, end_offset)
            found = await self._ports.environment.offload(
                partial(collect_source_records, fetched, wanted, size_max - size)
            )
            records |= found.records
            size += found.size
            if found.is_full and found.next_offset > self._next_offset:
                next_offset = found.next_offset
                break
            if found.next_offset <= next_offset:
                log.warning("records %d to %d of %s are not copied", next_offset, end_offset - 1, self._source_name)
                next_offset = end_offset
                break
            next_offset = found.next_offset
        self._originals = SourceRecords(records, size, next_offset, is_full=False)

    async def _fetch(self, offset: int) -> bytes:
        """Fetch record batches of the source partition from an offset on. Returns no bytes if they cannot be read."""
        topic_id, index = self._key.topic_id, self._key.partition
        source = self._ports.cluster.image.topics.by_id.get(topic_id)
        partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=FETCH_SIZE_MAX)
        topic = FetchTopic(topic="" if source is None else source.name, topic_id=topic_id, partitions=[partition])
        request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_SIZE_MAX, topics=[topic])

        def records_in(response: object) -> bytes:
            if not isinstance(response, FetchResponse):
                return b""
            found = [each.records for topic in response.responses for each in topic.partitions]
            return bytes(found[0]) if found and isinstance(found[0], bytes | bytearray | memoryview) else b""

        return await self._ports.brokers.read(self._ports.node_id, PURPOSE, request, records_in)

    # The records of the queue

    async def _produce(self, queue: Topic) -> ErrorCode:
        """Write as many dead letters as one batch holds. Returns the error code of the Produce request."""
        ports, key, letter = self._ports, self._key, self._letter
        source = ports.cluster.image.topics.by_id.get(key.topic_id)
        index = key.partition % len(queue.partitions)
        leader = queue.partitions[index].leader
        end_offset = letter.last_offset + 1
        if self._copies_records:
            end_offset = max(self._next_offset + 1, min(end_offset, self._originals.next_offset))
        name = key.topic_id.hex() if source is None else source.name
        batch, next_offset = next_dead_letter_batch(
            DeadLetterSource(key.group_id, name, key.partition),
            letter,
            self._originals.records,
            range(self._next_offset, end_offset),
            ports.environment.wall_ms(),
            self._size_max(queue),
        )
        data = PartitionProduceData(index=index, records=batch)
        topic = TopicProduceData(name=queue.name, topic_id=queue.id, partition_data=[data])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=ports.timeout_ms, topic_data=[topic])
        ports.counts.requests[key.group_id] += 1

        def error_in(response: object) -> ErrorCode:
            if not isinstance(response, ProduceResponse):
                return ErrorCode.NETWORK_EXCEPTION
            codes = [each.error_code for topic in response.responses for each in topic.partition_responses]
            return ErrorCode(codes[0]) if codes else ErrorCode.UNKNOWN_SERVER_ERROR

        error = await ports.brokers.read(leader, PURPOSE, request, error_in)
        if error is ErrorCode.NONE:
            ports.counts.records[key.group_id] += next_offset - self._next_offset
            self._next_offset = next_offset
            self._failed_attempts = 0
        else:
            ports.counts.failures[key.group_id] += 1
        return error
