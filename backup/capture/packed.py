"""A backup store in one file, a zip: for captures, which are kept beside tests. It is written once, front to back."""

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
)

UNFINISHED: Final = ".unfinished"
"""The suffix of the name of a file that is being written."""


class TooLarge(Exception):
    """The file would have more bytes than it may."""


class PackedStore:
    """The objects of a file: a `RemoteStorage`.

    A new file takes its name at `finish`; if it is closed before, it is removed. Nothing in it can be changed.
    """

    def __init__(self, path: Path, archive: ZipFile, *, size_max: int | None) -> None:
        self._path = path
        self._archive = archive
        self._size_max = size_max
        """The most bytes of a new file; None for a file that is read."""

    @classmethod
    def read(cls, path: Path) -> PackedStore:
        """Open a file. Raises `StorageMissing`, `AccessRefused`, and `CorruptObject` if it is not a capture."""
        try:
            return cls(path, ZipFile(path), size_max=None)
        except FileNotFoundError:
            raise StorageMissing(f"{path} does not exist") from None
        except PermissionError as problem:
            raise AccessRefused(f"{path}: {problem.strerror}") from None
        except (BadZipFile, OSError) as problem:
            raise CorruptObject(f"{path} is not a capture: {problem}") from None

    @classmethod
    def new(cls, path: Path, size_max: int) -> PackedStore:
        """Begin a file of at most `size_max` bytes. Raises `ObjectExists` if there is one, and OSError."""
        if path.exists():
            raise ObjectExists(f"{path} exists: remove it, or give another name")
        return cls(path, ZipFile(f"{path}{UNFINISHED}", "w", ZIP_DEFLATED), size_max=size_max)

    def finish(self) -> int:
        """Complete a new file. Returns its size in bytes."""
        self._archive.close()
        Path(f"{self._path}{UNFINISHED}").rename(self._path)
        return self._path.stat().st_size

    def __enter__(self) -> PackedStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._archive.close()
        if self._size_max is not None:
            Path(f"{self._path}{UNFINISHED}").unlink(missing_ok=True)

    async def put(self, key: str, content: Content, *, must_create: bool = False) -> None:
        """See the port. An existing object stays as it is. Raises `TooLarge`."""
        if self._size_max is None:
            raise AccessRefused(f"{self._path} is only read")
        if key in self._archive.NameToInfo:
            if must_create:
                raise ObjectExists(f"{self._path} has {key}")
            return
        self._archive.writestr(ZipInfo(key), await content_bytes(content), ZIP_DEFLATED)
        if self._archive.start_dir > self._size_max:
            raise TooLarge(f"the capture would have more than {self._size_max} bytes")

    async def get(self, key: str, position: int, size: int) -> bytes:
        """See the port."""
        try:
            return self._archive.read(key)[position : position + size]
        except KeyError:
            raise ObjectNotFound(f"{self._path} has no {key}") from None
        except (BadZipFile, zlib.error, OSError, EOFError) as problem:
            raise CorruptObject(f"{self._path}: {key}: {problem}") from None

    async def get_parts(self, key: str, position: int, size: int) -> Sequence[bytes]:
        """See the port."""
        return [await self.get(key, position, size)]

    async def size(self, key: str) -> int:
        """See the port."""
        try:
            return self._archive.getinfo(key).file_size
        except KeyError:
            raise ObjectNotFound(f"{self._path} has no {key}") from None

    async def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Sequence[ObjectEntry]:
        """See the port."""
        keys = sorted(key for key in self._archive.NameToInfo if key.startswith(prefix) and key > after)
        return [ObjectEntry(key, self._archive.getinfo(key).file_size) for key in keys[:limit]]

    async def delete(self, keys: Sequence[str]) -> None:
        """See the port. Only what does not exist can be deleted."""
        if any(key in self._archive.NameToInfo for key in keys):
            raise AccessRefused(f"{self._path}: nothing in a capture can be deleted")

    async def close(self) -> None:
        """See the port."""
        self._archive.close()
