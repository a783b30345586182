"""The storages that the tests of the port run against."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from random import Random
from typing import Any, TypeVar

from moldau.protocol.primitives import BytesLike
from moldau.testing.simulation.storage import SimulatedBucket, SimulatedStorage, StorageFaults

T = TypeVar("T")


class VirtualTime:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds

    def now(self) -> float:
        return self.now_s


class Chunks:
    """Content in pieces, which counts how often it is read."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.read_count = 0

    @property
    def size(self) -> int:
        return sum(map(len, self._pieces))

    async def chunks(self) -> AsyncIterator[BytesLike]:
        self.read_count += 1
        for piece in self._pieces:
            yield piece


def simulated(
    faults: StorageFaults | None = None, bucket: SimulatedBucket | None = None, seed: int = 1
) -> tuple[SimulatedStorage, VirtualTime]:
    time = VirtualTime()
    return SimulatedStorage(bucket or SimulatedBucket(), Random(seed), time.sleep, time.now, faults), time


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)
