"""Work on many partitions, a limited number of them at once, in turn.

An offered partition waits after those offered before it. Its turn ends when its piece of work returns. If that returns
that more is left, the partition waits again, after the others. So a partition with much work delays the others by one
piece of work at most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator

from moldau.broker.runtime.tasks import Spawn
from moldau.replication.partition import Partition

Turn = Callable[[], Coroutine[object, object, bool]]
"""A piece of work on a partition. Returns whether more is left; it raises nothing."""


class PartitionTurns:
    """Gives partitions turns of work. Its methods are called on the event loop."""

    def __init__(self, spawn: Spawn, name: str, limit: Callable[[], int]) -> None:
        """`limit`: the number of partitions with work in progress at once."""
        self._spawn = spawn
        self._name = name
        self._limit = limit
        self._waiting: OrderedDict[Partition, Turn] = OrderedDict()
        self._under_way: set[Partition] = set()

    def __iter__(self) -> Iterator[Partition]:
        """The partitions with work in progress."""
        return iter(tuple(self._under_way))

    def __len__(self) -> int:
        return len(self._under_way)

    def offer(self, partition: Partition, turn: Turn) -> None:
        """Work on a partition when its turn comes. No effect where it waits or has its turn already."""
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
