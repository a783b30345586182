"""Opens the remote storage that a URL names (a directory or an object store), repeats calls to it after a transient
failure, and checks at the start of a broker that the storage works and belongs to the broker's cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from moldau.protocol.primitives import BytesLike
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY, PROBES_PREFIX
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, decode_cluster_manifest, encode_cluster_manifest
from moldau.storage.tiered.object_options import FILE_SCHEME, ObjectStoreOptions
from moldau.storage.tiered.port import (
    AccessRefused,
    Content,
    CorruptObject,
    InvalidStorageUrl,
    ObjectEntry,
    ObjectExists,
    ObjectNotFound,
    RemoteStorage,
    StorageUnavailable,
    Uploads,
    WrongCluster,
    get_all,
)

MISSING_EXTRA: Final = "{} needs the package {}: install moldau[tiered]"


def open_storage(
    url: str, random: Random, sleep: Sleep, *, options: ObjectStoreOptions | None = None
) -> RetryingStorage:
    """Open the storage of a URL, with retries. `check_storage` tests whether it works.

    An absolute path, with or without `file://`, is a directory. Anything else is the URL of an object store. Raises
    `InvalidStorageUrl`, also if the package for the storage is not installed: it is an optional dependency, imported
    here.
    """
    path = url.removeprefix(FILE_SCHEME)
    opened = _directory(path, random) if path.startswith("/") else _object_store(url, options)
    return RetryingStorage(opened, sleep, random)


def _directory(path: str, random: Random) -> RemoteStorage:
    try:
        from moldau.storage.tiered.directory_storage import DirectoryStorage
    except ImportError as error:
        raise InvalidStorageUrl(MISSING_EXTRA.format(path, error.name)) from error
    return DirectoryStorage(path, random)


def _object_store(url: str, options: ObjectStoreOptions | None) -> RemoteStorage:
    try:
        from moldau.storage.tiered.object_storage import ObjectStorage
    except ImportError as error:
        raise InvalidStorageUrl(MISSING_EXTRA.format(url, error.name)) from error
    return ObjectStorage(url, options)


T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
"""A function that waits for some seconds."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts, and the pauses between them. The pause before attempt n + 1 is drawn between 0 and
    `first_pause_s` · 2ⁿ⁻¹ seconds, or `pause_s_max` if that is less."""

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

    @property
    def uploads(self) -> Uploads | None:
        """The storage itself, without retries, if it can write an object before the key is known; else None."""
        return self._storage if isinstance(self._storage, Uploads) else None

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

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[BytesLike]:
        return await self._repeat(lambda: self._storage.get_parts(key, position, size))

    async def size(self, key: str) -> int:
        return await self._repeat(lambda: self._storage.size(key))

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        return await self._repeat(lambda: self._storage.list(prefix, after=after, limit=limit))

    async def list_directories(self, prefix: str) -> Sequence[str]:
        return await self._repeat(lambda: self._storage.list_directories(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        await self._repeat(lambda: self._storage.delete(keys))

    async def close(self) -> None:
        await self._storage.close()

    async def remove_uploads(self, before_ms: int) -> int:
        """Remove the incomplete files of crashed uploads that were last changed before `before_ms` (ms since the
        epoch). Returns how many. Only directory storage has such files, so the result for object stores is 0: they
        remove incomplete uploads by their own rules.
        """
        remove: Callable[[int], Awaitable[int]] | None = getattr(self._storage, "remove_uploads", None)
        return 0 if remove is None else await self._repeat(lambda: remove(before_ms))

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


PROBE: Final = b"moldau writes, reads, lists and removes this object when it starts\n"


async def check_storage(storage: RemoteStorage, cluster_id: str, probe_name: str) -> None:
    """Check that the storage exists, belongs to this cluster, and accepts writes, reads, lists and deletions.

    A storage that belongs to no cluster yet is claimed for this cluster. `probe_name` is unique to this start of the
    broker. Raises `RemoteStorageError`; the message says which step failed.
    """
    await claim_storage(storage, cluster_id)
    key = PROBES_PREFIX + probe_name
    try:
        await storage.put(key, PROBE)
    except AccessRefused as refused:
        raise AccessRefused(f"remote storage can be read, but not be written: {refused}") from refused
    try:
        if bytes(await storage.get(key, 0, 1 << 10)) != PROBE:
            raise CorruptObject(f"remote storage returned other bytes of {key} than were put")
        await storage.list(PROBES_PREFIX, limit=1)
    finally:
        await storage.delete([key])


async def claim_storage(storage: RemoteStorage, cluster_id: str) -> None:
    """Check that the storage belongs to this cluster, by its cluster manifest; write the manifest if there is none.
    Raises `RemoteStorageError`: `WrongCluster` if the storage belongs to another cluster, and others."""
    try:
        await check_cluster(storage, cluster_id)
    except ObjectNotFound:
        try:
            await storage.put(CLUSTER_MANIFEST_KEY, encode_cluster_manifest(cluster_id), must_create=True)
        except ObjectExists:
            await check_cluster(storage, cluster_id)


async def check_cluster(storage: RemoteStorage, cluster_id: str) -> None:
    """Check that the storage belongs to this cluster, by its cluster manifest. Raises `RemoteStorageError`:
    `WrongCluster` if it belongs to another one, `ObjectNotFound` if it belongs to no cluster yet, and others."""
    data = await get_all(storage, CLUSTER_MANIFEST_KEY, MANIFEST_SIZE_MAX)
    owner = decode_cluster_manifest(CLUSTER_MANIFEST_KEY, data)
    if owner != cluster_id:
        raise WrongCluster(f"this remote storage belongs to the cluster {owner}, not to {cluster_id}")
