"""A shard of the transaction coordinator on a drawn stage."""

from __future__ import annotations

from random import Random

from moldau.coordinator.transaction.events import TransactionConfig
from moldau.coordinator.transaction.shard import TransactionShard
from tests.support.drawn_stage import DrawnStage, Watcher
from tests.support.transaction_stage import TransactionStage


class DrawnTransactionStage(DrawnStage[TransactionShard], TransactionStage):
    lacks_ids = 0.0
    """The probability that the broker has no producer id."""

    def __init__(self, random: Random, watcher: Watcher, config: TransactionConfig, transaction_version: int) -> None:
        super().__init__(random, watcher, config, transaction_version)

    def next_producer_id(self) -> int | None:
        return None if self.random.random() < self.lacks_ids else super().next_producer_id()
