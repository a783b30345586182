"""A client for the conveniences of a cluster through aiokafka. Its event loop runs in a thread of its own, because the
test's thread may have another loop, which runs already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from threading import Thread
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]
from aiokafka.errors import KafkaTimeoutError, RequestTimedOutError, for_code  # type: ignore[import-untyped]

from moldau.testing.clients.port import NoClient, Partition, Permission, Record, not_acknowledged, record_of

T = TypeVar("T")
TIMEOUT_S: Final = 15.0
POLL_MS: Final = 100
WRITING: Final = {"acks": "all", "request_timeout_ms": 15_000}
"""The settings of the producer. After `request_timeout_ms` without an acknowledgement aiokafka drops a record."""
WRITING_S: Final = 20.0
READING: Final = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "fetch_max_wait_ms": 1,
}


class AiokafkaClient:
    """A `Client` that uses aiokafka. `settings` are those of `Cluster.client_settings`. Connections are made when a
    method first needs them.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings: dict[str, Any] = {"retry_backoff_ms": 20, **settings}
        self._administrator: Any = None
        self._producer: Any = None
        self._consumer: Any = None
        self._starting = asyncio.Lock()
        self._reading = asyncio.Lock()
        """Held while the consumer is used, because it can have only one assignment at a time."""
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="moldau-testing-aiokafka", daemon=True)
        self._thread.start()

    def create_topic(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        self._run(self._create_topic(NewTopic(name, partitions, replicas, topic_configs=dict(settings))))

    def delete_topics(self, names: Sequence[str], *, waits: bool = True) -> None:
        if names:
            deleting = asyncio.run_coroutine_threadsafe(self._delete_topics(list(names)), self._loop)
            if waits:
                deleting.result(TIMEOUT_S)

    def topics(self) -> list[str]:
        return sorted(name for name in self._run(self._topics()) if not name.startswith("__"))

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Record:
        try:
            written = self._run(self._produce(topic, value, key, headers, partition, timestamp_ms), WRITING_S)
        except (KafkaTimeoutError, RequestTimedOutError, TimeoutError):
            raise not_acknowledged(topic) from None
        return Record(topic, written.partition, written.offset, value, key, tuple(headers), written.timestamp)

    def ends(self, topic: str) -> dict[int, int]:
        return self._run(self._ends(topic))

    def read(self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], timeout_s: float) -> list[Record]:
        missing = {number for number, end in ends.items() if begins.get(number, 0) < end}
        if not missing:
            return []
        try:
            return self._run(asyncio.wait_for(self._read(topic, begins, ends, missing), timeout_s), timeout_s + 1)
        except TimeoutError:
            raise TimeoutError(f"{topic} could not be read to its end within {timeout_s:g} s") from None

    def committed(self, group: str) -> dict[Partition, int]:
        return self._run(self._committed(group))

    def allow(self, permission: Permission) -> None:
        """Raise `NoClient`, because aiokafka has no requests for ACLs."""
        raise NoClient("aiokafka cannot create ACLs: pip install confluent-kafka, or kafka-python")

    def take_back(self, permissions: Sequence[Permission]) -> None:
        """Do nothing, because `allow` has created no ACL."""

    def close(self) -> None:
        try:
            self._run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT_S)
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float = TIMEOUT_S) -> T:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(timeout_s)
        finally:
            running.cancel()  # no effect on one that has ended

    # On the thread of the loop

    async def _create_topic(self, topic: Any) -> None:
        answer = await (await self._admin()).create_topics([topic], timeout_ms=int(TIMEOUT_S * 1000))
        _raise_error((entry[1], entry[2]) for entry in answer.topic_errors)

    async def _delete_topics(self, names: list[str]) -> None:
        answer = await (await self._admin()).delete_topics(names, timeout_ms=int(TIMEOUT_S * 1000))
        _raise_error((entry[1], None) for entry in answer.topic_error_codes)

    async def _topics(self) -> list[str]:
        names: list[str] = await (await self._admin()).list_topics()
        return names

    async def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Any:
        async with self._starting:
            if self._producer is None:
                self._producer = await _started(AIOKafkaProducer(**self._settings, **WRITING))
        return await self._producer.send_and_wait(topic, value, key, partition, timestamp_ms, headers)

    async def _ends(self, topic: str) -> dict[int, int]:
        if topic not in await self._topics():
            return {}
        (described,) = await (await self._admin()).describe_topics([topic])
        places = [TopicPartition(topic, each["partition"]) for each in described["partitions"]]
        found = await (await self._reader()).end_offsets(places)
        return {place.partition: end for place, end in found.items()}

    async def _read(
        self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], missing: set[int]
    ) -> list[Record]:
        async with self._reading:
            reader = await self._reader()
            places = {number: TopicPartition(topic, number) for number in sorted(missing)}
            found: dict[int, list[Record]] = {number: [] for number in places}
            reader.assign(list(places.values()))
            for number, place in places.items():
                reader.seek(place, begins.get(number, 0))
            while missing:
                for place, messages in (await reader.getmany(timeout_ms=POLL_MS)).items():
                    number = place.partition
                    found[number] += [record_of(each) for each in messages if each.offset < ends[number]]
                for number in sorted(missing):
                    # A position is behind the markers of transactions, which consumers do not see.
                    if await reader.position(places[number]) >= ends[number]:
                        missing.discard(number)
            reader.unsubscribe()
            return [record for records in found.values() for record in records]

    async def _committed(self, group: str) -> dict[Partition, int]:
        found = await (await self._admin()).list_consumer_group_offsets(group)
        return {
            Partition(place.topic, place.partition): committed.offset
            for place, committed in found.items()
            if committed.offset >= 0
        }

    async def _admin(self) -> Any:
        async with self._starting:
            if self._administrator is None:
                self._administrator = await _started(AIOKafkaAdminClient(**self._settings))
        return self._administrator

    async def _reader(self) -> Any:
        async with self._starting:
            if self._consumer is None:
                self._consumer = await _started(AIOKafkaConsumer(**self._settings, **READING))
        return self._consumer

    async def _close(self) -> None:
        for each in (self._producer, self._consumer):
            if each is not None:
                await each.stop()
        if self._administrator is not None:
            await self._administrator.close()


async def _started(part: Any) -> Any:
    """Connect a producer, consumer or administrator, and return it."""
    await part.start()
    return part


def _raise_error(entries: Any) -> None:
    for code, message in entries:
        if code:
            raise for_code(code)(message)
