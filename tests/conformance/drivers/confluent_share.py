"""A member of a share group on confluent-kafka; the value of a record says what becomes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer, TopicPartition

from tests.conformance.record import Json


def verdict(value: str, count: int) -> AcknowledgeType:
    verb = value.partition(":")[2]
    if verb == "reject":
        return AcknowledgeType.REJECT
    return AcknowledgeType.RELEASE if verb == "release" or (verb == "late" and count == 1) else AcknowledgeType.ACCEPT


class ShareMember:
    """One consumer with the thread that polls it."""

    def __init__(self, config: dict[str, str | int | bool], topic: str) -> None:
        self._lock = threading.Lock()
        self._delivered: list[Json] = []
        self._confirmed: list[Json] = []
        self._stopping = False
        self._consumer = ShareConsumer({**config, "share.acknowledgement.mode": "explicit"})
        self._consumer.set_acknowledgement_commit_callback(self._acknowledged)
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stopping:
            try:
                for message in self._consumer.poll(0.2):
                    if message.error() is None:
                        self._decide(message)
                self._consumer.commit_sync()
            except KafkaException:
                continue  # A broker was away: what it had not confirmed comes again.
        self._consumer.close()

    def _decide(self, message: Message) -> None:
        value = (message.value() or b"").decode()
        count = message.delivery_count() or 0
        place: dict[str, Json] = {"p": message.partition(), "o": message.offset(), "t": int(time.time() * 1000)}
        with self._lock:
            self._delivered.append({**place, "n": count, "v": value})
        self._consumer.acknowledge(message, verdict(value, count))

    def _acknowledged(self, offsets: Mapping[TopicPartition, set[int]], error: Exception | None) -> None:
        now = int(time.time() * 1000)
        if error is None:
            with self._lock:
                self._confirmed += [
                    {"p": place.partition, "o": offset, "t": now} for place, each in offsets.items() for offset in each
                ]

    def state(self, *, is_last: bool = False) -> object:
        """What happened since the last call. After the last one no further record is acknowledged."""
        self._lock.acquire()
        told: object = {"delivered": self._delivered, "confirmed": self._confirmed}
        self._delivered, self._confirmed = [], []
        if not is_last:
            self._lock.release()
        return told

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
