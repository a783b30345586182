"""A process with a transactional id: it writes transactions, dies in the middle of some, and is taken over by another.

The process before goes on for a while in some cases, as a zombie that has not heard of its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from moldau.protocol.record_builder import Record
from tests.support.cluster_clients import Bootstrap
from tests.support.history import Key
from tests.support.transactions.connections import Connections
from tests.support.transactions.ledger import Attempt, Ledger
from tests.support.transactions.producer import GaveUp, Identity, Refused, TransactionalProducer, plain_record

ABORTS: Final = 0.2
DIES: Final = 0.04
"""The share of transactions in which the process dies; in as many, another process takes over while this one
continues.
"""
STAYS_DEAD: Final = 0.4
BATCHES_MAX: Final = 4
ZOMBIE_TRANSACTIONS: Final = 3


class Died(Exception):
    """The process is gone, and its transaction is open."""


class TransactionalApplication:
    """All processes of one transactional id."""

    def __init__(
        self,
        identity: Identity,
        keys: list[Key],
        bootstrap_of: Callable[[str], Bootstrap],
        ledger: Ledger,
        *,
        pause_s: float,
        record_of: Callable[[str], Record] = plain_record,
    ) -> None:
        """`record_of`: the record of a name; each name is asked for once."""
        self.identity = identity
        self.is_ending = False
        self.committed_count = 0
        self._keys = keys
        self._bootstrap_of = bootstrap_of
        self._ledger = ledger
        self._pause_s = pause_s
        self._record_of = record_of
        self._incarnation = 0
        self._connections: list[Connections] = []
        self._zombies: list[asyncio.Task[None]] = []

    async def work(self) -> None:
        """Run transactions until the story ends; the last process may leave its transaction open."""
        while not self.is_ending:
            producer, connections = self._next_process()
            try:
                await producer.start()
                await self._live(producer, connections.random)
            except (Refused, GaveUp):
                pass
            except Died:
                if connections.random.random() < STAYS_DEAD and not self.is_ending:
                    await asyncio.sleep(self.identity.timeout_ms / 1000 * connections.random.random() * 2)
        await asyncio.gather(*self._zombies, *(task for each in self._connections for task in each.late))
        for each in self._connections:
            each.close()

    def _next_process(self) -> tuple[TransactionalProducer, Connections]:
        self._incarnation += 1
        name = f"{self.identity.name}.{self._incarnation}"
        connections = Connections(self._bootstrap_of(name))
        self._connections.append(connections)
        return TransactionalProducer(name, self.identity, connections, self._ledger, self._record_of), connections

    async def _live(self, producer: TransactionalProducer, random: Random) -> None:
        """One process, until it ends or is taken over."""
        while True:
            before = producer.committed_count
            await self._transaction(producer, random, may_die=True)
            self.committed_count += producer.committed_count - before
            if self.is_ending:
                return
            if random.random() < DIES:
                self._zombies = [task for task in self._zombies if not task.done()]
                self._zombies.append(asyncio.get_running_loop().create_task(self._haunt(producer, random)))
                return
            await asyncio.sleep(random.random() * 2 * self._pause_s)

    async def _haunt(self, producer: TransactionalProducer, random: Random) -> None:
        """A process goes on that has been taken over, or is about to be."""
        try:
            for _ in range(ZOMBIE_TRANSACTIONS):
                await self._transaction(producer, random, may_die=False)
                await asyncio.sleep(random.random() * 10 * self._pause_s)
        except (Refused, GaveUp):
            pass

    async def _transaction(self, producer: TransactionalProducer, random: Random, *, may_die: bool) -> None:
        """One transaction. An error of a record aborts it; the process goes on if it still has the id."""
        attempt = producer.begin()
        try:
            await self._write(producer, attempt, random)
        except (Refused, GaveUp) as error:
            is_fenced = isinstance(error, Refused) and error.error.name in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
            if not is_fenced or random.random() < 0.5:
                await producer.end(attempt, is_commit=False)
            await producer.go_on()
            return
        if may_die and random.random() < DIES:
            raise Died
        await producer.end(attempt, is_commit=random.random() >= ABORTS)

    async def _write(self, producer: TransactionalProducer, attempt: Attempt, random: Random) -> None:
        for batch in range(random.randint(1, BATCHES_MAX)):
            values = [f"{attempt.name}/{batch}.{i}" for i in range(random.randint(1, 2))]
            await producer.produce(attempt, random.choice(self._keys), values)
            if random.random() < 0.3:
                await asyncio.sleep(random.random() * 2 * self._pause_s)
