"""What a campaign on three nodes adds for transactions: their producers, copiers and readers, and the verdict."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping
from statistics import median
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.chaos.copies import COPIES_TOPIC, Copies
from tests.chaos.processes import Broken
from tests.chaos.reading import Follower, read_all
from tests.chaos.transaction_verdict import miscopied, outcomes, stuck, torn
from tests.chaos.transactions import TRANSACTIONS_TOPIC, TransactionalLoad
from tests.support.history import History, Key
from tests.support.history_check import anomalies, told

COMMIT_PATIENCE_S: Final = 60.0
REPLACED_AFTER_S: Final = 25.0
COPY_PATIENCE_S: Final = 120.0
"""More than the timeout of a transaction that a client leaves open at the end."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 6
PRODUCERS: Final = 3
COPIERS: Final = 2
SHOWN: Final = 20


class Transactions:
    """`rate`: transactions a second of all producers together, the copies not counted."""

    def __init__(self, bootstrap: str, partitions: int, rate: float, seed: int) -> None:
        self.transactional_id = "t0"
        self.problems: list[str] = []
        self.silences_s: list[float] = []
        """From each fault until every producer and copier had committed a transaction."""
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._load = TransactionalLoad(bootstrap, partitions, PRODUCERS, rate, seed)
        self._copies = Copies(bootstrap, partitions, COPIERS)
        self._read = 0

    def topics(self, config: Mapping[str, str]) -> list[NewTopic]:
        return [
            NewTopic(name, num_partitions=self._partitions, replication_factor=3, config=dict(config))
            for name in (TRANSACTIONS_TOPIC, COPIES_TOPIC)
        ]

    def start(self) -> None:
        self._followers = [Follower(self._bootstrap, keys) for keys in (self._load.keys, self._copies.keys)]
        for follower in self._followers:
            follower.start()
        self._load.start()
        self._copies.start()

    def await_commits(self, began: float) -> float:
        """Until every producer and copier has committed after this time of the monotonic clock; how long after it.

        A copier that is silent for too long is replaced once, since the coordinators must serve a new client. Raises
        `Broken`.
        """
        replaced: list[str] = []
        while silent := [name for name, at in self._first_commits(began).items() if at is None]:
            if time.monotonic() - began > COMMIT_PATIENCE_S:
                waiting = {**self._load.waiting, **self._copies.waiting}
                told_last = {name: waiting[name] for name in silent}
                raise Broken(f"stuck: no commit {COMMIT_PATIENCE_S:.0f} s after a fault: {told_last}; {self.errors}")
            if time.monotonic() - began > REPLACED_AFTER_S:
                for name in silent:
                    if name in self._copies.commit_times and name not in replaced:
                        replaced.append(name)
                        self._copies.replace(name)
            time.sleep(0.01)
        waited_s = max(at - began for at in self._first_commits(began).values() if at is not None)
        self.silences_s.append(waited_s)
        return waited_s

    def _first_commits(self, began: float) -> dict[str, float | None]:
        times = {**self._load.commit_times, **self._copies.commit_times}
        firsts = {name: bisect_right(mine, began) for name, mine in times.items()}
        return {name: times[name][first] if first < len(times[name]) else None for name, first in firsts.items()}

    def judge(self) -> None:
        """End all clients, read everything and compare."""
        self._load.finish()
        sources = read_all(self._bootstrap, self._load.keys)
        deadline = time.monotonic() + COPY_PATIENCE_S
        while True:
            copies = read_all(self._bootstrap, self._copies.keys)
            if not miscopied(sources, copies) or time.monotonic() > deadline:
                break
            time.sleep(1)
        self._copies.finish()
        copies = read_all(self._bootstrap, self._copies.keys)
        for follower in self._followers:
            follower.is_ending = True
        for follower in self._followers:
            follower.join()
        transactions = self._load.transactions
        sends = [sent for transaction in transactions for sent in transaction]
        history = History(sends, [*self._followers[0].readings, *sources])
        self._read = sum(len(reading.records) for reading in sources)
        self.problems += told(anomalies(history))
        self.problems += torn(transactions, sources)
        self.problems += miscopied(sources, copies)
        self.problems += [f"a follower: {each.error}" for each in self._followers if each.error is not None]
        offsets_keys: list[Key] = [(OFFSETS_TOPIC, partition) for partition in range(OFFSETS_PARTITIONS)]
        try:
            self.problems += stuck(self._bootstrap, [*self._load.keys, *self._copies.keys, *offsets_keys])
        except KafkaException as error:
            self.problems.append(f"offsets are not told: {error}")

    @property
    def errors(self) -> list[str]:
        return [*self._load.errors, *self._copies.errors][-SHOWN:]

    def summary(self) -> dict[str, object]:
        return {
            "transactions": {how.value: count for how, count in outcomes(self._load.transactions).items()},
            "records_read_committed": self._read,
            "copies_committed": sum(map(len, self._copies.commit_times.values())),
            "incarnations": {"producers": self._load.incarnations, "copiers": self._copies.incarnations},
            "all_committed_after_s": {
                "median": round(median(self.silences_s), 2),
                "longest": round(max(self.silences_s), 2),
            },
            "copiers_replaced": self._copies.replaced,
            "told_to_clients": self.errors,
        }
