"""Members of a group that read one topic and write it to another, offsets and records in one transaction each time."""

from __future__ import annotations

import threading
import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.chaos import group_readers, transactions
from tests.chaos.transactions import TRANSACTIONS_TOPIC, MustAbort, MustBeginAnew, Waiting, repeated
from tests.support.history import Key

COPIES_TOPIC: Final = "chaos-copies"
COPIERS_GROUP: Final = "chaos-copiers"
RECORDS_MAX: Final = 50
POLLS_MAX: Final = 60
POLL_S: Final = 0.01
POLL_INTERVAL_MS_MAX: Final = 15_000
"""After that long without a poll a member that hangs leaves the group."""
JOIN_S: Final = 150.0


class Copies:
    """Every committed record of `chaos-transactions` stands in `chaos-copies` once, whatever happened meanwhile."""

    def __init__(self, bootstrap: str, partitions: int, members: int) -> None:
        self.keys: list[Key] = [(COPIES_TOPIC, partition) for partition in range(partitions)]
        self.replaced: list[str] = []
        """The names of copiers whose client hung, once for each time."""
        self._bootstrap = bootstrap
        names = [f"c{number}" for number in range(members)]
        self.commit_times: dict[str, list[float]] = {name: [] for name in names}
        """By copier, when each commit was acknowledged, by the monotonic clock."""
        self._copiers = {name: _Copier(name, bootstrap, self.commit_times[name]) for name in names}
        self._all = list(self._copiers.values())

    def start(self) -> None:
        for copier in self._copiers.values():
            copier.start()

    def replace(self, name: str) -> None:
        """Leave a copier behind that hangs, and start another with its transactional id, as for a process that died.

        librdkafka 2.16 hangs in `send_offsets_to_transaction`, whatever its timeout is, if the group's coordinator
        was killed and is not in the cluster's metadata for a while (its issues 5456 and 5511).
        """
        self._copiers[name].is_ending = True
        self.replaced.append(name)
        self._copiers[name] = _Copier(name, self._bootstrap, self.commit_times[name])
        self._all.append(self._copiers[name])
        self._copiers[name].start()

    def finish(self) -> None:
        for copier in self._copiers.values():
            copier.is_ending = True
        for copier in self._copiers.values():
            copier.join(JOIN_S)

    @property
    def waiting(self) -> dict[str, str]:
        """By copier, what it was told of the call that it repeats."""
        return {name: copier.waiting.told for name, copier in self._copiers.items()}

    @property
    def incarnations(self) -> int:
        return sum(copier.incarnation for copier in self._all)

    @property
    def errors(self) -> list[str]:
        """What ended an incarnation: a rebalance between reading and committing does, too."""
        return [error for copier in self._all for error in copier.errors]


class _Copier(threading.Thread):
    def __init__(self, name: str, bootstrap: str, commit_times: list[float]) -> None:
        super().__init__(name=name, daemon=True)
        self.errors: list[str] = []
        self.incarnation = 0
        self.waiting = Waiting()
        self.commit_times = commit_times
        self.is_ending = False
        address = {"bootstrap.servers": bootstrap}
        self._producing = {**transactions.SETTINGS, **address, "transactional.id": name}
        self._consuming = {**group_readers.SETTINGS, **address, "group.id": COPIERS_GROUP}
        self._consuming |= {"isolation.level": "read_committed", "max.poll.interval.ms": POLL_INTERVAL_MS_MAX}
        self._taken: list[tuple[int, int, bytes]] = []
        """Partition, offset and value of what the next transaction copies."""

    def run(self) -> None:
        while not self.is_ending:
            self._live()

    def _live(self) -> None:
        """One incarnation: whatever it could not commit, the next one reads again from the committed offsets."""
        self.incarnation += 1
        self._taken.clear()
        producer, consumer = Producer(self._producing), Consumer(self._consuming)
        try:
            repeated(self.waiting, producer.init_transactions)
            consumer.subscribe([TRANSACTIONS_TOPIC], on_revoke=self._lost, on_lost=self._lost)
            while not self.is_ending:
                self._take(consumer)
                if self._taken:
                    self._copy(producer, consumer)
        except (KafkaException, MustAbort, MustBeginAnew) as told:
            self.errors.append(f"{self.name}.{self.incarnation}: {told}")
        consumer.close()

    def _lost(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._taken.clear()

    def _take(self, consumer: Consumer) -> None:
        """One at a time: a revocation that comes between two messages discards those before it and no other."""
        for _ in range(POLLS_MAX):
            message = consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            self._taken.append((partition, offset, message.value() or b""))
            if len(self._taken) == RECORDS_MAX:
                return

    def _copy(self, producer: Producer, consumer: Consumer) -> None:
        producer.begin_transaction()
        offsets: dict[int, int] = {}
        for partition, offset, value in self._taken:
            producer.produce(COPIES_TOPIC, value, partition=partition)
            offsets[partition] = offset + 1
        ends = [TopicPartition(TRANSACTIONS_TOPIC, partition, end) for partition, end in offsets.items()]
        group = consumer.consumer_group_metadata()
        try:
            repeated(self.waiting, lambda timeout_s: producer.send_offsets_to_transaction(ends, group, timeout_s))
            repeated(self.waiting, producer.commit_transaction)
        except MustAbort:
            repeated(self.waiting, producer.abort_transaction)
            raise
        self._taken.clear()
        self.commit_times.append(time.monotonic())
