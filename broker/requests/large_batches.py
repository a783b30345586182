"""Batches that expand too far to be examined on the loop are examined beside it, one at a time.

The connection that sent one is not read until it is appended: its requests stay in order, and so do the batches of each
partition. One at a time bounds the memory, and leaves most of the processor to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from protocol.record_validation import Refusal, ValidBatch, examine_batch

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.node.node import Broker
    from replication.partition import Partition

Examined = ValidBatch | Refusal


class LargeBatch(NamedTuple):
    """A copy of what was sent for a partition, and who takes it once it is examined."""

    partition: Partition
    batch: bytearray
    now_ms: int
    produce_version: int
    append: Callable[[Examined], None]


class LargeBatches:
    """The queue of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turn = asyncio.Lock()
        self.examined_count = 0
        self.waiting_bytes = 0
        """Of batches that are examined or wait for it."""

    def examine(self, connection: Connection, batches: list[LargeBatch], done: Callable[[], None]) -> None:
        """Have each taken in its turn, then call `done`; meanwhile the connection is not read."""
        connection.hold()
        size = sum(len(each.batch) for each in batches)
        self.waiting_bytes += size
        self._broker.request_memory.keep(size)
        self._broker.spawn(connection.beside(self._examine(batches, size, done)))

    async def _examine(self, batches: list[LargeBatch], size: int, done: Callable[[], None]) -> None:
        try:
            for each in batches:
                each.append(await self._examined(each))
        finally:
            self.waiting_bytes -= size
            self._broker.request_memory.give_back(size)
        done()

    async def _examined(self, each: LargeBatch) -> Examined:
        """In its turn, beside the loop."""
        work = partial(examine_batch, each.batch, each.partition.log.config, each.now_ms, each.produce_version)
        async with self._turn:
            examined = await self._broker.environment.offload(work)
        self.examined_count += 1
        return examined
