"""The transactions that this broker coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from moldau.broker.coordinators.shards import Shards
from moldau.broker.coordinators.transaction_row import transaction_row
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.coordinator.transaction.events import TransactionConfig
from moldau.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.coordinators.shard_runner import ShardRunner
    from moldau.broker.coordinators.transaction_row import Perform
    from moldau.coordinator.transaction.events import TransactionEvent
    from moldau.coordinator.transaction.records import TransactionChange
    from moldau.coordinator.transaction.shard import TransactionShard

    TransactionRunner: TypeAlias = ShardRunner[TransactionShard, TransactionEvent, TransactionChange]


class TransactionCoordinator:
    """The transaction coordinator.

    Its `shards` are registered in the registry of coordinators, which notifies them of partitions gained and lost.
    """

    def __init__(
        self,
        config: TransactionConfig,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        partitions_count: Callable[[str], int | None],
        next_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        perform: Perform,
    ) -> None:
        row = transaction_row(config, next_producer_id, transaction_version, perform)
        self.shards = Shards(row, environment, loop, spawn, partitions_count)

    def runner_of(self, transactional_id: str) -> TransactionRunner | ErrorCode:
        """The loaded shard of a transactional id, or the error of the request."""
        return self.shards.runner_of(transactional_id)

    @property
    def runners(self) -> list[TransactionRunner]:
        """All shards, loaded or not, in the order of their partitions."""
        return self.shards.runners
