"""Simulated remote storage: a bucket that outlives brokers, and each broker's access to it, which may fail, be slow or
lag.

All faults are drawn from the given random generator, and all waits use the given sleep, so that in a simulation one
seed gives one run. A `SimulatedBucket` is shared by the brokers of a test; a `SimulatedStorage` is the client of one
broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from moldau.storage.tiered.port import (
    AccessRefused,
    Content,
    ObjectEntry,
    ObjectExists,
    ObjectNotFound,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    content_bytes,
    directories_of,
)


@dataclass(slots=True)
class StorageFaults:
    """The faults of a simulated remote storage. Probabilities are for each call, times in seconds."""

    refuses: float = 0.0
    """The probability that a call is refused with 503 and has no effect."""
    loses_answer: float = 0.0
    """The probability that a call times out although it had its effect."""
    loses_request: float = 0.0
    """The probability that a call times out and has no effect."""
    timeout_s: float = 10.0
    delay_s: float = 0.0
    """The maximum delay (seconds) of a call; each call draws its delay from 0 to this."""
    slow: float = 0.0
    """The probability of a call that takes `slow_s` longer."""
    slow_s: float = 5.0
    bytes_per_s: float = float("inf")
    cut_upload: float = 0.0
    """The probability that a put fails in the middle. Parts that no reader sees remain, and are counted."""
    list_lag_s: float = 0.0
    """The maximum time (seconds) after a change for which a listing may not show it."""
    is_away: bool = False
    """Whether the bucket does not exist."""
    is_unreachable: bool = False
    credentials_end_s: float = float("inf")
    """The time (seconds) from which on credentials are expired."""
    may_write: bool = True
    capacity_bytes: float = float("inf")


@dataclass(slots=True)
class _Stored:
    data: bytes
    listed_at_s: float
    put_at_s: float = 0.0


@dataclass(slots=True)
class SimulatedBucket:
    """A bucket with its current objects. Faults of clients do not change how it stores them."""

    objects: dict[str, _Stored] = field(default_factory=dict)
    removed_until_s: dict[str, tuple[float, int]] = field(default_factory=dict)
    """The removed objects that a listing may still show: for each the time (seconds) until which it may, and its size
    (bytes).
    """
    partial_upload_count: int = 0
    change_count: int = 0
    """The number of times that an object was put, changed or removed."""

    def contents(self) -> dict[str, bytes]:
        return {key: self.objects[key].data for key in sorted(self.objects)}

    def store(self, key: str, data: bytes) -> None:
        """Put an object into the bucket without a client."""
        self.objects[key] = _Stored(data, 0.0)
        self.change_count += 1

    def damage(self, key: str, position: int) -> None:
        """Change one byte of an object."""
        data = bytearray(self.objects[key].data)
        data[position] ^= 0x55
        self.objects[key].data = bytes(data)
        self.change_count += 1


class SimulatedStorage:
    """A `RemoteStorage` that uses a simulated bucket, with faults."""

    def __init__(
        self,
        bucket: SimulatedBucket,
        random: Random,
        sleep: Callable[[float], Awaitable[None]],
        now_s: Callable[[], float],
        faults: StorageFaults | None = None,
    ) -> None:
        self.bucket = bucket
        self.faults = faults or StorageFaults()
        self.call_count = 0
        self._random = random
        self._sleep = sleep
        self._now_s = now_s

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        data = await content_bytes(content)
        if not isinstance(content, bytes):
            assert len(data) == content.size, "the content is not as long as it says"
            assert not must_create, "only small content is created conditionally"
        is_answered = await self._begin(len(data))
        faults, objects = self.faults, self.bucket.objects
        if not faults.may_write:
            raise AccessRefused(f"{key}: writing is not allowed")
        if self._random.random() < faults.cut_upload:
            self.bucket.partial_upload_count += 1
            raise StorageUnavailable(f"{key}: the connection was reset")
        if must_create and key in objects:
            raise ObjectExists(f"{key} exists")
        before = len(objects[key].data) if key in objects else 0
        if sum(len(each.data) for each in objects.values()) - before + len(data) > faults.capacity_bytes:
            raise StorageFull(f"{key}: the bucket is full")
        self.bucket.change_count += 1
        objects[key] = _Stored(data, self._now_s() + self._random.uniform(0, faults.list_lag_s), self._now_s())
        self._end(is_answered, key)

    async def get(self, key: str, position: int, size: int) -> bytes:
        self._end(await self._begin(size), key)
        return self._stored(key).data[position : position + size]

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[bytes]:
        return [await self.get(key, position, size)]

    async def size(self, key: str) -> int:
        self._end(await self._begin(0), key)
        return len(self._stored(key).data)

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        assert not prefix or prefix.endswith("/")
        self._end(await self._begin(0), prefix)
        now_s = self._now_s()
        shown = {
            key: ObjectEntry(key, len(each.data), round(each.put_at_s * 1000))
            for key, each in self.bucket.objects.items()
            if each.listed_at_s <= now_s
        }
        for key, (until_s, size) in self.bucket.removed_until_s.items():
            if now_s < until_s:
                shown.setdefault(key, ObjectEntry(key, size))
        keys = sorted(key for key in shown if key.startswith(prefix) and key > after)
        return [shown[key] for key in keys[:limit]]

    async def list_directories(self, prefix: str) -> Sequence[str]:
        listed = await self.list(prefix, limit=len(self.bucket.objects) + len(self.bucket.removed_until_s) + 1)
        return directories_of((each.key for each in listed), prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        is_answered = await self._begin(0)
        if not self.faults.may_write:
            raise AccessRefused("deleting is not allowed")
        for key in keys:
            stored = self.bucket.objects.pop(key, None)
            if stored is not None:
                self.bucket.change_count += 1
                until_s = self._now_s() + self._random.uniform(0, self.faults.list_lag_s)
                self.bucket.removed_until_s[key] = (until_s, len(stored.data))
        self._end(is_answered, ", ".join(keys))

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def _begin(self, size: int) -> bool:
        """Apply the faults that come before the effect of a call of `size` bytes. Returns whether its response will
        arrive.
        """
        self.call_count += 1
        faults, random = self.faults, self._random
        await self._sleep(
            random.uniform(0, faults.delay_s)
            + size / faults.bytes_per_s
            + faults.slow_s * (random.random() < faults.slow)
        )
        if faults.is_unreachable:
            raise StorageUnavailable("the endpoint cannot be reached")
        if faults.is_away:
            raise StorageMissing("the bucket does not exist")
        if self._now_s() >= faults.credentials_end_s:
            raise AccessRefused("the credentials are expired")
        if random.random() < faults.refuses:
            raise StorageUnavailable("503 slow down")
        if random.random() < faults.loses_request:
            await self._sleep(faults.timeout_s)
            raise StorageUnavailable(f"no answer within {faults.timeout_s} s")
        return random.random() >= faults.loses_answer

    def _end(self, is_answered: bool, key: str) -> None:
        if not is_answered:
            raise StorageUnavailable(f"{key}: no answer within {self.faults.timeout_s} s")

    def _stored(self, key: str) -> _Stored:
        stored = self.bucket.objects.get(key)
        if stored is None:
            raise ObjectNotFound(f"{key} does not exist")
        return stored
