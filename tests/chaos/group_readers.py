"""Members of one consumer group that read and commit through all faults: what is committed never goes back."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

SETTINGS: dict[str, str | int | bool] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 5_000,
    "log_level": 2,
}
COMMITTED_S = 0.3
"""How often a member commits what it has read."""


class Ledger:
    """What the members of one group were told, all together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.committed: dict[int, int] = {}
        """By partition, the highest offset whose commit was acknowledged."""
        self.read: dict[int, dict[int, None]] = {}
        """By partition, the offsets that some member got."""
        self.commits_count = 0
        self.problems: list[str] = []

    def check(self, partition: int, known: int, found: int, where: str) -> None:
        if found < known:
            self.problems.append(f"committed offset of partition {partition} went back {where}: {known}, then {found}")


class Member(threading.Thread):
    """One member of the group."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self.is_ending = False
        self._ledger = ledger
        self._topic = topic
        self._consumer = Consumer({**SETTINGS, "bootstrap.servers": bootstrap, "group.id": group})
        self._positions: dict[int, int] = {}
        self._first: dict[int, int] = {}
        """By partition that was just assigned, what was known to be committed then."""

    def run(self) -> None:
        consumer = self._consumer
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        due = time.monotonic() + COMMITTED_S
        while not self.is_ending:
            for message in consumer.consume(500, 0.1):
                partition, offset = message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    self._got(partition, offset)
            if time.monotonic() >= due:
                due = time.monotonic() + COMMITTED_S
                self._commit()
        self._commit()
        consumer.close()

    def _got(self, partition: int, offset: int) -> None:
        with self._ledger.lock:
            known = self._first.pop(partition, None)
            if known is not None:
                self._ledger.check(partition, known, offset, "when a member began to read")
            self._ledger.read.setdefault(partition, {})[offset] = None
        self._positions[partition] = offset + 1

    def _commit(self) -> None:
        if not self._positions:
            return
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in self._positions.items()]
        try:
            told = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            return  # a rebalance, or nobody answers: whether it counts is not known
        with self._ledger.lock:
            for each in told:
                if each.error is None:
                    self._ledger.commits_count += 1
                    before = self._ledger.committed.get(each.partition, 0)
                    self._ledger.committed[each.partition] = max(before, each.offset)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        with self._ledger.lock:
            for each in partitions:
                self._first[each.partition] = self._ledger.committed.get(each.partition, 0)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._lost(_, partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._positions.pop(each.partition, None)
            self._first.pop(each.partition, None)


class Group:
    """Its members, and the last word: what is committed at the end, and that everything was read by somebody."""

    def __init__(self, bootstrap: str, group: str, topic: str, members: int) -> None:
        self.ledger = Ledger()
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self._members = [Member(f"member-{i}", bootstrap, group, topic, self.ledger) for i in range(members)]

    def start(self) -> None:
        for member in self._members:
            member.start()

    @property
    def read_count(self) -> int:
        return sum(map(len, self.ledger.read.values()))

    def await_all(self, offsets: dict[int, list[int]], patience_s: float) -> None:
        """Until the members have read these offsets of each partition, then end; complaints go into the ledger."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and self._missing(offsets):
            time.sleep(0.1)
        for partition, missing in self._missing(offsets).items():
            text = f"partition {partition}: {len(missing)} records not read by the group, from offset {missing[0]}"
            self.ledger.problems.append(text)
        for member in self._members:
            member.is_ending = True
        for member in self._members:
            member.join(60)
        self._check_committed(list(offsets))

    def _missing(self, offsets: dict[int, list[int]]) -> dict[int, list[int]]:
        with self.ledger.lock:
            read = {partition: dict(each) for partition, each in self.ledger.read.items()}
        missing = {
            partition: [offset for offset in wanted if offset not in read.get(partition, {})]
            for partition, wanted in offsets.items()
        }
        return {partition: lacking for partition, lacking in missing.items() if lacking}

    def _check_committed(self, partitions: list[int]) -> None:
        consumer = Consumer({**SETTINGS, "bootstrap.servers": self._bootstrap, "group.id": self._group})
        found = consumer.committed([TopicPartition(self._topic, partition) for partition in partitions], timeout=30)
        consumer.close()
        for each in found:
            self.ledger.check(each.partition, self.ledger.committed.get(each.partition, 0), each.offset, "at the end")
