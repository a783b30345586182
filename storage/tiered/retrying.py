"""Calls to remote storage that are repeated after a transient failure, with exponential backoff and full jitter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.errors import ObjectExists, StorageUnavailable
from moldau.storage.tiered.port import Content, ObjectEntry, RemoteStorage

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
"""Waits for some seconds."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts, and the pauses between them. The pause before attempt n + 1 is drawn between 0 and
    `first_pause_s` · 2ⁿ⁻¹ seconds, or `pause_s_max` where that is less."""

    attempt_count_max: int = 4
    first_pause_s: float = 0.1
    pause_s_max: float = 5.0


class RetryingStorage:
    """A `RemoteStorage` that repeats calls after `StorageUnavailable`. Other errors are raised at once: refused
    credentials or a missing bucket are not repaired within seconds, and the caller has a longer backoff."""

    def __init__(self, storage: RemoteStorage, sleep: Sleep, random: Random, policy: RetryPolicy | None = None) -> None:
        self._storage = storage
        self._sleep = sleep
        self._random = random
        self._policy = policy or RetryPolicy()
        self.retry_count = 0
        """The number of repeated calls since the start."""

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        attempts = 0

        async def put_once() -> None:
            nonlocal attempts
            attempts += 1
            try:
                await self._storage.put(key, content, must_create=must_create)
            except ObjectExists:
                # An earlier attempt may have created the object, although it ended with `StorageUnavailable`.
                if attempts == 1 or not isinstance(content, bytes):
                    raise
                if bytes(await self._storage.get(key, 0, len(content) + 1)) != content:
                    raise

        await self._repeat(put_once)

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        return await self._repeat(lambda: self._storage.get(key, position, size))

    async def size(self, key: str) -> int:
        return await self._repeat(lambda: self._storage.size(key))

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        return await self._repeat(lambda: self._storage.list(prefix, after=after, limit=limit))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._repeat(lambda: self._storage.delete(keys))

    async def close(self) -> None:
        await self._storage.close()

    async def _repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        policy = self._policy
        for attempt in range(1, policy.attempt_count_max):
            try:
                return await call()
            except StorageUnavailable:
                self.retry_count += 1
                pause_s = min(policy.pause_s_max, policy.first_pause_s * 2 ** (attempt - 1))
                await self._sleep(self._random.uniform(0, pause_s))
        return await call()
