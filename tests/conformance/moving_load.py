"""What clients do while a cluster is taken over: members of a share group, and a Streams application.

Nothing of what they do may be lost, and nothing may come again that was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, ShareConsumer, TopicPartition

from tests.conformance.outcome import Failed
from tests.conformance.secured.access import Access
from tests.conformance.streams.campaign import EXACTLY_ONCE, STREAMS, Brokers, Figures, Shop, concluded
from tests.conformance.streams.inputs import SPAN_MS, rounds
from tests.conformance.toolchain import Toolchain

PATIENCE_S: Final = 180
SEED: Final = 1


class ShareReaders:
    """Two members of a share group that accept every record that they get."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.deliveries = 0
        """Records delivered, those that came again included."""
        self.again: list[tuple[int, int]] = []
        """Partitions and offsets of records that were delivered after the broker had confirmed an acknowledgement."""
        self.errors: list[str] = []
        """What a poll raised instead of giving records."""
        self._settings = {"bootstrap.servers": bootstrap, "group.id": group}
        self._topic = topic
        self._numbers: set[int] = set()
        self._acknowledged: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._follow) for _ in range(2)]
        for each in self._threads:
            each.start()

    def _follow(self) -> None:
        consumer = ShareConsumer(self._settings)
        consumer.set_acknowledgement_commit_callback(self._confirmed)
        consumer.subscribe([self._topic])
        with closing(consumer):
            while not self._ends.is_set():
                try:
                    messages = consumer.poll(0.5)
                except KafkaException as error:
                    self.errors.append(str(error))
                    continue
                for message in messages:
                    if message.error() is None:
                        self._delivered(message)

    def _delivered(self, message: Any) -> None:
        place = message.partition(), message.offset()
        with self._lock:
            self.deliveries += 1
            self._numbers.add(int(message.value()))
            if place in self._acknowledged:
                self.again.append(place)

    def _confirmed(self, offsets: Mapping[TopicPartition, set[int]], error: Exception | None) -> None:
        if error is not None:
            return
        with self._lock:
            self._acknowledged |= {(place.partition, offset) for place, each in offsets.items() for offset in each}

    @property
    def acknowledged(self) -> int:
        return len(self._acknowledged)

    def await_all(self, numbers: Sequence[int], lag_of: Callable[[], int]) -> None:
        """Until these records were delivered, and the brokers say that no record is left to acknowledge. The members
        may know of fewer acknowledgements: a confirmation is lost with its connection. Raises `Failed`.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with self._lock:
                missing = set(numbers) - self._numbers
            if not missing and (lag := lag_of()) == 0:
                return
            if time.monotonic() > deadline:
                said = f"{len(missing)} records were not delivered: {sorted(missing)[:10]}" if missing else f"lag {lag}"
                raise Failed(f"share group: {said}; {self.acknowledged} of {len(numbers)} are acknowledged")
            time.sleep(0.5)

    def close(self) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()


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
