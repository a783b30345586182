"""Conveniences for tests with topics, records and offsets, through the Kafka client that is installed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from moldau.testing.clients.port import Client, Headers, Partition, Permission, Record, Text, as_bytes, header_list
from moldau.testing.settings import texts_of

if TYPE_CHECKING:
    from moldau.testing.faults import Clock

TIMEOUT_S: Final = 10.0
"""The default time (seconds) for which conveniences wait for records."""
POLL_S: Final = 0.01
ACL_OPERATIONS: Final = {
    "TOPIC": ("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
    "GROUP": ("ALL", "READ", "DELETE", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
}
"""The operations that Apache Kafka checks, by kind of resource."""


class Conveniences(ABC):
    """Methods with which a test uses a cluster in one line. Every method raises the exceptions of the client
    library.
    """

    @property
    @abstractmethod
    def client(self) -> Client:
        """The client through which the methods work. Raises `NoClient` if no client library is installed."""

    @property
    @abstractmethod
    def users(self) -> tuple[str, ...] | None:
        """The users of a secure cluster besides `admin`; None if the cluster is not secure."""

    @property
    @abstractmethod
    def replicas(self) -> int:
        """The default number of replicas of a topic."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic. By default it has three replicas, or as many as there are nodes if that is less."""
        replicas_count = self.replicas if replicas is None else replicas
        self.client.create_topic(name, partitions, replicas_count, texts_of(settings or {}))

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.client.delete_topics([name])

    def topics(self) -> list[str]:
        """The names of all topics but internal ones, sorted."""
        return self.client.topics()

    def produce(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        """Write a record, and wait until it is acknowledged. Returns the record with its partition and offset. Texts
        are written in UTF-8. The default timestamp is the time of the client's clock.
        """
        return self.client.produce(
            topic, as_bytes(value, "the value"), as_bytes(key, "the key"), header_list(headers), partition, timestamp_ms
        )

    def records(self, topic: str, count: int | None = None, *, timeout_s: float = TIMEOUT_S) -> list[Record]:
        """The committed records of a topic, partition by partition. Without `count` these are the records that exist
        now. With `count` the method waits until there are at least that many, and raises AssertionError after
        `timeout_s` seconds."""
        if not isinstance(count, int | None):
            raise TypeError(
                f"the count is {count!r}: a number is needed, or nothing for the records that are there now"
            )
        return self._records_from(topic, {}, count, timeout_s)

    def replay(self, topic: str, into: str, *, speed: float | None = None, clock: Clock | None = None) -> int:
        """Write the committed records of a topic into the topic `into`, which must have as many partitions. Records are
        written in the order of their timestamps, with their keys, headers, partitions and timestamps. Returns the
        number of records.

        `speed`: the number of seconds of the records' timestamps that pass in one real second; None to write without
        pauses. `clock`: the clock of the cluster (`kafka.cluster.clock`), which is moved forward by the time between
        two records; None to leave it unchanged. Raises ValueError.
        """
        if speed is not None and not speed > 0:
            raise ValueError(f"speed is {speed!r}: a number above 0 is needed, such as 60 for a minute a second")
        records = sorted(self.records(topic), key=lambda record: record.timestamp_ms)
        reached_ms = records[0].timestamp_ms if records else 0
        for record in records:
            step_s = (record.timestamp_ms - reached_ms) / 1000
            reached_ms = record.timestamp_ms
            if step_s and speed is not None:
                time.sleep(step_s / speed)
            if step_s and clock is not None:
                clock.advance(seconds=step_s)
            self.client.produce(
                into, record.value, record.key, list(record.headers), record.partition, record.timestamp_ms
            )
        return len(records)

    @contextmanager
    def assert_produces(
        self, topic: str, count: int | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> Iterator[list[Record]]:
        """A context manager that checks that records are written to a topic within its block: exactly `count`, or at
        least one. It yields a list, which has the records when the block has ended.

        The check waits up to `timeout_s` seconds after the block. Raises AssertionError if there are fewer or more
        records.
        """
        begins = self.client.ends(topic)
        found: list[Record] = []
        yield found
        found += self._records_from(topic, begins, 1 if count is None else count, timeout_s)
        if count is not None and len(found) > count:
            raise AssertionError(f"{len(found)} records were written to {topic}, where {count} are expected")

    def committed(self, group: str) -> dict[Partition, int]:
        """The committed offsets of a group, by partition. A key equals the tuple `(topic, number)`."""
        return self.client.committed(group)

    def allow(self, user: str, operation: str, *, topic: str | None = None, group: str | None = None) -> None:
        """Let a user of a secure cluster do an operation, such as READ, WRITE or ALL, on a topic, on a group, or on
        both. "*" means all topics or all groups. Raises ValueError.
        """
        if self.users is None:
            raise ValueError(
                "permissions are those of a secure cluster: @pytest.mark.moldau(secure=True), or Cluster(secure=True)"
            )
        if user not in self.users:
            raise ValueError(f"{user} is not one of the users {', '.join(self.users)} (the argument users)")
        named = {kind: name for kind, name in (("TOPIC", topic), ("GROUP", group)) if name is not None}
        if not named:
            raise ValueError("name a topic or a group")
        for kind in named:
            if operation.upper() not in ACL_OPERATIONS[kind]:
                raise ValueError(
                    f"{operation} is not an operation on a {kind.lower()}: {', '.join(ACL_OPERATIONS[kind])}"
                )
        for kind, name in named.items():
            self._allow(Permission(user, operation.upper(), kind, name))

    def _allow(self, permission: Permission) -> None:
        self.client.allow(permission)

    def _records_from(self, topic: str, begins: Mapping[int, int], count: int | None, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        found: list[Record] = []
        reached = dict(begins)
        while True:
            ends = self.client.ends(topic)
            found += self.client.read(topic, reached, ends, max(deadline - time.monotonic(), 1.0))
            reached |= ends
            if count is None or len(found) >= count:
                return sorted(found, key=lambda record: (record.partition, record.offset))
            if time.monotonic() > deadline:
                missing = "" if ends else ": there is no such topic"
                raise AssertionError(f"{len(found)} of {count} records are in {topic} after {timeout_s:g} s{missing}")
            time.sleep(POLL_S)
