"""A client for the conveniences of a cluster through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it has no __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from moldau.testing.clients.port import Partition, Permission, Record, not_acknowledged

if TYPE_CHECKING:
    from concurrent.futures import Future

ANY_PARTITION: Final = -1
TIMEOUT_S: Final = 15.0
BATCH_MAX: Final = 10_000
"""The maximum number of records that one call of `consume` returns."""
QUICK: Final = {
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "200",
    "socket.nagle.disable": "true",
    "log_level": "0",
}
"""Client settings for nodes on the same machine, which a test may end and start again."""
WRITING: Final = {
    "linger.ms": "0",
    "acks": "all",
    "socket.timeout.ms": "10000",  # longer than a broker's session of 9 s, after which another one leads
    "message.timeout.ms": "15000",
    "topic.metadata.refresh.interval.ms": "1000",
    "topic.metadata.propagation.max.ms": "1000",  # how long a topic may be unknown before that is an error
}
WRITING_S: Final = 20.0
"""The time (seconds) for which a produced record is waited for. It is longer than `message.timeout.ms`, so that
librdkafka drops the record first.
"""
GIVEN_UP: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
READING: Final = {
    "group.id": "moldau-testing",  # librdkafka wants one; nothing is committed
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "1",
}


class ConfluentClient:
    """A `Client` that uses confluent-kafka (librdkafka). `settings` are those of `Cluster.client_settings`. Connections
    are made when a method first needs them.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings: dict[str, Any] = {**QUICK, **settings}
        self._administrator: AdminClient | None = None
        self._producer: Producer | None = None

    def create_topic(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        topic = NewTopic(name, partitions, replicas, config=dict(settings))
        for is_repeated in (False, True):
            try:
                _result(self._admin().create_topics([topic], operation_timeout=TIMEOUT_S)[name])
                return
            except KafkaException as problem:
                # librdkafka drops a request to a broker that its metadata does not name any more. It is sent again.
                code = problem.args[0].code()
                if is_repeated and code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return
                if is_repeated or code != KafkaError._DESTROY_BROKER:
                    raise

    def delete_topics(self, names: Sequence[str], *, waits: bool = True) -> None:
        deletions = self._admin().delete_topics(list(names), operation_timeout=TIMEOUT_S) if names else {}
        for deletion in deletions.values() if waits else ():
            _result(deletion)

    def topics(self) -> list[str]:
        return sorted(name for name in self._admin().list_topics(timeout=TIMEOUT_S).topics if name[:2] != "__")

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Record:
        if self._producer is None:
            self._producer = Producer({**self._settings, **WRITING})
        producer = self._producer
        reports: list[tuple[KafkaError | None, Message]] = []
        place = ANY_PARTITION if partition is None else partition
        producer.produce(
            topic,
            value,
            key,
            headers=list(headers),
            partition=place,
            timestamp=timestamp_ms or 0,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
        producer.flush(WRITING_S)
        if not reports:  # Another record would wait behind this one: it is given up, with the producer that holds it.
            self._producer = None
            producer.purge()
            producer.flush(0)
        error, message = reports[0] if reports else (KafkaError(KafkaError._MSG_TIMED_OUT), None)
        if error is not None and error.code() in GIVEN_UP:
            raise not_acknowledged(topic)
        if error is not None or message is None:
            raise KafkaException(error)
        offset, index = message.offset(), message.partition()
        assert offset is not None and index is not None
        return Record(topic, index, offset, value, key, tuple(headers), message.timestamp()[1])

    def ends(self, topic: str) -> dict[int, int]:
        # A request for one topic would create it.
        metadata = self._admin().list_topics(timeout=TIMEOUT_S).topics.get(topic)
        if metadata is None:
            return {}
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, index): latest for index in metadata.partitions}
        found = self._admin().list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S
        )
        return {place.partition: _result(offset).offset for place, offset in found.items()}

    def read(self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], timeout_s: float) -> list[Record]:
        missing = {index for index, end in ends.items() if begins.get(index, 0) < end}
        if not missing:
            return []
        # A new consumer reads within a few milliseconds; one that changes its topic waits for a second.
        consumer = Consumer({**self._settings, **READING})
        found: dict[int, list[Record]] = {index: [] for index in sorted(missing)}
        deadline = time.monotonic() + timeout_s
        try:
            consumer.assign([TopicPartition(topic, index, begins.get(index, 0)) for index in missing])
            while missing:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{topic} could not be read to its end within {timeout_s:g} s")
                for message in [*consumer.consume(1, left), *consumer.consume(BATCH_MAX, 0)]:
                    if message.error() is None:
                        _add(found, message, ends)
                    elif _is_end(message, ends):
                        # Without a record, as when retention deleted all of them, there is no position.
                        missing.discard(message.partition())
                # A position is behind the markers of transactions, which consumers do not see.
                places = consumer.position([TopicPartition(topic, index) for index in missing])
                missing -= {place.partition for place in places if place.offset >= ends[place.partition]}
        finally:
            consumer.close()
        return [record for records in found.values() for record in records]

    def committed(self, group: str) -> dict[Partition, int]:
        (answer,) = (
            self._admin()
            .list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=TIMEOUT_S)
            .values()
        )
        places = _result(answer).topic_partitions or []
        return {
            Partition(place.topic, place.partition): place.offset for place in places if place.offset != OFFSET_INVALID
        }

    def allow(self, permission: Permission) -> None:
        acl = AclBinding(*_acl_of(permission))
        _result(self._admin().create_acls([acl], request_timeout=TIMEOUT_S)[acl])

    def take_back(self, permissions: Sequence[Permission]) -> None:
        filters = [AclBindingFilter(*_acl_of(each)) for each in dict.fromkeys(permissions)]
        deletions = self._admin().delete_acls(filters, request_timeout=TIMEOUT_S) if filters else {}
        for deletion in deletions.values():
            _result(deletion)

    def close(self) -> None:
        self._administrator = self._producer = None

    def _admin(self) -> AdminClient:
        if self._administrator is None:
            self._administrator = AdminClient(self._settings)
        return self._administrator


def _acl_of(permission: Permission) -> tuple[Any, ...]:
    """The fields of librdkafka's `AclBinding` and `AclBindingFilter` for a permission."""
    return (
        ResourceType[permission.kind],
        permission.name,
        ResourcePatternType.LITERAL,
        f"User:{permission.user}",
        "*",
        AclOperation[permission.operation],
        AclPermissionType.ALLOW,
    )


def _result(future: Future[Any]) -> Any:
    return future.result(TIMEOUT_S)


def _is_end(message: Message, ends: Mapping[int, int]) -> bool:
    """Whether a message is the event that a partition was read up to its offset in `ends`."""
    error, index, offset = message.error(), message.partition(), message.offset()
    if error is None or error.code() != KafkaError._PARTITION_EOF or index is None or offset is None:
        return False
    return offset >= ends[index]


def _add(found: dict[int, list[Record]], message: Message, ends: Mapping[int, int]) -> None:
    index, offset, topic = message.partition(), message.offset(), message.topic()
    assert index is not None and offset is not None and topic is not None
    if index not in found or offset >= ends[index]:
        return
    kind, timestamp_ms = message.timestamp()
    value, key = message.value(), message.key()
    headers: Any = message.headers() or ()  # a list of pairs, though the type allows a dictionary
    found[index].append(
        Record(
            topic,
            index,
            offset,
            as_optional_bytes(value),
            as_optional_bytes(key),
            tuple(headers),
            -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        )
    )


def as_optional_bytes(text: str | bytes | None) -> bytes | None:
    """A value or key as bytes. In confluent-kafka's types it may also be a text, but consumers never return one."""
    return text.encode() if isinstance(text, str) else text
