"""Transactions in the compacted topic: their records have keys that other producers write as well.

No reader sees a record of an aborted transaction, at no time, and none is the latest of its key at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.cluster.plan import Fault, Plan
from tests.simulation.cluster.transactional import TIMEOUT_MS
from tests.support.history import History, Key, Reading
from tests.support.keyed_table import KeyedTable, name_of
from tests.support.transactions.application import TransactionalApplication
from tests.support.transactions.ledger import Ledger, Outcome
from tests.support.transactions.producer import Identity
from tests.support.transactions.reader import CommittedReader

if TYPE_CHECKING:
    from tests.support.cluster_clients import Bootstrap


class TransactionalTable:
    """`keys`: the partitions of the compacted topic; `history`: what is written there outside of transactions."""

    def __init__(
        self,
        table: KeyedTable,
        keys: list[Key],
        plan: Plan,
        bootstrap_of: Callable[[str], Bootstrap],
        history: History,
    ) -> None:
        self.ledger = Ledger()
        self._table = table
        self._keys = keys
        self._may_rot = Fault.BIT_ROT in plan.faults
        self._bootstrap_of = bootstrap_of
        self._history = history
        self._is_over = False
        self._working: list[asyncio.Task[None]] = []
        self._reading: list[asyncio.Task[None]] = []
        self._applications = [
            TransactionalApplication(
                Identity(f"k{protocol}", protocol, TIMEOUT_MS),
                keys,
                bootstrap_of,
                self.ledger,
                pause_s=plan.pause_s,
                record_of=table.record,
            )
            for protocol in ((1, 2) if plan.transactional and keys else ())
        ]

    def begin(self) -> None:
        """Start the clients; the topic is there."""
        loop = asyncio.get_running_loop()
        self._working = [loop.create_task(each.work()) for each in self._applications]
        for key in self._keys if self._applications else ():
            for from_followers in (False, True):
                name = f"table-{'any' if from_followers else 'tail'}-{key[1]}"
                reader = self._reader(name, self.ledger.reading(name, key), from_followers=from_followers)
                self._reading.append(loop.create_task(reader.work(lambda: self._is_over)))

    def _reader(self, name: str, reading: Reading, *, from_followers: bool = False) -> CommittedReader:
        return CommittedReader(
            self._bootstrap_of(name),
            reading,
            self.ledger,
            from_followers=from_followers,
            may_rot=self._may_rot,
            name_of=name_of,
        )

    async def stop(self, patience_s: float) -> None:
        """No more transactions begin. Raises TimeoutError if a client is stuck."""
        for application in self._applications:
            application.is_ending = True
        await asyncio.wait_for(asyncio.gather(*self._working), patience_s)

    async def finish(self, patience_s: float) -> list[str]:
        """Nothing is written any more, and every transaction has ended: read the table. Returns what cannot be."""
        self._is_over = True
        await asyncio.wait_for(asyncio.gather(*self._reading), patience_s)
        history = History(sends=list(self._history.sends))
        for key in self._keys:
            reading = self.ledger.reading("table-final", key, is_complete=True)
            history.readings.append(reading)
            await asyncio.wait_for(self._reader("table-final", reading).work(lambda: True), patience_s)
        aborted = {
            sent.value for each in self.ledger.attempts if each.outcome is Outcome.ABORTED for sent in each.sends
        }
        history.sends += [sent for sent in self.ledger.history().sends if sent.value not in aborted]
        found = [
            f"aborted-read: {reading.reader} read {value} at {offset} of {reading.key}"
            for reading in self.ledger.readings
            for offset, value in reading.records
            if value in aborted
        ]
        return [*self.ledger.complaints[:5], *found[:5], *self._table.problems(history)]
