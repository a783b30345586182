"""Producers that go on whatever happens to the brokers: idempotent, acks=all, each a thread with its own history."""

from __future__ import annotations

import threading
import time
from random import Random

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.support.history import OFFSET_UNKNOWN, Send

SETTINGS: dict[str, str | int | bool] = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "linger.ms": 2,
    "batch.num.messages": 50,
    "message.timeout.ms": 180_000,
    "socket.timeout.ms": 5_000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "log_level": 2,
}
QUEUED_MAX = 5_000


class Load:
    """So many producers over all partitions of one topic, at so many records a second together."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, producers: int, rate: int, seed: int) -> None:
        self.latest_sent_ns = dict.fromkeys(range(partitions), 0)
        """By partition, when the latest record left that is acknowledged."""
        self._producers = [
            _Producer(
                f"p{i}", bootstrap, topic, partitions, rate / producers, Random(f"{seed}/p{i}"), self.latest_sent_ns
            )
            for i in range(producers)
        ]

    def start(self) -> None:
        for producer in self._producers:
            producer.start()

    @property
    def acknowledged_count(self) -> int:
        return sum(producer.acknowledged_count for producer in self._producers)

    def finish(self) -> None:
        """Send nothing more, wait until all that was sent is acknowledged or given up."""
        for producer in self._producers:
            producer.is_ending = True
        for producer in self._producers:
            producer.join()

    @property
    def sends(self) -> list[Send]:
        return [sent for producer in self._producers for sent in producer.sends]

    @property
    def errors(self) -> list[str]:
        """What a producer was told that it could not retry: none is right while the data is on the disk."""
        return [error for producer in self._producers for error in producer.errors]


class _Producer(threading.Thread):
    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: float,
        random: Random,
        latest_sent_ns: dict[int, int],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.sends: list[Send] = []
        self.errors: list[str] = []
        self.acknowledged_count = 0
        self.is_ending = False
        self._servers = bootstrap
        self._topic = topic
        self._keys = [(topic, partition) for partition in range(partitions)]
        self._interval_s = 1 / rate
        self._random = random
        self._latest_sent_ns = latest_sent_ns
        self._incarnation = 0
        self._has_failed = False

    def run(self) -> None:
        while not self.is_ending:
            self._incarnation += 1
            self._has_failed = False
            self._produce(f"{self.name}.{self._incarnation}")

    def _produce(self, name: str) -> None:
        """One client, until the end or until it is told that it must not go on."""
        client = Producer({**SETTINGS, "bootstrap.servers": self._servers, "error_cb": self._told})
        due = time.monotonic()
        count = 0
        while not self.is_ending and not self._has_failed:
            client.poll(0)
            if len(client) < QUEUED_MAX and time.monotonic() >= due:
                due = max(due + self._interval_s, time.monotonic() - 0.1)
                self._send(client, name, count)
                count += 1
            else:
                client.poll(min(0.05, max(0.0005, due - time.monotonic())))
        client.flush(200)

    def _send(self, client: Producer, name: str, count: int) -> None:
        key = self._keys[int(self._random.random() * len(self._keys))]
        value = f"{name}/{count}"
        sent, sent_ns = Send(name, key, value), time.time_ns()
        self.sends.append(sent)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                # librdkafka takes a message for acknowledged that a later one's acknowledgement implies; it then has
                # no offset for it.
                offset = message.offset()
                sent.acknowledge(OFFSET_UNKNOWN if offset is None else offset)
                self.acknowledged_count += 1
                if sent_ns > self._latest_sent_ns[key[1]]:
                    self._latest_sent_ns[key[1]] = sent_ns
            else:
                self.errors.append(f"{value}: {error.name()}")

        try:
            client.produce(self._topic, value.encode(), partition=key[1], on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            sent.fail()
            self.errors.append(f"{value}: {error}")

    def _told(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"{self.name}.{self._incarnation}: {error.name()}: {error.str()}")
            self._has_failed = True
