"""Work on many partitions, a limited number of them at once, in turn.

A partition that is offered waits behind those offered before it. Its turn ends when its work returns; where that says
that more is left, the partition waits again, behind the others. So one partition with much to do does not keep the
others waiting for longer than one piece of work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator

from broker.runtime.tasks import Spawn
from replication.partition import Partition

Turn = Callable[[], Coroutine[object, object, bool]]
"""A piece of work on a partition; whether more is left. It raises nothing."""


class PartitionTurns:
    """Belongs to the event loop."""

    def __init__(self, spawn: Spawn, name: str, limit: Callable[[], int]) -> None:
        """`limit`: how many partitions are worked on at once."""
        self._spawn = spawn
        self._name = name
        self._limit = limit
        self._waiting: OrderedDict[Partition, Turn] = OrderedDict()
        self._under_way: set[Partition] = set()

    def __iter__(self) -> Iterator[Partition]:
        """The partitions whose turn it is."""
        return iter(tuple(self._under_way))

    def __len__(self) -> int:
        return len(self._under_way)

    def offer(self, partition: Partition, turn: Turn) -> None:
        """Work on a partition when its turn comes, unless it has one, or waits for one, already."""
        if partition not in self._under_way and partition not in self._waiting:
            self._waiting[partition] = turn
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._under_way) < self._limit():
            partition, turn = self._waiting.popitem(last=False)
            self._under_way.add(partition)
            self._spawn(self._run(partition, turn), f"{self._name}-{partition.topic}-{partition.index}")

    async def _run(self, partition: Partition, turn: Turn) -> None:
        has_more = False
        try:
            has_more = await turn()
        finally:
            self._under_way.discard(partition)
            if has_more:
                self._waiting[partition] = turn
            self._go_on()
