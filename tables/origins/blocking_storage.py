"""Remote storage for code without an event loop: the driver that plans a read, and the tasks.

The interface of remote storage is asynchronous. One thread of the process runs an event loop for all calls. So the next
pieces of an object are fetched while a task decodes a piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from random import Random
from threading import Thread
from typing import Any, Final, TypeVar
from weakref import finalize

from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.opening import open_storage
from moldau.storage.tiered.port import ObjectEntry, ObjectNotFound, RemoteStorage
from moldau.tables.options.option_values import StoreAddress

T = TypeVar("T")

STORAGES_MAX: Final = 8
"""The most storages that a process keeps open."""
PAGE_SIZE: Final = 1000
"""The number of objects in a page of a listing, which is the most that S3 returns."""
GETS_AT_ONCE: Final = 64
KEYS_AT_ONCE: Final = 4096


class BlockingStorage:
    """A `RemoteStorage` whose calls block, or return futures. Every method raises `RemoteStorageError`.

    The thread of its event loop ends when no caller refers to the object any more and no call is under way.
    """

    def __init__(self, storage: RemoteStorage) -> None:
        self._storage = storage
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=_run_until_stopped, args=(self._loop,), name="tiered storage", daemon=True)
        self._thread.start()
        self._stop = finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self._stop.atexit = False

    def close(self) -> None:
        """End the thread of the event loop. Calls that are under way are dropped."""
        self._stop()
        self._thread.join()

    def get(self, key: str, position: int, size: int) -> BytesLike:
        """Read bytes of an object, as `RemoteStorage.get` does."""
        return self._begin(self._storage.get(key, position, size)).result()

    def start_get_whole(self, key: str, size_max: int) -> Future[BytesLike]:
        """Start to read a small object, at most its first `size_max` bytes. Returns the future at once."""
        return self._begin(self._storage.get(key, 0, size_max))

    def start_get(self, key: str, position: int, size: int) -> Future[Sequence[BytesLike]]:
        """Start a read as `RemoteStorage.get_parts` does, and return its future at once."""
        return self._begin(self._storage.get_parts(key, position, size))

    def list_directories(self, prefixes: Sequence[str]) -> list[str]:
        """List the prefixes one level below each of `prefixes`, by several requests at a time."""
        return self.start_listing_directories(prefixes).result()

    def start_listing_directories(self, prefixes: Sequence[str]) -> Future[list[str]]:
        """Start `list_directories`, and return the future at once."""
        return self._begin(self._listed_directories(prefixes))

    def list_all(self, prefix: str) -> Iterator[ObjectEntry]:
        """Yield all objects whose keys begin with `prefix`, in the order of their keys. The next page is fetched while
        the caller uses one."""
        page = self._begin(self._listed(prefix, "", PAGE_SIZE)).result()
        while len(page) == PAGE_SIZE:
            following = self._begin(self._listed(prefix, page[-1].key, PAGE_SIZE))
            yield from page
            page = following.result()
        yield from page

    def read_all(self, keys: Iterable[str], size_max: int, convert: Callable[[str, bytes], T]) -> list[T]:
        """Read small objects, many at once. `convert` makes a value from the key and the content of an object, and
        raises `RemoteStorageError` if it cannot. Returns the values in the order of `keys`. Objects that do not exist
        any more are left out."""
        found: list[T] = []
        remaining = iter(keys)
        begun: Future[list[T]] | None = None
        while some := list(islice(remaining, KEYS_AT_ONCE)):  # the caller may list them meanwhile
            following = self._begin(self._read_some(some, size_max, convert))
            found += begun.result() if begun else []
            begun = following
        return found + (begun.result() if begun else [])

    def _begin(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(self._result_of(call), self._loop)

    async def _result_of(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of a call, which refers to this object until it has ended."""
        return await call

    async def _listed(self, prefix: str, after: str, limit: int) -> Sequence[ObjectEntry]:
        return await self._storage.list(prefix, after=after, limit=limit)

    async def _listed_directories(self, prefixes: Sequence[str]) -> list[str]:
        left = enumerate(prefixes)
        found: dict[int, Sequence[str]] = {}

        async def list_next() -> None:
            for number, prefix in left:
                found[number] = await self._storage.list_directories(prefix)

        await asyncio.gather(*(list_next() for _ in range(min(GETS_AT_ONCE, len(prefixes)))))
        return [each for number in sorted(found) for each in found[number]]

    async def _read_some(self, keys: Sequence[str], size_max: int, convert: Callable[[str, bytes], T]) -> list[T]:
        left = enumerate(keys)
        found: dict[int, T] = {}

        async def read_next() -> None:
            for number, key in left:
                with suppress(ObjectNotFound):
                    found[number] = convert(key, bytes(await self._storage.get(key, 0, size_max)))

        await asyncio.gather(*(read_next() for _ in range(min(GETS_AT_ONCE, len(keys)))))
        return [found[number] for number in sorted(found)]


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


@lru_cache(maxsize=STORAGES_MAX)
def storage_at(address: StoreAddress) -> BlockingStorage:
    """Return the storage at an address. A process opens it once, so that its connections are kept from one slice of a
    task to the next. Raises `InvalidStorageUrl`."""
    options = ObjectStoreOptions(address.endpoint, address.region, address.timeout_ms / 1000)
    return BlockingStorage(open_storage(address.url, Random(), asyncio.sleep, options=options))
