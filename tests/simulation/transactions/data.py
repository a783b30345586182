"""Partitions that hold the records of transactions: which are open, and how each ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.coordinator.transaction.events import EPOCH_BUMP_VERSION, SendMarkers


@dataclass(slots=True, eq=False)
class Effort:
    """What a client does in one transaction: what it wants of it, what it is told, what the partitions say."""

    name: str
    producer_id: int
    producer_epoch: int
    asks_commit: bool = False
    """The client has sent an EndTxn that commits it."""
    asks_abort: bool = False
    told: bool | None = None
    """The outcome that the client was told."""
    ends: dict[str, bool] = field(default_factory=dict)
    """By partition, of those that hold records of it: whether it is committed there."""

    def __str__(self) -> str:
        return f"{self.name} of producer {self.producer_id}/{self.producer_epoch}"


@dataclass(slots=True)
class Partition:
    """The leader of a partition, as far as producers are concerned."""

    name: str
    open: dict[int, list[Effort]] = field(default_factory=dict)
    """By producer id."""
    epochs: dict[int, int] = field(default_factory=dict)
    """The highest epoch of each producer id."""
    coordinator_epochs: dict[int, int] = field(default_factory=dict)

    def write(self, effort: Effort) -> bool:
        """A record of a transaction whose partitions are verified; whether the epoch is still good."""
        if effort.producer_epoch < self.epochs.get(effort.producer_id, 0):
            return False
        self.epochs[effort.producer_id] = effort.producer_epoch
        self.open.setdefault(effort.producer_id, []).append(effort)
        return True

    def mark(self, command: SendMarkers) -> list[Effort] | None:
        """The transactions that a marker ends; None if the partition refuses it."""
        producer_id, epoch = command.producer_id, command.producer_epoch
        if command.coordinator_epoch < self.coordinator_epochs.get(producer_id, 0):
            return None
        current = self.epochs.get(producer_id, 0)
        is_open = producer_id in self.open
        if epoch < current or (is_open and command.transaction_version >= EPOCH_BUMP_VERSION and epoch == current):
            return None
        self.epochs[producer_id] = epoch
        self.coordinator_epochs[producer_id] = command.coordinator_epoch
        return self.open.pop(producer_id, [])
