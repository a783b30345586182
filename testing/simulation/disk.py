"""A simulated disk that loses, tears, damages and refuses writes, as a seed determines.

It keeps two contents of each file: that in the page cache, and the durable one on the platter.

    write     changes the page cache only, and is pending until a sync
    sync      brings the pending writes of the file to the platter, but not the *name* of the file
    name      create, rename, unlink, mkdir: a pending change of a directory until `sync_directory`
    crash     Each pending write is lost, torn by 512-byte sector, or kept, independently of the others; it may leave
              zeros for lost bytes. A pending truncation is kept only together with all earlier ones, and what was
              written after a lost truncation is lost. Of the changes of names, the first ones in their order are kept.
    failed sync   The pages are clean afterwards. Most of the pending data is lost, and the next sync succeeds. Reads
              may still show the lost data, also to a new process, until the pages are evicted or the power is cut.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.memory_files import MemoryLock
from moldau.storage.files.open_files import OpenFiles
from moldau.storage.files.port import FileStamp
from moldau.testing.simulation.disk_calls import DiskCalls, Operation, SimulatedCrash
from moldau.testing.simulation.disk_names import Directory, DiskNames, names_of
from moldau.testing.simulation.pages import Inode


@dataclass(slots=True)
class _Rot:
    """A bit that was flipped on the platter, with the byte before and after."""

    path: str
    inode: Inode
    position: int
    byte: int
    sound: int

    @property
    def is_there(self) -> bool:
        durable = self.inode.durable
        return self.position < len(durable) and durable[self.position] == self.byte


class SimulatedFile:
    """A file that a process has opened. It is invalid once that process has ended."""

    __slots__ = ("_closed", "_disk", "_generation", "_inode", "_path", "_read_only")

    def __init__(self, disk: SimulatedDisk, inode: Inode, path: str, read_only: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._path = path
        self._read_only = read_only
        self._generation = disk.generation
        self._closed = False
        disk.open_count += 1

    def _enter(self, *, to_write: bool = False) -> None:
        if self._generation != self._disk.generation:
            raise SimulatedCrash(f"{self._path} was opened before the crash")
        if self._closed or (to_write and self._read_only):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def size(self) -> int:
        return len(self._inode.cache)

    def pread(self, size: int, position: int) -> bytes:
        self._enter()
        self._disk.perform(Operation.READ, self._path)
        return bytes(self._inode.cache[position : position + size])

    def pread_cached(self, size: int, position: int) -> bytes | None:
        self._enter()
        if self._disk.is_cold():
            return None
        return self.pread(size, position)

    def is_cached(self, size: int, position: int) -> bool:
        self._enter()
        return not self._disk.is_cold()

    def warm(self, size: int, position: int) -> None:
        self.pread(size, position)

    def send(self, socket_descriptor: int, size: int, position: int) -> int:
        raise OSError(errno.EINVAL, "there is no descriptor to send from", self._path)

    def append(self, buffers: Sequence[BytesLike]) -> int:
        self._enter(to_write=True)
        position = len(self._inode.cache)
        self._write(b"".join(buffers), position)
        return position

    def pwrite(self, data: BytesLike, position: int) -> None:
        self._enter(to_write=True)
        self._write(bytes(data), position)

    def _write(self, data: bytes, position: int) -> None:
        disk, inode = self._disk, self._inode
        size = len(inode.cache)
        error, taken = disk.admit(self._path, len(data), max(0, position + len(data) - size))
        inode.write(data[:taken], position)
        disk.account(inode, len(inode.cache) - size)
        if error:
            disk.perform(Operation.WRITE, self._path, may_fail=False)
            if position >= size:
                disk.account(inode, size - len(inode.cache))
                inode.cut(size)
            raise OSError(error, os.strerror(error), self._path)

    def truncate(self, size: int) -> None:
        self._enter(to_write=True)
        self._disk.perform(Operation.WRITE, self._path)
        before = len(self._inode.cache)
        self._inode.cut(size)
        self._disk.account(self._inode, size - before)

    def sync(self) -> None:
        self._enter()
        try:
            self._disk.perform(Operation.SYNC, self._path)
        except OSError:
            self._inode.sync_failed(self._disk.random)
            self._disk.holed.append(self._inode)
            raise
        self._inode.sync()

    def begin_write_back(self, size: int, position: int) -> None:
        """Do nothing: what a loss of power leaves of pending writes is drawn in any case."""

    def evict(self) -> None:
        self._enter()
        self._inode.evict()

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        if not self._closed and self._generation == self._disk.generation:
            self._disk.open_count -= 1
        self._closed = True


class SimulatedDisk(DiskCalls):
    """A `FileSystem` in memory that simulates a disk. The same seed and the same calls give the same bytes, faults and
    losses.
    """

    def __init__(self, seed: int | str = 0, *, wall_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__(seed)
        self.generation = 0
        self.open_files = OpenFiles()
        self.holed: list[Inode] = []
        """The files in which a failed sync dropped pages, in the order of these syncs."""
        self._wall_ms = wall_ms
        self._loss = Random(f"{seed}/disk/loss")
        self._names = DiskNames()
        self._rots: list[_Rot] = []
        self._locks: set[str] = set()

    # --- loss ---------------------------------------------------------------------------------------------------

    def rot(self, where: Callable[[str], bool] = lambda path: True) -> tuple[str, int] | None:
        """Flip one durable bit in a random file whose path `where` accepts. Returns the path and the position; None if
        no such file has durable bytes.
        """
        candidates = [(path, inode) for path, inode in self._names.files() if inode.durable and where(path)]
        if not candidates:
            return None
        path, inode = candidates[int(self.random.random() * len(candidates))]
        return path, self.flip_bit(path, int(self.random.random() * len(inode.durable)))

    def flip_bit(self, path: str, position: int) -> int:
        inode = self._names.inode(path)
        bit = 1 << int(self.random.random() * 8)
        before = inode.durable[position]
        inode.durable[position] = before ^ bit
        if position < len(inode.cache) and inode.cache[position] == before:
            inode.cache[position] = before ^ bit  # the clean page is read anew
        self._rots.append(_Rot(path, inode, position, before ^ bit, before))
        return position

    def mend_rot(self) -> None:
        """Restore all flipped bits, as an operator would from a copy."""
        for rot in self._rots:
            if rot.is_there:
                before = rot.inode.durable[rot.position]
                rot.inode.durable[rot.position] = rot.sound
                if rot.position < len(rot.inode.cache) and rot.inode.cache[rot.position] == before:
                    rot.inode.cache[rot.position] = rot.sound
        self._rots.clear()

    def is_rotten(self, directory: str) -> bool:
        """Whether a file in a directory has a flipped bit that was not overwritten, cut away or moved since. For
        checks.
        """
        below = f"{directory}/"
        return any(
            rot.path.startswith(below) and rot.is_there and self._names.find(rot.path) is rot.inode
            for rot in self._rots
        )

    def has_hole(self, directory: str) -> bool:
        """Whether a failed sync has dropped pages of a file in a directory, and these pages were not truncated away
        since. The caller of the sync may not know this yet, and a later process may read the wrong bytes. For checks.
        """
        holed = {id(inode) for inode in self.holed if inode.hole_start is not None}
        if not holed:  # The checks ask this at each look.
            return False
        below = f"{directory}/"
        return any(id(inode) in holed and path.startswith(below) for path, inode in self._names.files())

    def crash(self) -> None:
        """Cut the power, and restore it. The seed chooses which unsynced data is lost. Open files and locks are
        gone.
        """
        self.end_process()
        self.power_on()
        shape, pending = self._loss.random(), self._names.pending_count
        self._names.crash(pending if shape < 0.3 else int(self._loss.random() * (pending + 1)))
        self.used_bytes = 0
        for _, inode in self._names.files():
            inode.crash(self._loss)
            self.used_bytes += len(inode.cache)

    def end_process(self) -> None:
        """End the process that uses the disk, but not the kernel: open files and locks are gone, and the page cache is
        kept.
        """
        self.generation += 1
        self.open_files = OpenFiles()
        self.open_count = 0
        self._locks = set()  # a new one: a lock of the dead process must not release its successor's

    # --- room ---------------------------------------------------------------------------------------------------

    def account(self, inode: Inode, growth: int) -> None:
        inode.modified_ms = self._wall_ms()
        if inode.linked:
            self.used_bytes += growth

    # --- the port -----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        directory, name = self._names.place(path)
        self.need_descriptor(path)
        if create and name not in directory.entries:
            self.perform(Operation.NAME, path)
            self._names.change((directory, name, Inode(modified_ms=self._wall_ms())))
        self.require_power()
        return SimulatedFile(self, self._names.inode(path), path, read_only)

    def exists(self, path: str) -> bool:
        return self._names.find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._names.find(path), Directory)

    def file_size(self, path: str) -> int:
        return len(self._names.inode(path).cache)

    def stamp(self, path: str) -> FileStamp:
        inode = self._names.inode(path)
        return FileStamp(len(inode.cache), 0, inode.modified_ms * 1_000_000)  # Its files have no inode numbers.

    def list_directory(self, path: str) -> list[str]:
        self.perform(Operation.READ, path)
        return sorted(self._names.directory(path).entries)

    def make_directories(self, path: str) -> None:
        directory = self._names.root
        for name in names_of(path):
            node = directory.entries.get(name)
            if node is None:
                node = Directory()
                self.perform(Operation.NAME, path)
                self._names.change((directory, name, node))
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def read(self, path: str) -> bytes:
        inode = self._names.inode(path)
        self.perform(Operation.READ, path)
        return bytes(inode.cache)

    def durable_bytes(self, path: str) -> bytes:
        """The durable bytes of a file under its current name, for checks."""
        return bytes(self._names.inode(path).durable)

    def peek(self, path: str) -> BytesLike:
        """The bytes that a process would read from a file, without counting a call or failing. For checks."""
        return self._names.inode(path).cache

    def peek_durable(self, path: str) -> BytesLike:
        """The durable bytes of the file that durably has this name: what a loss of power leaves at least. For
        checks.
        """
        node = self._names.durable(path)
        return node.durable if isinstance(node, Inode) else b""

    def has_durable_name(self, path: str) -> bool:
        """Whether the current name of a file is durable."""
        return self._names.durable(path) is self._names.inode(path)

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._names.place(old)
        target, new_name = self._names.place(new)
        node, replaced = source.entries.get(old_name), target.entries.get(new_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        if isinstance(replaced, Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        self.perform(Operation.NAME, old)
        if node is replaced:
            return
        self._names.change((source, old_name, None), (target, new_name, node))
        self.used_bytes -= drop_name(replaced)

    def unlink(self, path: str) -> None:
        inode = self._names.inode(path)
        self.perform(Operation.NAME, path)
        directory, name = self._names.place(path)
        self._names.change((directory, name, None))
        self.used_bytes -= drop_name(inode)

    def remove_tree(self, path: str) -> None:
        directory = self._names.directory(path)
        for name in sorted(directory.entries):
            if isinstance(directory.entries[name], Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        self.perform(Operation.NAME, path)
        parent, name = self._names.place(path)
        self._names.change((parent, name, None))

    def sync_directory(self, path: str) -> None:
        """Make the changes in a directory durable, and with them earlier changes in other directories on which a move
        depends.
        """
        directory = self._names.directory(path)
        self.need_descriptor(path)
        self.perform(Operation.SYNC, path)
        self._names.sync(directory)

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path, create=True).close()
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def disk_usage(self, path: str) -> tuple[int, int]:
        self._names.find(path)
        return self.faults.capacity_bytes, max(0, self.faults.capacity_bytes - self.used_bytes)

    def modified_ms(self, path: str) -> int:
        node = self._names.find(path)
        return node.modified_ms if isinstance(node, Inode) else 0


def drop_name(node: Inode | Directory | None) -> int:
    """Note that a file loses its name, because the name is dropped or given to another file. Returns the number of
    bytes that this frees.
    """
    if not isinstance(node, Inode) or not node.linked:
        return 0
    node.linked = False
    return len(node.cache)
