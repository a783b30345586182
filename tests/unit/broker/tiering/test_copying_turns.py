"""Partitions are worked on in turn: none waits for longer than the turns of those before it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from moldau.broker.tiering.copying import PartitionTurns


class _Named:
    """As much of a partition as a turn needs."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.index = 0


def test_a_partition_with_much_to_do_does_not_keep_the_others_waiting() -> None:
    async def story() -> None:
        order: list[str] = []
        at_once: list[int] = []
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[Any, Any, None], _name: str = "") -> None:
            tasks.append(asyncio.get_running_loop().create_task(work))

        turns = PartitionTurns(cast("Any", spawn), "copy", lambda: 2)
        left = dict.fromkeys("abcde", 3)

        def offer(name: str) -> None:
            async def turn() -> bool:
                at_once.append(len(turns))
                await asyncio.sleep(0)
                order.append(name)
                left[name] -= 1
                return left[name] > 0

            partition = partitions[name]
            turns.offer(partition, turn)
            turns.offer(partition, turn)  # once is enough

        partitions = {name: cast("Any", _Named(name)) for name in left}
        for name in left:
            offer(name)
        while len(turns) or any(left.values()):
            await asyncio.sleep(0)
        assert "".join(order) == "abcdeabcdeabcde"
        assert max(at_once) == 2

    asyncio.run(story())
