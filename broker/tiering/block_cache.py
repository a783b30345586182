"""A cache in memory of blocks of remote .log objects, which are read ahead of sequential readers.

    object   |---- block 0 ----|---- block 1 ----|-- 2 --|      BLOCK_SIZE bytes each, the last one shorter

Blocks begin at fixed positions. So several of them can be read at once, before it is known where batches begin, and all
readers of a segment share them. A block that a reader waits for is read at once; blocks ahead of readers wait for one
of `READS_AHEAD_MAX` reads. At the size limit the least recently used blocks are evicted first, and no block is read
ahead without room for it. Blocks that are being read count towards the limit as well.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.broker.runtime.tasks import Spawn
from moldau.broker.tiering.opening import OpenStorage
from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.port import RemoteStorageError
from moldau.storage.tiered.remote_lookup import log_key

BLOCK_SIZE: Final = 4 << 20
READS_AHEAD_MAX: Final = 4
"""The maximum number of blocks that are read ahead at the same time, for all readers together."""


class BlockKey(NamedTuple):
    """The key of a block: the object's key and the number of the block in it. Objects are never changed."""

    object_key: str
    number: int


class BlockCache:
    """The block cache. Its methods are called on the event loop; every read of the storage runs in its own task."""

    def __init__(self, opened: OpenStorage, spawn: Spawn, size_max: int, on_read: Callable[[str, int], None]) -> None:
        """`on_read` is called with the topic and the size (bytes) of each block that was read."""
        self._opened = opened
        self._spawn = spawn
        self._size_max = size_max
        self._on_read = on_read
        self._blocks: OrderedDict[BlockKey, memoryview] = OrderedDict()
        """The cached blocks, the most recently used last."""
        self._under_way: dict[BlockKey, asyncio.Future[memoryview]] = {}
        self._waiting: OrderedDict[BlockKey, tuple[str, int]] = OrderedDict()
        """The blocks that wait to be read ahead, with the topic and the size (bytes) of each."""
        self._ahead_count = 0
        self.size = 0
        """The size (bytes) of all blocks, including those that are being read."""
        self.hit_count = 0
        self.miss_count = 0

    async def read(self, topic: str, object_key: str, object_size: int, position: int, size: int) -> BytesLike:
        """Read `size` bytes of an object at a position; fewer if the object ends before. Raises
        `RemoteStorageError`.
        """
        end = min(position + size, object_size)
        first, last = position // BLOCK_SIZE, (max(end, position + 1) - 1) // BLOCK_SIZE
        keys = [BlockKey(object_key, number) for number in range(first, last + 1)]
        under_way = [self._block(key, topic, object_size) for key in keys]
        pieces = []
        for key, block in zip(keys, under_way, strict=True):
            data = block if isinstance(block, memoryview) else await asyncio.shield(block)
            start = key.number * BLOCK_SIZE
            pieces.append(data[max(0, position - start) : end - start])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_ahead(self, topic: str, object_key: str, object_size: int, position: int, size: int) -> None:
        """Begin to read the blocks that contain a range of an object, as far as there is room. Does not wait for
        them.
        """
        end = min(position + size, object_size)
        for number in range(position // BLOCK_SIZE, -(-end // BLOCK_SIZE)):
            key = BlockKey(object_key, number)
            if key in self._blocks:
                self._blocks.move_to_end(key)
            elif key not in self._under_way and key not in self._waiting:
                self._waiting[key] = (topic, _size_of(number, object_size))
        self._go_on_ahead()

    def _block(self, key: BlockKey, topic: str, object_size: int) -> memoryview | asyncio.Future[memoryview]:
        block = self._blocks.get(key)
        if block is not None:
            self.hit_count += 1
            self._blocks.move_to_end(key)
            return block
        under_way = self._under_way.get(key)
        if under_way is not None:
            self.hit_count += 1
            return under_way
        self.miss_count += 1
        self._waiting.pop(key, None)
        return self._begin(key, topic, _size_of(key.number, object_size), is_ahead=False)

    def _go_on_ahead(self) -> None:
        while self._waiting and self._ahead_count < READS_AHEAD_MAX:
            key, (topic, size) = self._waiting.popitem(last=False)
            in_flight = len(self._under_way) * BLOCK_SIZE
            if in_flight + size > self._size_max:
                self._waiting.clear()  # A block that is read ahead would evict blocks that were.
                return
            self._ahead_count += 1
            self._begin(key, topic, size, is_ahead=True)

    def _begin(self, key: BlockKey, topic: str, size: int, *, is_ahead: bool) -> asyncio.Future[memoryview]:
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        self.size += size
        self._push_out()
        self._spawn(self._run(key, topic, size, future, is_ahead), "remote-block")
        return future

    async def _run(
        self, key: BlockKey, topic: str, size: int, future: asyncio.Future[memoryview], is_ahead: bool
    ) -> None:
        try:
            data = memoryview(await self._opened.storage.get(key.object_key, key.number * BLOCK_SIZE, size))
        except RemoteStorageError as error:
            self.size -= size
            future.set_exception(error)
            # A block that was read ahead may have no reader; the next reader meets the error itself.
            future.exception()
        else:
            self.size += len(data) - size
            self._blocks[key] = data
            self._on_read(topic, len(data))
            future.set_result(data)
            self._push_out()
        finally:
            self._under_way.pop(key, None)
            if not future.done():
                self.size -= size
                future.cancel()
            self._ahead_count -= is_ahead
            self._go_on_ahead()

    def _push_out(self) -> None:
        while self.size > self._size_max and self._blocks:
            self.size -= len(self._blocks.popitem(last=False)[1])


class SegmentBlocks:
    """Reads the .log object of one segment through the block cache."""

    def __init__(self, cache: BlockCache, partition: RemotePartition, segment: RemoteSegment) -> None:
        self._cache = cache
        self._topic = partition.topic
        self._key = log_key(partition, segment)
        self._size = segment.size

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        """Read bytes of the object, like `RangeReader.get`."""
        assert key == self._key
        return await self._cache.read(self._topic, key, self._size, position, size)

    def read_ahead(self, position: int, size: int) -> None:
        """Begin to read the blocks that contain a range of the object."""
        self._cache.read_ahead(self._topic, self._key, self._size, position, size)


def _size_of(number: int, object_size: int) -> int:
    return min(BLOCK_SIZE, object_size - number * BLOCK_SIZE)
