"""A file system in the memory of the process: no byte reaches a disk, and all of it ends with the process."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from posixpath import normpath
from typing import Final

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.memory_file import BytesInMemory
from moldau.storage.files.open_files import OpenFiles
from moldau.storage.files.port import FileStamp, parent_directory

CAPACITY: Final = 1 << 40
"""The size (bytes) of the volume, as `disk_usage` reports it. All of it is usable: the memory of the process is the
limit, and to add up the files would take longer the more there are."""


class _Content:
    """The bytes of a file in memory. They are kept while the file has a name, or is open."""

    __slots__ = ("data", "inode", "modified_ns")

    def __init__(self, inode: int, modified_ns: int) -> None:
        self.data = bytearray()
        self.inode = inode
        self.modified_ns = modified_ns


class OpenMemoryFile(BytesInMemory):
    """An open file in memory, with the interface `File`. Reads return copies, because the file may grow meanwhile."""

    __slots__ = ("_content", "_is_writable", "_path", "_wall_ms")

    def __init__(self, content: _Content, path: str, wall_ms: Callable[[], int], *, is_writable: bool) -> None:
        self._content: _Content | None = content
        self._path = path
        self._wall_ms = wall_ms
        self._is_writable = is_writable

    def _data(self) -> bytearray:
        if self._content is None:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        return self._content.data

    def _written(self) -> bytearray:
        if self._content is None or not self._is_writable:
            raise OSError(errno.EBADF, "the file is closed, or open for reading", self._path)
        self._content.modified_ns = self._wall_ms() * 1_000_000
        return self._content.data

    def size(self) -> int:
        return len(self._data())

    def pread(self, size: int, position: int) -> bytes:
        # Not a view: a file with a view on it could not grow.
        return bytes(self._data()[position : position + size])

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        return self._data()[position : position + size]

    def append(self, buffers: Sequence[BytesLike]) -> int:
        data = self._written()
        position = len(data)
        for buffer in buffers:
            data += buffer
        return position

    def pwrite(self, data: BytesLike, position: int) -> None:
        written = self._written()
        if position > len(written):
            written += bytes(position - len(written))
        written[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        data = self._written()
        if size > len(data):
            data += bytes(size - len(data))
        else:
            del data[size:]

    def sync(self) -> None:
        """Do nothing: no byte outlives the process."""

    def close(self) -> None:
        self._content = None


class MemoryLock:
    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFiles:
    """A `FileSystem` in memory. Calls from several threads may overlap as far as the file interface allows."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        """`wall_ms`: the wall clock (ms), for the times of modification."""
        self.open_files = OpenFiles()
        self._wall_ms = wall_ms
        self._files: dict[str, _Content] = {}
        self._directories: dict[str, set[str]] = {"/": set()}
        """The names of the entries of each directory, by the path of the directory."""
        self._locks: set[str] = set()
        self._inodes = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OpenMemoryFile:
        path = _absolute(path)
        content = self._files.get(path)
        if content is None:
            if path in self._directories:
                raise IsADirectoryError(errno.EISDIR, "a directory", path)
            if not create:
                raise _missing(path)
            self._inodes += 1
            content = _Content(self._inodes, self._wall_ms() * 1_000_000)
            self._enter(path)
            self._files[path] = content
        return OpenMemoryFile(content, path, self._wall_ms, is_writable=not read_only)

    def _enter(self, path: str) -> None:
        """Add the name of a new file or directory to its parent directory. Raises OSError if there is no parent
        directory."""
        parent = parent_directory(path)
        names = self._directories.get(parent)
        if names is None:
            raise (
                NotADirectoryError(errno.ENOTDIR, "no directory", path) if parent in self._files else (_missing(path))
            )
        names.add(path.rpartition("/")[2])

    def _content(self, path: str) -> _Content:
        content = self._files.get(_absolute(path))
        if content is None:
            raise _missing(path)
        return content

    def exists(self, path: str) -> bool:
        path = _absolute(path)
        return path in self._files or path in self._directories

    def is_directory(self, path: str) -> bool:
        return _absolute(path) in self._directories

    def file_size(self, path: str) -> int:
        return len(self._content(path).data)

    def stamp(self, path: str) -> FileStamp:
        content = self._content(path)
        return FileStamp(len(content.data), content.inode, content.modified_ns)

    def list_directory(self, path: str) -> list[str]:
        names = self._directories.get(_absolute(path))
        if names is None:
            raise _missing(path)
        return sorted(names)

    def make_directories(self, path: str) -> None:
        path = _absolute(path)
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "a file", path)
        if path not in self._directories:
            self.make_directories(parent_directory(path))
            self._enter(path)
            self._directories[path] = set()

    def read(self, path: str) -> bytes:
        return bytes(self._content(path).data)

    def rename(self, old: str, new: str) -> None:
        """Rename as rename(2) does: a file replaces a file, and a directory replaces an empty directory."""
        old, new = _absolute(old), _absolute(new)
        if old in self._files:
            if new in self._directories:
                raise IsADirectoryError(errno.EISDIR, "a directory", new)
            self._enter(new)
            self._files[new] = self._files.pop(old)
        elif old in self._directories:
            if self._directories.get(new):
                raise OSError(errno.ENOTEMPTY, "the directory is not empty", new)
            self._enter(new)
            self._move(old, new)
        else:
            raise _missing(old)
        self._directories[parent_directory(old)].discard(old.rpartition("/")[2])

    def _move(self, old: str, new: str) -> None:
        names = self._directories.pop(old)
        for name in names:
            inner, moved = f"{old}/{name}", f"{new}/{name}"
            if inner in self._files:
                self._files[moved] = self._files.pop(inner)
            else:
                self._move(inner, moved)
        self._directories[new] = names

    def unlink(self, path: str) -> None:
        path = _absolute(path)
        if self._files.pop(path, None) is None:
            raise _missing(path)
        self._directories[parent_directory(path)].discard(path.rpartition("/")[2])

    def remove_tree(self, path: str) -> None:
        path = _absolute(path)
        if path not in self._directories:
            raise _missing(path)
        for name in self._directories.pop(path):
            below = f"{path}/{name}"
            if self._files.pop(below, None) is None:
                self.remove_tree(below)
        if (parent := self._directories.get(parent_directory(path))) is not None:
            parent.discard(path.rpartition("/")[2])

    def sync_directory(self, path: str) -> None:
        """Do nothing: no name outlives the process."""

    def lock(self, path: str) -> MemoryLock:
        path = _absolute(path)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        self.open(path, create=True).close()
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def disk_usage(self, path: str) -> tuple[int, int]:
        return CAPACITY, CAPACITY

    def modified_ms(self, path: str) -> int:
        return self._content(path).modified_ns // 1_000_000


def _absolute(path: str) -> str:
    """Return the normalized form of a path. A relative path counts from the root, because a file system in memory has
    no current directory."""
    return normpath("/" + path.lstrip("/"))


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such file or directory", path)
