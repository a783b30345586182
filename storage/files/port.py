"""The file port: all operations that the log performs on a disk.

There are three implementations: `storage/files/local_files.py` for the machine's disk, `storage/files/memory_files.py`
for a node without one, and the simulated disk of the tests, which loses and tears writes, damages stored bytes and
returns errors. Paths are plain strings. Errors are `OSError` with the errno of the failed call. A caller never retries
a failed `sync`, because the kernel has then dropped the dirty pages.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike

if TYPE_CHECKING:
    from moldau.storage.files.open_files import OpenFiles


T = TypeVar("T")


class Offload(Protocol):
    """Runs blocking work on an executor thread, as `asyncio.to_thread` does."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Readable(Protocol):
    """The part of `File` that readers need."""

    def pread(self, size: int, position: int) -> BytesLike: ...


class File(Protocol):
    """One open file. Every position is explicit: an open file has no cursor.

    One thread writes (append, pwrite, truncate); `pread` and `sync` may run in other threads at the same time. The file
    is closed only when no other call is under way.
    """

    def size(self) -> int:
        """The size of the file in bytes. The implementation caches it, so a call makes no system call."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes from `position` on; fewer only at the end of the file."""

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        """Read as `pread` does, but return None if the read would block because not all bytes are in the page cache."""

    def is_cached(self, size: int, position: int) -> bool:
        """Whether the bytes seem to be in the page cache, judged by samples. The sampling itself never blocks."""

    def warm(self, size: int, position: int) -> None:
        """Bring the bytes into the page cache. May take seconds, so it is never called on the event loop."""

    def send(self, socket_descriptor: int, size: int, position: int) -> int:
        """Send up to `size` bytes into a non-blocking socket by sendfile(2). Returns the number of bytes sent, 0 at the
        end of the file.

        Raises `BlockingIOError` if the socket takes no byte. Only for files with a `fileno`. Waits for the disk if the
        bytes are not in the page cache.
        """

    def append(self, buffers: Sequence[BytesLike]) -> int:
        """Write all buffers at the end of the file in one call, and return the position of the first byte.

        All or nothing as far as the disk allows: after a short write or an error the file is truncated to its former
        size before `OSError` is raised.
        """

    def pwrite(self, data: BytesLike, position: int) -> None:
        """Overwrite bytes of the file from `position` on. Used for files like checkpoints and for index entries, never
        for a .log file."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""

    def sync(self) -> None:
        """Make content and size of the file durable. May take seconds, so it is never called on the event loop."""

    def begin_write_back(self, size: int, position: int) -> None:
        """Begin to write these bytes to the disk, so that a later `sync` has less to wait for. The call makes nothing
        durable, and reports no error: `sync` does."""

    def evict(self) -> None:
        """Drop the clean pages of this file from the page cache, so that reads show what is on the disk. After a failed
        sync the page cache may still hold bytes that the disk never took, and would show them to a restarted process,
        too."""

    def fileno(self) -> int | None:
        """The descriptor of the file; None if it has none, as a file in memory. A file without a descriptor has no
        `send`."""

    def close(self) -> None:
        """Close the file; closing twice is allowed."""


class FileLock(Protocol):
    """A lock that is held until it is released, or the process ends."""

    def release(self) -> None:
        """Release the lock."""


class FileStamp(NamedTuple):
    """The attributes by which a reader notices that a file has changed, or that another file has taken its path."""

    size: int
    inode: int
    """The inode number of the file, which stays the same when the file is renamed."""
    modified_ns: int


class FileSystem(Protocol):
    """The operations on names: files, directories, locks."""

    @property
    def open_files(self) -> OpenFiles:
        """The files that segments keep open, and their limit."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file, or with `create` an existing or new one. The directory entry of a new file is durable
        only after `sync_directory`.

        The owner of the process and its group may use a new file, as they may use a new directory. If
        `holds_credentials` is true for its path, only the owner may.
        """

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def stamp(self, path: str) -> FileStamp:
        """The present size, inode and modification time of a file. A call costs as much as one of `file_size`."""

    def list_directory(self, path: str) -> list[str]:
        """The names of the entries of a directory, sorted."""

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents if they are missing. As with files, the new entries are durable only
        after `sync_directory`.
        """

    def read(self, path: str) -> bytes:
        """Read all bytes of a small file."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, atomically replacing `new` if it exists. Durable only after `sync_directory` of the parent."""

    def unlink(self, path: str) -> None:
        """Remove a file. A process that has it open can still read it. Durable only after `sync_directory`."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it."""

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable."""

    def lock(self, path: str) -> FileLock:
        """Take an exclusive lock on a file, which is created if it is missing. Raises `BlockingIOError` if another
        process holds the lock. While the file is locked, this process must not open it again: closing that descriptor
        would release the lock."""

    def disk_usage(self, path: str) -> tuple[int, int]:
        """The total and the usable size, in bytes, of the volume that holds `path`."""

    def modified_ms(self, path: str) -> int:
        """The time of the last modification of a file, in milliseconds since the epoch."""


def sync_or_evict(file: File) -> None:
    """Sync a file as `File.sync` does. After a failure, no later read of the file returns bytes that are not on the
    disk. Raises OSError."""
    try:
        file.sync()
    except OSError:
        file.evict()
        raise


def write_atomically(fs: FileSystem, path: str, data: BytesLike) -> None:
    """Replace the content of a file. After a crash the file has either its old content or the new one, never a mixture.
    Once this has returned, the new content is durable.

    The steps are: write a temporary file, sync it, rename it, sync the directory. The order matters: a rename that
    became durable before the content would leave an empty file. Blocks for the disk, so it is never called on the event
    loop. Raises OSError.
    """
    temporary = path + ".tmp"
    if fs.exists(temporary):
        fs.unlink(temporary)
    file = fs.open(temporary, create=True)
    try:
        file.append([data])
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_directory(parent_directory(path))


def make_durable_directory(fs: FileSystem, path: str) -> None:
    """Make a directory and its parents if they are missing, durably. Raises OSError. Blocks for the syncs."""
    missing = []
    while path and not fs.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    for created in reversed(missing):
        fs.make_directories(created)
        fs.sync_directory(created.rpartition("/")[0] or "/")


def parent_directory(path: str) -> str:
    directory, slash, _ = path.rpartition("/")
    return directory or slash or "."


DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
DESCRIPTOR_LIMIT_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The errno values for too many open files, in the process or in the machine."""
TRANSIENT_ERRNOS: Final = DISK_FULL_ERRNOS | DESCRIPTOR_LIMIT_ERRNOS
