"""The file interface (`storage/files/port.py`) on the machine's own disk."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TextIO

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.log_paths import holds_credentials
from moldau.storage.files.open_files import OpenFiles
from moldau.storage.files.port import FileStamp

FILE_MODE, DIRECTORY_MODE = 0o640, 0o750
"""The modes of new files and directories, less the umask. Only the node's user and group may read
records of clients."""
SECRET_FILE_MODE, SECRET_DIRECTORY_MODE = 0o600, 0o700
"""The modes of files and directories with records of the metadata log, which may have credentials."""
# The most buffers of one vectored call (`getconf IOV_MAX` on Linux).
BUFFERS_PER_CALL_MAX = 1024
# The size of Linux's default read-ahead: a page between two samples that is missing from the page cache costs one short
# wait.
SAMPLE_DISTANCE = 128 << 10
WARMED_AT_ONCE = 256 << 10
FREED_SIZE_MIN = 1 << 20
"""The size (bytes) from which on a file whose last name was removed is closed in another thread. Closing a smaller one
takes at most 0.1 ms."""
SYNC_FILE_RANGE_WRITE = 2
"""The flag of sync_file_range(2) that begins to write dirty pages, and waits for none."""
# 0 if the platform cannot read without blocking: then `pread_cached` is `pread`.
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_NOWAIT_UNKNOWN = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_HAS_ADVICE = hasattr(os, "posix_fadvise")
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""The command of fcntl(2) by which macOS empties the write cache of the drive too; its fsync(2) does not. None
elsewhere."""


def _sync(descriptor: int) -> None:
    """Make the contents and the size of a file durable."""
    if _FULL_SYNC is None:
        # fdatasync(2) leaves out only what reading the data back does not need.
        os.fdatasync(descriptor)
        return
    try:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        os.fsync(descriptor)  # Some file systems, such as those of a network, have no such command.


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The function sync_file_range(2); None if the system has none."""
    import ctypes  # It takes memory, and most processes never rewrite a segment.

    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


class LocalFile:
    """An open file of the local machine. One thread writes; `pread` and `sync` may run in others at the same time. The
    owner closes it only when no call is under way: the kernel may reuse the number of a closed descriptor for another
    file."""

    __slots__ = ("_descriptor", "_nowait", "_open_files", "_size")

    def __init__(self, descriptor: int, open_files: OpenFiles) -> None:
        self._descriptor = descriptor
        self._open_files = open_files
        self._size = os.fstat(descriptor).st_size
        self._nowait = _NOWAIT

    def size(self) -> int:
        return self._size

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or position + len(data) >= self._size:
            return data
        return self._pread_rest(data, size, position)

    def _pread_rest(self, data: bytes, size: int, position: int) -> bytes:
        """Read the bytes that are missing after `data`.

        The kernel may return fewer bytes than were asked for (a signal, the 2 GiB limit of one call).
        """
        parts = [data]
        have = len(data)
        while data and have < size:
            data = os.pread(self._descriptor, size - have, position + have)
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def pread_cached(self, size: int, position: int) -> BytesLike | None:
        if not self._nowait:
            return self.pread(size, position)
        wanted = min(size, self._size - position)
        if wanted <= 0:
            return b""
        buffer = bytearray(wanted)
        try:
            read = os.preadv(self._descriptor, [buffer], position, self._nowait)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NOWAIT_UNKNOWN:
                raise
            self._nowait = 0
            return self.pread(size, position)
        return buffer if read == wanted else None

    def is_cached(self, size: int, position: int) -> bool:
        nowait = self._nowait
        last = min(position + size, self._size) - 1
        if not nowait or last < position:
            return True
        descriptor, sample = self._descriptor, [bytearray(1)]
        try:
            for place in (*range(position, last, SAMPLE_DISTANCE), last):
                if not os.preadv(descriptor, sample, place, nowait):
                    return True
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NOWAIT_UNKNOWN:
                raise
            self._nowait = 0
        return True

    def warm(self, size: int, position: int) -> None:
        buffer = memoryview(bytearray(min(size, WARMED_AT_ONCE)))
        end = position + size
        while position < end:
            read = os.preadv(self._descriptor, [buffer[: end - position]], position)
            if not read:
                return
            position += read

    def send(self, socket_descriptor: int, size: int, position: int) -> int:
        return os.sendfile(socket_descriptor, self._descriptor, position, size)

    def append(self, buffers: Sequence[BytesLike]) -> int:
        position = self._size
        wanted = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        try:
            first = buffers if len(buffers) <= BUFFERS_PER_CALL_MAX else buffers[:BUFFERS_PER_CALL_MAX]
            written = os.pwritev(self._descriptor, first, position) if wanted else 0
            if written != wanted:
                self._append_rest(buffers, written, position)
        except BaseException:
            self._cut_back(position)
            raise
        self._size = position + wanted
        return position

    def _append_rest(self, buffers: Sequence[BytesLike], written: int, position: int) -> None:
        """Append the rest of `buffers` after their first `written` bytes: after a short write, or a call that did not
        take all buffers."""
        views = [memoryview(buffer) for buffer in buffers if len(buffer)]
        first = 0
        skip = written
        while True:
            while first < len(views) and skip >= len(views[first]):
                skip -= len(views[first])
                first += 1
            if first == len(views):
                return
            views[first] = views[first][skip:]
            skip = os.pwritev(self._descriptor, views[first : first + BUFFERS_PER_CALL_MAX], position + written)
            if not skip:
                raise OSError(errno.EIO, "the disk took no byte of a write")
            written += skip

    def _cut_back(self, size: int) -> None:
        """Truncate the file to `size`, to remove what a failed write left at its end.

        Raises OSError with EIO if the truncation fails, too. The file then has an unknown end, so the error must not
        pass for a full disk.
        """
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise OSError(errno.EIO, f"a failed write could not be cut back: {error}") from error

    def pwrite(self, data: BytesLike, position: int) -> None:
        view = memoryview(data)
        while len(view):
            written = os.pwrite(self._descriptor, view, position)
            position += written
            self._size = max(self._size, position)
            view = view[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        _sync(self._descriptor)

    def begin_write_back(self, size: int, position: int) -> None:
        begin = _sync_file_range()
        if begin is not None:
            begin(self._descriptor, position, size, SYNC_FILE_RANGE_WRITE)

    def evict(self) -> None:
        if _HAS_ADVICE:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def stamp(self) -> FileStamp:
        """The present size, inode and modification time of the open file."""
        return _stamp_of(os.fstat(self._descriptor))

    def fileno(self) -> int | None:
        return self._descriptor

    def close(self) -> None:
        """Close the file. If its last name was removed while it was open, closing frees its blocks, which takes 0.1 ms
        for each MiB. On an event loop another thread then closes the descriptor.
        """
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        frees = self._size >= FREED_SIZE_MIN and not os.fstat(descriptor).st_nlink
        if not frees or not self._open_files.close_aside(descriptor):
            os.close(descriptor)


class LocalFileLock:
    """A lock that this process holds on one file."""

    __slots__ = ("_descriptor", "_held", "_key")

    def __init__(self, descriptor: int, key: tuple[int, int], held: set[tuple[int, int]]) -> None:
        self._descriptor = descriptor
        self._key = key
        self._held = held

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._held.discard(self._key)
            os.close(descriptor)


def _stamp_of(status: os.stat_result) -> FileStamp:
    return FileStamp(status.st_size, status.st_ino, status.st_mtime_ns)


class LocalFiles:
    """The machine's file system. A process has one object of this class, because the object knows which locks the
    process holds."""

    def __init__(self) -> None:
        self.open_files = OpenFiles()
        self._locks_held: set[tuple[int, int]] = set()  # The key is (device, inode).

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> LocalFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        mode = SECRET_FILE_MODE if create and holds_credentials(path) else FILE_MODE
        descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        try:
            return LocalFile(descriptor, self.open_files)
        except BaseException:
            os.close(descriptor)
            raise

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def stamp(self, path: str) -> FileStamp:
        return _stamp_of(os.stat(path))

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        parent = os.path.dirname(path.rstrip("/"))
        if parent and not os.path.isdir(parent):
            self.make_directories(parent)
        try:
            os.mkdir(path, SECRET_DIRECTORY_MODE if holds_credentials(path) else DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def read(self, path: str) -> bytes:
        file = self.open(path, read_only=True)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        """Remove a name. Freeing the blocks of a large file would take as long as in `LocalFile.close`, so the file is
        opened before its name is removed, and another thread closes this last descriptor.
        """
        descriptor = -1
        if os.lstat(path).st_size >= FREED_SIZE_MIN:
            with suppress(OSError):  # Such as that the process has no descriptor left.
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.unlink(path)
        finally:
            if descriptor >= 0 and not self.open_files.close_aside(descriptor):
                os.close(descriptor)

    def remove_tree(self, path: str) -> None:
        # Not shutil.rmtree: importing shutil costs several milliseconds of the start.
        with os.scandir(path) as entries:
            below = list(entries)
        for entry in below:
            if entry.is_dir(follow_symlinks=False):
                self.remove_tree(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(path)

    @staticmethod
    def sync_directory(path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> LocalFileLock:
        """Lock a file with a POSIX record lock over the whole file, as Java's FileLock does, so the lock also excludes
        Apache Kafka.

        Such a lock never excludes its own process, and closing any descriptor of the file releases it. So this object
        also keeps the locks of the process by inode, and looks there before it opens the file.
        """
        key = self._inode(path)
        if key is not None and key in self._locks_held:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
            raise
        status = os.fstat(descriptor)
        key = (status.st_dev, status.st_ino)
        self._locks_held.add(key)
        return LocalFileLock(descriptor, key, self._locks_held)

    def _inode(self, path: str) -> tuple[int, int] | None:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def disk_usage(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000


def open_to_append(path: str) -> TextIO:
    """Open a text file to append lines to it. A new file is not readable by other users, whatever the umask. An
    existing file keeps its mode. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return open(os.open(path, flags, FILE_MODE), "a", encoding="utf-8")


class PrivateDirectory:
    """A directory of the user of this process, for files that no other user may replace or read.

    The directory is opened once, and its files are made relative to the open descriptor, so a link that replaces the
    directory later is never followed.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str) -> None:
        """Open the directory, and make it and its parents if they are missing. Raises OSError, with EPERM if the
        directory belongs to another user or others may write into it, and with ENOTDIR or ELOOP if it is a link."""
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, SECRET_DIRECTORY_MODE)
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        problem = ""
        if status.st_uid != os.geteuid():
            problem = "the directory belongs to another user"
        elif status.st_mode & 0o022:
            problem = "other users may write into the directory (chmod go-w)"
        if problem:
            self.close()
            raise PermissionError(errno.EPERM, problem, path)

    def exists(self, name: str) -> bool:
        """Whether the directory has an entry of this name; a link counts as an entry, even if its target is missing."""
        try:
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def create(self, name: str, content: bytes, mode: int) -> None:
        """Write a new file with exactly this mode, whatever the umask. If the write fails, no file is left. Raises
        OSError, with EEXIST if the name is taken."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, SECRET_FILE_MODE, dir_fd=self._descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{self._path}/{name}") from None
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            self.remove(name)
            raise
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove a file of the directory. Raises OSError."""
        os.unlink(name, dir_fd=self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
