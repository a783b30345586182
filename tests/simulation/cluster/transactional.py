"""The transactional part of a swarm: applications of both protocols, read_committed readers, and what is owed at last.

Once all processes have ended, some of them in the middle of a transaction, every transaction must end by its timeout:
the last stable offset of every partition then reaches the high watermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation.cluster.plan import Fault, Plan
from tests.support.history import Key
from tests.support.transactions.application import TransactionalApplication
from tests.support.transactions.ledger import Ledger
from tests.support.transactions.producer import Identity
from tests.support.transactions.reader import CommittedReader
from tests.support.transactions.transformer import Transformer, differences

if TYPE_CHECKING:
    from tests.support.cluster import Cluster
    from tests.support.cluster_clients import Bootstrap

TOPIC: Final = "transfers"
RESULTS: Final = "results"
"""What is made of the transfers, partition by partition."""
PARTITIONS: Final = 3
TRANSFORMED: Final = 2
"""The first partitions, one by each protocol."""
TIMEOUT_MS: Final = 3000
"""Of a transaction."""
STABLE_S: Final = TIMEOUT_MS / 1000 + 10
"""How long the last stable offset may stay behind after the last producer has ended."""


class Transactional:
    """`bootstrap_of` gives each client its own way to the cluster, by its name."""

    def __init__(self, cluster: Cluster, plan: Plan, bootstrap_of: Callable[[str], Bootstrap], ledger: Ledger) -> None:
        self.ledger = ledger
        self._cluster = cluster
        self._plan = plan
        self._bootstrap_of = bootstrap_of
        sources: list[Key] = [(TOPIC, index) for index in range(PARTITIONS)] if plan.transactional else []
        self._keys = list(sources)
        self._is_over = False
        self._before: list[int] = []
        self._working: list[asyncio.Task[None]] = []
        self._transforming: list[asyncio.Task[None]] = []
        self._has_ended = False
        """Nothing more comes into the source of the transformers."""
        self._reading: list[asyncio.Task[None]] = []
        self._applications = [
            TransactionalApplication(
                Identity(f"t{protocol}-{number}", protocol, TIMEOUT_MS),
                sources,
                bootstrap_of,
                ledger,
                pause_s=plan.pause_s,
            )
            for number in range(plan.transactional)
            for protocol in (1, 2)
        ]

        self._transformers = [
            Transformer(
                Identity(f"x{index + 1}", index + 1, TIMEOUT_MS),
                (TOPIC, index),
                (RESULTS, index),
                bootstrap_of,
                ledger,
                pause_s=plan.pause_s,
            )
            for index in range(TRANSFORMED if plan.transactional and plan.transforms else 0)
        ]
        self._keys += [(RESULTS, index) for index in range(len(self._transformers))]

    @property
    def topics(self) -> tuple[str, ...]:
        return (TOPIC, RESULTS) if self._plan.transactional else ()

    async def begin(self, configs: dict[str, str]) -> None:
        """Create the topic, and start the clients."""
        if not self._plan.transactional:
            return
        await self._cluster.create(TOPIC, PARTITIONS, 3, **configs)
        if self._transformers:
            await self._cluster.create(RESULTS, TRANSFORMED, 3, **configs)
        loop = asyncio.get_running_loop()
        self._working = [loop.create_task(each.work()) for each in self._applications]
        transforming = [each.work(lambda: self._has_ended) for each in self._transformers]
        self._transforming = [loop.create_task(each) for each in transforming]
        for key in self._keys:
            for from_followers in (False, True):
                name = f"committed-{'any' if from_followers else 'tail'}-{key[0]}-{key[1]}"
                reader = self._reader(name, key, from_followers=from_followers)
                self._reading.append(loop.create_task(reader.work(lambda: self._is_over)))

    def _reader(
        self, name: str, key: Key, *, from_followers: bool = False, is_complete: bool = False
    ) -> CommittedReader:
        reading = self.ledger.reading(name, key, is_complete=is_complete)
        may_rot = Fault.BIT_ROT in self._plan.faults
        return CommittedReader(
            self._bootstrap_of(name), reading, self.ledger, from_followers=from_followers, may_rot=may_rot
        )

    def remember(self) -> None:
        """Every application owes a commit from here on."""
        self._before = [each.committed_count for each in self._applications]

    def has_progressed(self) -> bool:
        return all(each.committed_count > before for each, before in zip(self._applications, self._before, strict=True))

    async def end(self, patience_s: float) -> None:
        """Raises AssertionError and TimeoutError if a client or the last stable offset is stuck."""
        for application in self._applications:
            application.is_ending = True
        await asyncio.wait_for(asyncio.gather(*self._working), patience_s)
        await self._cluster.until(lambda: not self._unstable(), f"stable offsets, {self._unstable()}", STABLE_S)
        self._has_ended = True
        await asyncio.wait_for(asyncio.gather(*self._transforming), patience_s)
        await self._cluster.until(lambda: not self._unstable(), f"stable offsets, {self._unstable()}", STABLE_S)
        self._is_over = True
        await asyncio.wait_for(asyncio.gather(*self._reading), patience_s)
        for key in self._keys:
            final = self._reader("committed-final", key, is_complete=True)
            await asyncio.wait_for(final.work(lambda: True), patience_s)
        self._compare_effects()

    def _compare_effects(self) -> None:
        complete = {
            each.key: [f"{value}" for _, value in each.records] for each in self.ledger.readings if each.is_complete
        }
        for index in range(len(self._transformers)):
            self.ledger.complaints += differences(complete[TOPIC, index], complete[RESULTS, index])

    def _unstable(self) -> list[str]:
        """Partitions of which the last stable offset is behind the high watermark."""
        return [
            f"{each.topic}-{each.index} on {node.id}: {each.last_stable_offset} of {each.high_watermark}"
            for node in self._cluster.nodes.values()
            if node.is_up and node.broker is not None
            for each in node.broker.replicas
            if each.is_leader and each.last_stable_offset < each.high_watermark
        ]
