"""The file port: all that the log asks of a disk.

Two implementations: `storage/files/local_files.py` (the machine's) and the simulated disk of the tests, which loses,
tears, rots and refuses. Paths are plain strings. Errors are `OSError` with the errno of the failed call; a caller never
retries a failed `sync`, because the kernel has then dropped the dirty pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from protocol.primitives import BytesLike

if TYPE_CHECKING:
    from storage.files.open_files import OpenFiles


class Readable(Protocol):
    """What can be read, as `File`."""

    def pread(self, size: int, position: int) -> BytesLike: ...


class File(Protocol):
    """One open file. Every position is explicit: an open file has no cursor.

    One thread writes (append, pwrite, truncate); `pread` and `sync` may run beside it in other threads. The file is
    closed only when no other call is under way.
    """

    def size(self) -> int:
        """Size in bytes, cached by the implementation: no system call."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        """As `pread`, but None where the bytes are not all in the page cache and reading them would block."""

    def is_cached(self, size: int, position: int) -> bool:
        """Whether the bytes look to be in the page cache, by samples. The sampling itself never blocks."""

    def warm(self, size: int, position: int) -> None:
        """Bring the bytes into the page cache. May take seconds: never called on the event loop."""

    def send(self, socket_descriptor: int, size: int, position: int) -> int:
        """Send up to `size` bytes into a socket that does not block, past Python; how many it took, 0 at the end.

        Raises `BlockingIOError` where it takes none. Only where there is a `fileno`. Waits for the disk where the bytes
        are not in the page cache.
        """

    def append(self, buffers: Sequence[BytesLike]) -> int:
        """Write all buffers at the end in one call and return the position of the first byte.

        All or nothing as far as the disk allows: after a short write or an error the file is cut back to its former
        size before the `OSError` leaves.
        """

    def pwrite(self, data: BytesLike, position: int) -> None:
        """Overwrite in place (checkpoint-like files and index entries only; never the log)."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self) -> None:
        """Make content and size durable. May take seconds: never called on the event loop."""

    def evict(self) -> None:
        """Forget what the page cache holds of this file and is not waiting to be written: reads then show the disk.

        After a failed sync the cache may still show, as if written, what the disk never took, and it goes on doing so
        for a process that is started anew.
        """

    def fileno(self) -> int | None:
        """The descriptor, None where the bytes are not a kernel's (the simulated disk): no `send` there."""

    def close(self) -> None:
        """Close; closing twice is allowed."""


class FileLock(Protocol):
    def release(self) -> None:
        """Give the lock back."""


class FileSystem(Protocol):
    @property
    def open_files(self) -> OpenFiles:
        """Those that segments keep open."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open an existing file, or with `create` an existing or new one. The directory entry of a new file is durable
        only after `sync_directory`."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def list_directory(self, path: str) -> list[str]:
        """Names in the directory, sorted."""

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents where missing; durable as the entries of files are."""

    def read(self, path: str) -> bytes:
        """The whole of a small file."""

    def rename(self, old: str, new: str) -> None:
        """Atomically replace `new`; durable only after `sync_directory` of the parent."""

    def unlink(self, path: str) -> None:
        """Remove a file; whoever has it open goes on reading it. Durable only after `sync_directory`."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it."""

    def sync_directory(self, path: str) -> None:
        """Make the directory's entries durable."""

    def lock(self, path: str) -> FileLock:
        """Take an exclusive lock on a file, created if missing; `BlockingIOError` where anybody holds it already.

        The file is not opened in any other way while it is locked: closing it there would give the lock back.
        """

    def disk_usage(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""

    def modified_ms(self, path: str) -> int:
        """Last modification, milliseconds since the epoch."""


def sync_or_evict(file: File) -> None:
    """As `File.sync`; where that fails, nobody who reads the file from then on sees what the disk never took."""
    try:
        file.sync()
    except OSError:
        file.evict()
        raise


def write_atomically(fs: FileSystem, path: str, data: BytesLike) -> None:
    """Replace `path` so that a crash leaves the old content or the new, and the new once this has returned.

    Temporary file, sync, rename, sync the directory. Blocks on the disk: never called on the event loop.
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


def parent_directory(path: str) -> str:
    directory, slash, _ = path.rpartition("/")
    return directory or slash or "."
