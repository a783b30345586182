"""Batches that expand too far to be examined on the event loop are examined in an executor thread, one at a time.

The connection that sent one is not read until it is appended: its requests stay in order, and so do the batches of each
partition. One at a time bounds the memory, and leaves most of the processor to other connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.runtime.environment import Environment
from protocol.record_validation import RejectedBatch, ValidBatch, examine_batch
from replication.partition import Partition

Examined = ValidBatch | RejectedBatch


class LargeBatch(NamedTuple):
    """A copy of what was sent for a partition; `append` is called with it once it is examined."""

    partition: Partition
    batch: bytearray
    now_ms: int
    produce_version: int
    append: Callable[[Examined], None]


class LargeBatches:
    """The queue of a broker."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._examining = asyncio.Lock()
        self.examined_count = 0
        self.waiting_bytes = 0
        """Bytes of the batches that are examined or wait for it."""

    async def examine(self, batches: list[LargeBatch]) -> None:
        """Examine and append each batch after those before it."""
        size = sum(len(each.batch) for each in batches)
        self.waiting_bytes += size
        try:
            for each in batches:
                each.append(await self._examined(each))
        finally:
            self.waiting_bytes -= size

    async def _examined(self, each: LargeBatch) -> Examined:
        # A log's settings are read before the wait: the batch is judged by those that were in force when it arrived.
        work = partial(examine_batch, each.batch, each.partition.log.config, each.now_ms, each.produce_version)
        async with self._examining:
            examined = await self._environment.offload(work)
        self.examined_count += 1
        return examined
