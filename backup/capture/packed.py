"""A backup store in a zip file. The file is written once, from start to end. A capture is such a file, so that it can
be kept beside the tests that use it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from moldau.storage.tiered.port import (
    AccessRefused,
    Content,
    CorruptObject,
    ObjectEntry,
    ObjectExists,
    ObjectNotFound,
    StorageMissing,
    content_bytes,
    directories_of,
)

UNFINISHED_SUFFIX: Final = ".unfinished"
"""The suffix of a capture file that is still being written."""


class CaptureTooLarge(Exception):
    """Raised if the capture file would be larger than its limit."""


class ZipStore:
    """The objects of a zip file, as a `RemoteStorage`.

    A new file gets its final name in `finish`; closing it before that removes it. Objects cannot be changed.
    """

    def __init__(self, path: Path, archive: ZipFile, *, size_max: int | None) -> None:
        self._path = path
        self._archive = archive
        self._size_max = size_max
        """The most bytes of a new file; None for an existing file."""

    @classmethod
    def open_existing(cls, path: Path) -> ZipStore:
        """Open an existing capture file. Raises `StorageMissing`, `AccessRefused`, and `CorruptObject` if the file is
        not a capture."""
        try:
            return cls(path, ZipFile(path), size_max=None)
        except FileNotFoundError:
            raise StorageMissing(f"{path} does not exist") from None
        except PermissionError as problem:
            raise AccessRefused(f"{path}: {problem.strerror}") from None
        except (BadZipFile, OSError) as problem:
            raise CorruptObject(f"{path} is not a capture: {getattr(problem, 'strerror', None) or problem}") from None

    @classmethod
    def create_new(cls, path: Path, size_max: int) -> ZipStore:
        """Begin a capture file of at most `size_max` bytes. Raises `ObjectExists` if the file exists, and OSError."""
        if path.exists():
            raise ObjectExists(f"{path} exists: remove it, or give another name")
        return cls(path, ZipFile(f"{path}{UNFINISHED_SUFFIX}", "w", ZIP_DEFLATED), size_max=size_max)

    def finish(self) -> int:
        """Complete a new file and give it its name. Returns its size in bytes."""
        self._archive.close()
        Path(f"{self._path}{UNFINISHED_SUFFIX}").rename(self._path)
        return self._path.stat().st_size

    def __enter__(self) -> ZipStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._archive.close()
        if self._size_max is not None:
            Path(f"{self._path}{UNFINISHED_SUFFIX}").unlink(missing_ok=True)

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        """Add an object to a new file. An existing object stays as it is. Raises `CaptureTooLarge`, `AccessRefused` if
        the file is only read, and `ObjectExists` if `must_create` is set and the object exists.
        """
        if self._size_max is None:
            raise AccessRefused(f"{self._path} is only read")
        if key in self._archive.NameToInfo:
            if must_create:
                raise ObjectExists(f"{self._path} has {key}")
            return
        self._archive.writestr(ZipInfo(key), await content_bytes(content), ZIP_DEFLATED)
        if self._archive.start_dir > self._size_max:
            raise CaptureTooLarge(f"the capture would have more than {self._size_max} bytes")

    async def get(self, key: str, position: int, size: int) -> bytes:
        """Read up to `size` bytes of an object, from `position` on. Raises `ObjectNotFound` and `CorruptObject`."""
        try:
            return self._archive.read(key)[position : position + size]
        except KeyError:
            raise ObjectNotFound(f"{self._path} has no {key}") from None
        except (BadZipFile, zlib.error, OSError, EOFError) as problem:
            raise CorruptObject(f"{self._path}: {key}: {problem}") from None

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[bytes]:
        """Read up to `size` bytes of an object as one part. Raises `ObjectNotFound` and `CorruptObject`."""
        return [await self.get(key, position, size)]

    async def size(self, key: str) -> int:
        """The size of an object in bytes. Raises `ObjectNotFound`."""
        try:
            return self._archive.getinfo(key).file_size
        except KeyError:
            raise ObjectNotFound(f"{self._path} has no {key}") from None

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        """List at most `limit` objects whose keys begin with `prefix` and are greater than `after`, by key."""
        keys = sorted(key for key in self._archive.NameToInfo if key.startswith(prefix) and key > after)
        return [ObjectEntry(key, self._archive.getinfo(key).file_size) for key in keys[:limit]]

    async def list_directories(self, prefix: str) -> Sequence[str]:
        """List the prefixes one level below a prefix."""
        return directories_of(self._archive.NameToInfo, prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        """Raise `AccessRefused` if one of the keys exists, because no object can be removed."""
        if any(key in self._archive.NameToInfo for key in keys):
            raise AccessRefused(f"{self._path}: nothing in a capture can be deleted")

    async def close(self) -> None:
        """Close the zip file."""
        self._archive.close()
