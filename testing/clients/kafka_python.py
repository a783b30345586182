"""A client for the conveniences of a cluster through kafka-python."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import ACL, ACLOperation, ACLPermissionType, NewTopic, ResourcePattern, ResourceType  # type: ignore[import-untyped]
from kafka.errors import KafkaTimeoutError  # type: ignore[import-untyped]

from moldau.testing.clients.port import Partition, Permission, Record, not_acknowledged, record_of

TIMEOUT_S: Final = 15.0
POLL_MS: Final = 100
QUICK: Final = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 20}
"""Client settings for nodes on the same machine, which a test may end and start again."""
WRITING: Final = {"acks": "all", "max_block_ms": 15_000, "request_timeout_ms": 10_000, "delivery_timeout_ms": 15_000}
"""The settings of the producer. A request times out later than a broker's session of 9 s, after which another broker
leads.
"""
WRITING_S: Final = 20.0
"""The time (seconds) for which a produced record is waited for. It is longer than `delivery_timeout_ms`, so that
kafka-python drops the record first.
"""
READING: Final = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "fetch_max_wait_ms": 1,
    "allow_auto_create_topics": False,
}


class KafkaPythonClient:
    """A `Client` that uses kafka-python. `settings` are those of `Cluster.client_settings`. Connections are made when a
    method first needs them.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings: dict[str, Any] = {**QUICK, **settings}
        self._administrator: Any = None
        self._producer: Any = None
        self._consumer: Any = None
        self._lock = Lock()
        """Held while the administrator or the consumer is used: only one thread at a time may use them."""

    def create_topic(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        topic = NewTopic(name, partitions, replicas, topic_configs=dict(settings))
        with self._lock:
            self._admin().create_topics([topic], timeout_ms=int(TIMEOUT_S * 1000))

    def delete_topics(self, names: Sequence[str], *, waits: bool = True) -> None:
        """Delete topics, and wait until the cluster has deleted them: the library always waits, whatever `waits`
        says.
        """
        with self._lock:
            if names:
                self._admin().delete_topics(list(names), timeout_ms=int(TIMEOUT_S * 1000))

    def topics(self) -> list[str]:
        with self._lock:
            return sorted(name for name in self._admin().list_topics() if not name.startswith("__"))

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Record:
        with self._lock:
            if self._producer is None:
                self._producer = KafkaProducer(**self._settings, **WRITING)
            producer = self._producer
        try:
            written = producer.send(topic, value, key, list(headers), partition, timestamp_ms).get(WRITING_S)
        except KafkaTimeoutError:
            # A producer of 3.0 that gave a record up sends no other one to that node.
            with self._lock:
                if self._producer is producer:
                    self._producer = None
            producer.close(0)
            raise not_acknowledged(topic) from None
        return Record(topic, written.partition, written.offset, value, key, tuple(headers), written.timestamp)

    def ends(self, topic: str) -> dict[int, int]:
        with self._lock:
            if topic not in self._admin().list_topics():
                return {}
            reader = self._reader()
            places = [TopicPartition(topic, number) for number in reader.partitions_for_topic(topic) or ()]
            return {place.partition: end for place, end in reader.end_offsets(places).items()}

    def read(self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], timeout_s: float) -> list[Record]:
        missing = {number for number, end in ends.items() if begins.get(number, 0) < end}
        if not missing:
            return []
        with self._lock:
            return self._read(topic, begins, ends, missing, timeout_s)

    def committed(self, group: str) -> dict[Partition, int]:
        with self._lock:
            admin = self._admin()
            if hasattr(admin, "list_group_offsets"):  # since version 3
                found = admin.list_group_offsets(group).get(group, {})
            else:
                found = admin.list_consumer_group_offsets(group)
        return {
            Partition(place.topic, place.partition): committed.offset
            for place, committed in found.items()
            if committed.offset >= 0
        }

    def allow(self, permission: Permission) -> None:
        with self._lock:
            failed = self._admin().create_acls([_acl_of(permission)])["failed"]
        for _, error in failed:
            raise error

    def take_back(self, permissions: Sequence[Permission]) -> None:
        with self._lock:
            if permissions:
                self._admin().delete_acls([_acl_of(each) for each in dict.fromkeys(permissions)])

    def close(self) -> None:
        for each in (self._producer, self._consumer, self._administrator):
            if each is not None:
                each.close()
        self._producer = self._consumer = self._administrator = None

    def _read(
        self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], missing: set[int], timeout_s: float
    ) -> list[Record]:
        reader = self._reader()
        places = {number: TopicPartition(topic, number) for number in sorted(missing)}
        found: dict[int, list[Record]] = {number: [] for number in places}
        deadline = time.monotonic() + timeout_s
        reader.assign(list(places.values()))
        for number, place in places.items():
            reader.seek(place, begins.get(number, 0))
        while missing:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} could not be read to its end within {timeout_s:g} s")
            for place, messages in reader.poll(POLL_MS).items():
                number = place.partition
                found[number] += [record_of(each) for each in messages if each.offset < ends[number]]
            # A position is behind the markers of transactions, which consumers do not see.
            missing -= {number for number in missing if reader.position(places[number]) >= ends[number]}
        reader.unsubscribe()
        return [record for records in found.values() for record in records]

    def _admin(self) -> Any:
        if self._administrator is None:
            self._administrator = KafkaAdminClient(**self._settings)
        return self._administrator

    def _reader(self) -> Any:
        if self._consumer is None:
            self._consumer = KafkaConsumer(**self._settings, **READING)
        return self._consumer


def _acl_of(permission: Permission) -> Any:
    """The ACL of a permission, which is also the filter that matches it alone."""
    resource = ResourcePattern(ResourceType[permission.kind], permission.name)
    operation = ACLOperation[permission.operation]
    return ACL(f"User:{permission.user}", "*", operation, ACLPermissionType.ALLOW, resource)
