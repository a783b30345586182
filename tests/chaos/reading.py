"""Readers: one that follows a partition through all faults, and one that reads everything at the end."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.support.history import Key, Reading

SETTINGS: dict[str, str | int | bool] = {
    "group.id": "chaos",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "check.crcs": True,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "log_level": 2,
}


class Unreadable(Exception):
    """A reader was told something that no fault explains."""


def _take(consumer: Consumer, readings: dict[int, Reading], at_end: set[int], timeout_s: float) -> None:
    """What came, if anything; partitions whose end was met are noted in `at_end`."""
    for message in consumer.consume(1000, timeout_s):
        partition, offset, error = message.partition(), message.offset(), message.error()
        assert partition is not None and offset is not None
        if error is None:
            readings[partition].got(offset, (message.value() or b"").decode())
            at_end.discard(partition)
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(partition)
        elif not error.retriable() and error.code() not in _PASSING:
            raise Unreadable(f"partition {partition} at offset {offset}: {error.name()}: {error.str()}")


_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)


def _begin(bootstrap: str, keys: list[Key], name: str, *, is_complete: bool) -> tuple[Consumer, dict[int, Reading]]:
    consumer = Consumer({**SETTINGS, "bootstrap.servers": bootstrap})
    consumer.assign([TopicPartition(*key, 0) for key in keys])
    return consumer, {key[1]: Reading(name, key, is_complete=is_complete) for key in keys}


def read_all(bootstrap: str, keys: list[Key], timeout_s: float = 300) -> list[Reading]:
    """Every partition from its first record to its end."""
    consumer, readings = _begin(bootstrap, keys, "final", is_complete=True)
    at_end: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while len(at_end) < len(keys):
        if time.monotonic() > deadline:
            raise Unreadable(f"only {sorted(at_end)} of {len(keys)} partitions were read to their end")
        _take(consumer, readings, at_end, 0.2)
    consumer.close()
    return list(readings.values())


class Follower(threading.Thread):
    """Reads along while the brokers come and go."""

    def __init__(self, bootstrap: str, keys: list[Key]) -> None:
        super().__init__(name="follower", daemon=True)
        self.is_ending = False
        self.error: str | None = None
        self._consumer, self._readings = _begin(bootstrap, keys, "follower", is_complete=False)

    @property
    def readings(self) -> list[Reading]:
        return list(self._readings.values())

    def run(self) -> None:
        try:
            while not self.is_ending:
                _take(self._consumer, self._readings, set(), 0.2)
        except Unreadable as unreadable:
            self.error = str(unreadable)
        self._consumer.close()
