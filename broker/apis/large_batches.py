"""Large batches, whose decompressed records are validated in an executor thread, one batch at a time.

The connection is not read until its batch is appended, so that its requests stay in order, and so do the batches of
each partition. One at a time bounds the memory, and leaves most of the processor to other connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from moldau.broker.runtime.environment import Environment
from moldau.protocol.record_validation import RejectedBatch, ValidBatch, examine_batch
from moldau.replication.partition import Partition

Examined = ValidBatch | RejectedBatch


class LargeBatch(NamedTuple):
    """A copy of the bytes of a batch for one partition. `append` is called with it once it is validated."""

    partition: Partition
    batch: bytearray
    now_ms: int
    produce_version: int
    append: Callable[[Examined], None]


class LargeBatches:
    """The queue of the large batches of a broker."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._examining = asyncio.Lock()
        self.examined_count = 0
        self.waiting_bytes = 0
        """The bytes of the batches that are being examined, or wait for it."""

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
        # The log's settings at the time of arrival apply to the batch.
        work = partial(examine_batch, each.batch, each.partition.log.config, each.now_ms, each.produce_version)
        async with self._examining:
            examined = await self._environment.offload(work)
        self.examined_count += 1
        return examined
