"""What clients do while a cluster is taken over: a producer, members of a classic group, of a consumer group and of a
share group, and a Streams application.

Nothing of what they do may be lost, and nothing may come again that was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.conformance.client import Client
from tests.conformance.clients import driver_of
from tests.conformance.committed import QUIET
from tests.conformance.outcome import Failed
from tests.conformance.secured.access import Access
from tests.conformance.share_member import ACCEPT, ShareMember, deliveries_after_end
from tests.conformance.streams.campaign import EXACTLY_ONCE, STREAMS, Brokers, Figures, Shop, concluded
from tests.conformance.streams.inputs import SPAN_MS, rounds
from tests.conformance.toolchain import Toolchain

PATIENCE_S: Final = 180
REQUEST_S: Final = 30
SEED: Final = 1
PAUSE_S: Final = 0.002
"""Between two records."""
READERS: Final = 2
"""Members of a classic group and of a consumer group."""
SHARER_KINDS: Final = ("java", "franz-go", "confluent")
"""The clients of the members of the share group."""


def value_of(number: int) -> bytes:
    """The members of the share group accept the record of such a value."""
    return f"{number}:{ACCEPT}".encode()


def number_of(value: bytes | str | None) -> int:
    text = value.decode() if isinstance(value, bytes) else value or ""
    return int(text.partition(":")[0])


class Sender:
    """A producer that sends numbered records without an end, and knows which of them were acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.longest_silence_s = 0.0
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
        # librdkafka may write a batch again under a new epoch if one behind it was refused out of order.
        self._producer = Producer({**settings, "max.in.flight.requests.per.connection": 1, **QUIET})
        self._topic = topic
        self._ends = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        number = 0
        while not self._ends.is_set():
            try:
                self._producer.produce(self._topic, value_of(number), on_delivery=self._note)
                number += 1
            except BufferError:
                pass
            self._producer.poll(PAUSE_S)
        self._producer.flush(PATIENCE_S)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        self.longest_silence_s, self._last = max(self.longest_silence_s, now - self._last), now
        if error is None:
            self.acknowledged.append(number_of(message.value()))

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


class GroupReader:
    """The members of a group that read the topic all the time, with the protocol `classic` or `consumer`."""

    def __init__(self, bootstrap: str, group: str, protocol: str, topic: str) -> None:
        self._group = group
        self._topic = topic
        self._read: set[int] = set()
        self._ends = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
        self._settings = {**settings, "auto.offset.reset": "earliest", **QUIET}
        self._threads = [threading.Thread(target=self._follow) for _ in range(READERS)]
        for each in self._threads:
            each.start()

    def _follow(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        with closing(consumer):
            while not self._ends.is_set():
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    self._read.add(number_of(message.value()))

    def await_all(self, numbers: Sequence[int]) -> None:
        """Until the group has read all of these records."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := set(numbers) - self._read:
            if time.monotonic() > deadline:
                raise Failed(f"{self._group} has not read {len(missing)} records: {sorted(missing)[:10]}")
            time.sleep(0.5)

    def close(self) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()


class Sharers:
    """Members of a share group, each a driver process of another client, that accept every record that they get."""

    def __init__(self, toolchain: Toolchain, bootstrap: str, group: str, topic: str, directory: Path) -> None:
        self.killed = 0
        self._toolchain = toolchain
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._directory = directory
        self._drivers: dict[str, Client] = {}
        self._members: dict[str, ShareMember] = {}
        self._former: list[ShareMember] = []
        for kind in SHARER_KINDS:
            self.join(kind)

    def join(self, kind: str) -> None:
        log = self._directory / f"sharer-{kind}.log"
        driver = self._drivers[kind] = driver_of(kind, self._toolchain, self._bootstrap, log)
        name = f"{kind}-{self.killed}"
        self._members[kind] = ShareMember(driver, name, self._group, self._topic, count=100)

    def kill(self, kind: str) -> None:
        """Kill -9: what it has not acknowledged is delivered again once its locks are over."""
        member = self._members.pop(kind)
        member.look_before_death()
        self._drivers.pop(kind).close()
        self._former.append(member)
        self.killed += 1

    def look(self) -> list[ShareMember]:
        """Every member, with what happened until now."""
        for member in self._members.values():
            member.look()
        return [*self._former, *self._members.values()]

    def await_all(self, numbers: Sequence[int], lag_of: Callable[[], int]) -> None:
        """Until these records were delivered, and the brokers say that no record is left to acknowledge. The members
        may know of fewer acknowledgements: a confirmation is lost with its connection. Raises `Failed`.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            seen = {number_of(each.value) for member in self.look() for each in member.deliveries}
            missing = set(numbers) - seen
            if not missing and (lag := lag_of()) == 0:
                return
            if time.monotonic() > deadline:
                said = f"{len(missing)} records were not delivered: {sorted(missing)[:10]}" if missing else f"lag {lag}"
                raise Failed(f"share group: {said}")
            time.sleep(1)

    def check(self) -> str:
        """No record came again after its acknowledgement was confirmed. Raises `Failed`. The figures, as text."""
        members = self.look()
        again = deliveries_after_end(members)
        if again:
            raise Failed(f"{len(again)} were delivered again after their acknowledgement: {again[:5]}")
        deliveries = sum(len(member.deliveries) for member in members)
        confirmed = len({place for member in members for place, _ in member.confirmed})
        return f"{deliveries:,} delivered to the share group, {confirmed:,} confirmed, {self.killed} members killed"

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.close()


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """What the group has committed of each partition, below 0 if it has not."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
    with closing(consumer):
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return [place.offset for place in consumer.committed(places, timeout=REQUEST_S)]


def times_stored(bootstrap: str, topic: str, partitions: int) -> Counter[int]:
    """How often each number is in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: Counter[int] = Counter()
    with closing(consumer):
        for partition in range(partitions):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=REQUEST_S)
            consumer.assign([place])
            position = 0
            while position < end:
                message = consumer.poll(REQUEST_S)
                if message is None or message.error() is not None:
                    raise Failed(f"partition {partition} cannot be read at {position} of {end}: {message}")
                found[number_of(message.value())] += 1
                position = (message.offset() or 0) + 1
    return found


class MovingShop(Shop):
    """Two instances of the shop with the streams protocol, fed in a thread until they are concluded."""

    def __init__(self, brokers: Brokers, toolchain: Toolchain, directory: Path) -> None:
        access = Access(brokers.bootstrap, {"group.protocol": STREAMS})
        super().__init__(brokers, toolchain, directory, EXACTLY_ONCE, access)
        self.rounds = 0
        self._failure: Failed | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._feed)

    def begin(self) -> None:
        for instance in self.instances:
            instance.start()
        self._thread.start()

    def _feed(self) -> None:
        first_ms = int(time.time() * 1000) // 60_000 * 60_000 - SPAN_MS
        try:
            for given in rounds(SEED, first_ms):
                self.round(given)
                self.rounds += 1
                if self._ends.is_set():
                    return
        except Failed as failed:
            self._failure = failed

    def close(self) -> None:
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()

    def conclude(self) -> Figures:
        """What is stored once the application has stopped; it equals the truth. Raises `Failed`."""
        self.close()
        if self._failure is not None:
            raise self._failure
        return concluded(self)
