"""Blocks are read once, ahead if there is room, and pushed out at the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.tiering.block_cache import BLOCK_SIZE, READS_AHEAD_MAX, BlockCache
from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.port import StorageUnavailable

OBJECT = b"".join(bytes([number]) * BLOCK_SIZE for number in range(12)) + b"end"


class _Storage:
    """One object; each read takes a turn of the loop, unless it is held."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self.at_once = self.at_once_max = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def get(self, _key: str, position: int, size: int) -> BytesLike:
        self.reads.append((position, size))
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await asyncio.sleep(0)
        await self.gate.wait()
        self.at_once -= 1
        if self.fails:
            raise StorageUnavailable("503")
        return OBJECT[position : position + size]


def cache_over(storage: _Storage, size_max: int = 10 * BLOCK_SIZE) -> tuple[BlockCache, list[int]]:
    tasks: set[asyncio.Task[None]] = set()
    told: list[int] = []

    def spawn(job: Coroutine[Any, Any, None], _name: str = "") -> None:
        task = asyncio.get_running_loop().create_task(job)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    opened = cast("Any", SimpleNamespace(storage=storage))
    return BlockCache(opened, cast("Any", spawn), size_max, lambda _, size: told.append(size)), told


async def read(cache: BlockCache, position: int, size: int) -> bytes:
    return bytes(await cache.read("t", "key", len(OBJECT), position, size))


@pytest.mark.parametrize(
    ("position", "size"),
    [(0, 10), (BLOCK_SIZE - 5, 10), (BLOCK_SIZE, BLOCK_SIZE), (5, 3 * BLOCK_SIZE), (len(OBJECT) - 2, 100)],
)
def test_any_range_is_what_the_object_has(position: int, size: int) -> None:
    async def story() -> None:
        cache, _ = cache_over(_Storage())
        assert await read(cache, position, size) == OBJECT[position : position + size]

    asyncio.run(story())


def test_readers_of_a_block_share_one_read() -> None:
    async def story() -> None:
        storage = _Storage()
        cache, told = cache_over(storage)
        found = await asyncio.gather(*(read(cache, number, 1) for number in range(8)))
        assert found == [b"\0"] * 8
        assert storage.reads == [(0, BLOCK_SIZE)]
        assert (told, cache.size, cache.miss_count) == ([BLOCK_SIZE], BLOCK_SIZE, 1)

    asyncio.run(story())


def test_reading_ahead_is_bounded_and_a_reader_does_not_wait_for_it() -> None:
    async def story() -> None:
        storage = _Storage()
        cache, _ = cache_over(storage)
        storage.gate.clear()
        cache.read_ahead("t", "key", len(OBJECT), 0, 8 * BLOCK_SIZE)
        await asyncio.sleep(0.01)
        assert len(storage.reads) == READS_AHEAD_MAX
        waiting = asyncio.ensure_future(read(cache, 7 * BLOCK_SIZE, 1))
        await asyncio.sleep(0.01)
        assert storage.reads[-1] == (7 * BLOCK_SIZE, BLOCK_SIZE), "it is read at once"
        storage.gate.set()
        assert await waiting == b"\7"
        await asyncio.sleep(0.05)
        assert len(storage.reads) == 8
        assert storage.at_once_max == READS_AHEAD_MAX + 1

    asyncio.run(story())


def test_the_blocks_used_longest_ago_go_first_at_the_limit() -> None:
    async def story() -> None:
        storage = _Storage()
        cache, _ = cache_over(storage, 3 * BLOCK_SIZE)
        for number in (0, 1, 2, 0, 3):
            await read(cache, number * BLOCK_SIZE, 1)
            assert cache.size <= 3 * BLOCK_SIZE
        await read(cache, 0, 1)
        assert len(storage.reads) == 4
        await read(cache, BLOCK_SIZE, 1)
        assert len(storage.reads) == 5
        cache.read_ahead("t", "key", len(OBJECT), 0, len(OBJECT))
        await asyncio.sleep(0.05)
        assert cache.size <= 3 * BLOCK_SIZE

    asyncio.run(story())


def test_an_error_is_told_to_those_who_wait_and_is_not_kept() -> None:
    async def story() -> None:
        storage = _Storage()
        cache, _ = cache_over(storage)
        storage.fails = True
        cache.read_ahead("t", "key", len(OBJECT), 0, BLOCK_SIZE)
        found = await asyncio.gather(*(read(cache, 0, 1) for _ in range(2)), return_exceptions=True)
        assert [type(each) for each in found] == [StorageUnavailable] * 2
        assert cache.size == 0
        storage.fails = False
        assert await read(cache, 0, 1) == b"\0"

    asyncio.run(story())
