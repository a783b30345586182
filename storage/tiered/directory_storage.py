"""Remote storage in a directory: a mounted file system, or a disk of this machine for tests and small installations.

    <root>/topics/...              the objects, a file each, by key
    <root>/.uploads/<16 hex>       objects that are being written; `remove_uploads` removes what a crash left

A put writes a temporary file, syncs it, renames it and syncs the directory, in this order: a reader sees a whole object
or none, and a put that has returned survives a loss of power. Every call runs in aiofiles' threads (decision 13), but
for `DirectoryUpload.write` and `discard`, which block.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Final, TypeVar

import aiofiles
from aiofiles import os as aio_os

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.local_files import DIRECTORY_MODE, FILE_MODE, LocalFiles
from moldau.storage.tiered.port import (
    AccessRefused,
    Content,
    ObjectEntry,
    ObjectExists,
    ObjectNotFound,
    RemoteStorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
)

UPLOADS_DIRECTORY: Final = ".uploads"
_HAS_ADVICE: Final = hasattr(os, "posix_fadvise")
STORAGE_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
ACCESS_REFUSED_ERRNOS: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

T = TypeVar("T")


class DirectoryStorage:
    """A `RemoteStorage` in a directory, `root`. The directory must exist, because otherwise a missing mount would look
    like an empty storage. Several brokers may use one root."""

    def __init__(self, root: str, random: Random) -> None:
        self._root = root.rstrip("/") or "/"
        self._random = random

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        path, temporary = self._path(key), self._new_temporary()
        with self._errors(key):
            await self._run(self._make_directories, os.path.dirname(temporary))
            try:
                async with aiofiles.open(temporary, "xb", buffering=0, opener=_opened) as file:
                    if isinstance(content, bytes):
                        await file.write(content)
                    else:
                        async for chunk in content.chunks():
                            await file.write(chunk)
                    await self._run(os.fsync, file.fileno())
                await self._run(self._install, temporary, path, must_create)
            finally:
                with suppress(FileNotFoundError):
                    await aio_os.unlink(temporary)

    def begin_upload(self) -> DirectoryUpload:
        """Begin an object whose key is not known yet."""
        return DirectoryUpload(self, self._new_temporary())

    async def get(self, key: str, position: int, size: int) -> BytesLike:
        with self._errors(key):
            return await self._run(_read, self._path(key), position, size)

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[BytesLike]:
        return [await self.get(key, position, size)]

    async def size(self, key: str) -> int:
        with self._errors(key):
            return int((await aio_os.stat(self._path(key))).st_size)

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        with self._errors(prefix):
            return await self._run(self._list, prefix, after, limit)

    async def list_directories(self, prefix: str) -> Sequence[str]:
        with self._errors(prefix):
            return await self._run(self._list_directories, prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with self._errors(key), suppress(FileNotFoundError):
                await aio_os.unlink(self._path(key))

    async def close(self) -> None:
        """Do nothing: each call opens and closes its file."""

    async def remove_uploads(self, before_ms: int) -> int:
        """Remove the incomplete files of crashed uploads that were last changed before `before_ms` (ms since the
        epoch). Returns how many. Raises `RemoteStorageError`.
        """
        with self._errors(UPLOADS_DIRECTORY):
            return await self._run(self._remove_uploads, before_ms)

    # In aiofiles' threads

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        result: T = await aio_os.wrap(function)(*arguments)
        return result

    def _path(self, key: str) -> str:
        assert key and not any(part in ("", ".", "..", UPLOADS_DIRECTORY) for part in key.split("/")), (
            f"{key!r} is not a key"
        )
        return f"{self._root}/{key}"

    def _new_temporary(self) -> str:
        return f"{self._root}/{UPLOADS_DIRECTORY}/{self._random.getrandbits(64):016x}"

    def _make_directories(self, path: str) -> None:
        """Make a directory below the root, and the missing directories above it, durably. Raises FileNotFoundError if
        the root does not exist."""
        missing = []
        while path != self._root and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(directory, DIRECTORY_MODE)
            LocalFiles.sync_directory(os.path.dirname(directory))

    def _install(self, temporary: str, path: str, must_create: bool) -> None:
        directory = os.path.dirname(path)
        self._make_directories(directory)
        if must_create:
            os.link(temporary, path)
        else:
            os.replace(temporary, path)
        LocalFiles.sync_directory(directory)

    def _list(self, prefix: str, after: str, limit: int) -> Sequence[ObjectEntry]:
        if not os.path.isdir(self._root):
            raise FileNotFoundError(errno.ENOENT, "no such directory", self._root)
        found = []
        for entry in self._walk(prefix, after):
            found.append(entry)
            if len(found) == limit:
                break
        return found

    def _list_directories(self, prefix: str) -> Sequence[str]:
        if not os.path.isdir(self._root):
            raise FileNotFoundError(errno.ENOENT, "no such directory", self._root)
        try:
            with os.scandir(f"{self._root}/{prefix}") as entries:
                names = sorted(
                    f"{each.name}/" for each in entries if each.is_dir() and (prefix or each.name != UPLOADS_DIRECTORY)
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
        # The directories of deleted objects stay, without a file.
        return [prefix + name for name in names if next(self._walk(prefix + name, ""), None) is not None]

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectEntry]:
        """Yield the objects whose keys begin with `prefix` and are past `after`, in the order of their keys."""
        try:
            with os.scandir(f"{self._root}/{prefix}") as entries:
                # Directories are sorted like their keys: with the slash at the end.
                names = sorted(
                    each.name + "/" * each.is_dir() for each in entries if prefix or each.name != UPLOADS_DIRECTORY
                )
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            key = prefix + name
            if name.endswith("/"):
                if key > after or after.startswith(key):
                    yield from self._walk(key, after)
            elif key > after:
                with suppress(FileNotFoundError):
                    known = os.stat(f"{self._root}/{key}")
                    yield ObjectEntry(key, known.st_size, known.st_mtime_ns // 1_000_000)

    def _remove_uploads(self, before_ms: int) -> int:
        count = 0
        with suppress(FileNotFoundError), os.scandir(f"{self._root}/{UPLOADS_DIRECTORY}") as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime_ns < before_ms * 1_000_000:
                        os.unlink(entry.path)
                        count += 1
        return count

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turn an `OSError` in the body into the error of the interface `RemoteStorage`."""
        try:
            yield
        except OSError as error:
            raise self._error(key, error) from error

    def _error(self, key: str, error: OSError) -> RemoteStorageError:
        what = f"{key}: {error.strerror}"
        if isinstance(error, FileExistsError):
            return ObjectExists(f"{key} exists")
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            if not os.path.isdir(self._root):
                return StorageMissing(f"the directory {self._root} does not exist, or is not mounted")
            return ObjectNotFound(f"{key} does not exist")
        if error.errno in STORAGE_FULL_ERRNOS:
            return StorageFull(what)
        if error.errno in ACCESS_REFUSED_ERRNOS:
            return AccessRefused(what)
        return StorageUnavailable(what)


class DirectoryUpload:
    """A file of a `DirectoryStorage` that is written before its key is known: an `Upload`."""

    def __init__(self, storage: DirectoryStorage, temporary: str) -> None:
        self._storage = storage
        self._temporary = temporary
        self._descriptor: int | None = None
        self._size = 0

    def write(self, data: BytesLike, /) -> None:
        """Append bytes to the file. It blocks. Raises `RemoteStorageError`."""
        with self._storage._errors(UPLOADS_DIRECTORY):
            if self._descriptor is None:
                self._storage._make_directories(os.path.dirname(self._temporary))
                self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            left = memoryview(data)
            while left:
                left = left[os.write(self._descriptor, left) :]
            if _HAS_ADVICE:
                # The kernel begins to write these pages, so that the sync of `complete` waits for the last ones alone.
                os.posix_fadvise(self._descriptor, self._size, len(data), os.POSIX_FADV_DONTNEED)
            self._size += len(data)

    async def complete(self, key: str) -> None:
        with self._storage._errors(key):
            await self._storage._run(self._complete, self._storage._path(key))

    def discard(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            with suppress(OSError):
                os.unlink(self._temporary)

    def _complete(self, path: str) -> None:
        assert self._descriptor is not None, "nothing was written"
        os.fsync(self._descriptor)
        self._storage._install(self._temporary, path, False)
        os.close(self._descriptor)
        self._descriptor = None


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _read(path: str, position: int, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.pread(descriptor, size, position)
        while len(data) < size and (more := os.pread(descriptor, size - len(data), position + len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)
