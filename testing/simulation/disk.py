"""A disk that forgets, tears, rots and refuses, all from one seed.

What the kernel and the platter each hold is kept apart:

    write     page cache only; kept as a pending write until a sync
    sync      pending writes of that file reach the platter; the *name* of the file does not
    name      create, rename, unlink, mkdir: pending changes of a directory until `sync_directory`
    crash     each pending write is lost, torn by 512-byte sector or whole, independently of the others; a pending cut
              survives only with all earlier cuts, and what was written after a lost cut is lost; pending changes of
              names survive as a prefix of their order; a pending change may leave zeros where bytes were lost
    failed sync   the pages are clean afterwards: what was pending is mostly gone, and the next sync succeeds; reads may
              go on showing it, also to a new process, until the pages are evicted or the power is cut

Steps (`steps`) count the calls that change something: a test may cut the power at each of them in turn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NoReturn

from moldau.protocol.primitives import BytesLike
from moldau.storage.files.open_files import OpenFiles
from moldau.storage.files.port import FileStamp
from moldau.testing.simulation.pages import Inode


class SimulatedCrash(BaseException):
    """The power is gone. No `except Exception` stops it; nothing done while it unwinds reaches the disk."""


class Operation(Enum):
    READ = "read"
    WRITE = "write"
    SYNC = "sync"
    NAME = "name"


@dataclass(slots=True)
class DiskFaults:
    """Probabilities per call and costs; a test or a nemesis changes them while the disk runs."""

    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    name_error: float = 0.0
    cold_read: float = 0.0  # pread_cached says None
    capacity_bytes: int = 1 << 40
    descriptors_max: int = 1 << 20  # The most files that may be open at a time.
    sync_ns_min: int = 50_000
    sync_ns_max: int = 2_000_000
    cold_read_ns: int = 100_000
    slow_factor: int = 1
    stall_ns: int = 0  # The additional time of every write and sync.

    def probability(self, operation: Operation) -> float:
        match operation:
            case Operation.READ:
                return self.read_error
            case Operation.WRITE:
                return self.write_error
            case Operation.SYNC:
                return self.sync_error
            case Operation.NAME:
                return self.name_error


@dataclass(slots=True, eq=False)
class _Directory:
    entries: dict[str, Inode | _Directory] = field(default_factory=dict)
    durable: dict[str, Inode | _Directory] = field(default_factory=dict)


@dataclass(slots=True)
class _NameChange:
    """One atomic change of names: None removes."""

    entries: list[tuple[_Directory, str, Inode | _Directory | None]]

    def touches(self, directories: list[_Directory]) -> bool:
        return any(directory is other for directory, _, _ in self.entries for other in directories)

    def apply(self) -> None:
        for directory, name, node in self.entries:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


@dataclass(slots=True)
class _Rot:
    """A bit that flipped on the platter."""

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
    """One open file of one life of one process."""

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
            self._disk.sync_failed(self._path, self._inode)
            raise
        self._inode.sync()

    def evict(self) -> None:
        self._enter()
        self._inode.evict()

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        if not self._closed and self._generation == self._disk.generation:
            self._disk.open_count -= 1
        self._closed = True


class SimulatedLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedDisk:
    """A `FileSystem` in memory. Same seed and same calls: same bytes, same faults, same losses."""

    def __init__(self, seed: int | str = 0, *, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self.random = Random(f"{seed}/disk/faults")
        self.faults = DiskFaults()
        self.steps = 0
        self.counts = dict.fromkeys(Operation, 0)
        self.crash_at_step: int | None = None
        self.on_power_cut: Callable[[], None] | None = None  # the host dies with its disk
        self.may_change: Callable[[], bool] = lambda: True  # False while the stack of a dead process unwinds
        self.generation = 0
        self.open_files = OpenFiles()
        self.open_count = 0
        self.used_bytes = 0
        self.cost_ns = 0  # what the calls since the last `take_cost_ns` took
        self._wall_ms = wall_ms
        self._loss = Random(f"{seed}/disk/loss")
        self._latency = Random(f"{seed}/disk/latency")
        self._root = _Directory()
        self._changes: list[_NameChange] = []
        self._scripted: dict[tuple[Operation, int], int] = {}
        self._broken: tuple[str, ...] = ()
        self._rots: list[_Rot] = []
        self._refused: set[str] = set()
        self._lost: list[str] = []
        """Files of which a failed sync took pages along, in the life of this process."""
        self._locks: set[str] = set()
        self._powered = True

    # --- faults -------------------------------------------------------------------------------------------------

    def fail(self, operation: Operation, call: int, error: int = errno.EIO) -> None:
        """Refuse the `call`-th call of this kind, counted from 1 over the disk's life (`counts` says where it is)."""
        self._scripted[operation, call] = error

    def forgive(self, operation: Operation, call: int) -> None:
        """Take back what `fail` announced, where it has not come yet."""
        self._scripted.pop((operation, call), None)

    def break_directory(self, path: str) -> None:
        """From now on every call below `path` fails with EIO."""
        self._broken = (*self._broken, path.rstrip("/") + "/")

    def mend_directories(self) -> None:
        self._broken = ()

    def rot(self, where: Callable[[str], bool] = lambda path: True) -> tuple[str, int] | None:
        """Flip one durable bit in a file that `where` accepts: (path, position), None where there is no byte."""
        candidates = [(path, inode) for path, inode in self._files(self._root, "") if inode.durable and where(path)]
        if not candidates:
            return None
        path, inode = candidates[int(self.random.random() * len(candidates))]
        return path, self.flip_bit(path, int(self.random.random() * len(inode.durable)))

    def flip_bit(self, path: str, position: int) -> int:
        inode = self._inode(path)
        bit = 1 << int(self.random.random() * 8)
        before = inode.durable[position]
        inode.durable[position] = before ^ bit
        if position < len(inode.cache) and inode.cache[position] == before:
            inode.cache[position] = before ^ bit  # the clean page is read anew
        self._rots.append(_Rot(path, inode, position, before ^ bit, before))
        return position

    def mend_rot(self) -> None:
        """An operator puts back what the files held."""
        for rot in self._rots:
            if rot.is_there:
                before = rot.inode.durable[rot.position]
                rot.inode.durable[rot.position] = rot.sound
                if rot.position < len(rot.inode.cache) and rot.inode.cache[rot.position] == before:
                    rot.inode.cache[rot.position] = rot.sound
        self._rots.clear()

    def is_rotten(self, directory: str) -> bool:
        """Whether a file in this directory has a flipped bit that was not written over, cut away or moved: for
        checks."""
        below = f"{directory}/"
        return any(
            rot.path.startswith(below) and rot.is_there and self._find(rot.path) is rot.inode for rot in self._rots
        )

    def has_lost(self, directory: str) -> bool:
        """Whether a sync of a file in this directory has failed, and its pages may be gone: the caller of that
        sync may not have heard of it yet. For checks."""
        return any(path.startswith(f"{directory}/") for path in self._lost)

    def has_refused(self, path: str) -> bool:
        """Whether a call for this very path ever failed. For checks."""
        return path in self._refused

    def sync_failed(self, path: str, inode: Inode) -> None:
        inode.sync_failed(self.random)
        self._lost.append(path)

    def crash(self) -> None:
        """Power cut and power on: the unsynced is lost by the seed's choice, open files and locks are gone."""
        self.end_process()
        self._powered = True
        self.crash_at_step = None
        shape = self._loss.random()
        kept = len(self._changes) if shape < 0.3 else int(self._loss.random() * (len(self._changes) + 1))
        for change in self._changes[:kept]:
            change.apply()
        self._changes.clear()
        self._restore(self._root)
        self.used_bytes = 0
        for _, inode in self._files(self._root, ""):
            inode.crash(self._loss)
            self.used_bytes += len(inode.cache)

    def end_process(self) -> None:
        """The process is gone, the kernel lives: open files and locks are gone, the page cache is not."""
        self.generation += 1
        self.open_files = OpenFiles()
        self.open_count = 0
        self._lost.clear()
        self._locks = set()  # a new one: a lock of the dead process must not release its successor's

    def _power_cut(self) -> NoReturn:
        self._powered = False
        step = self.steps
        if self.on_power_cut is not None:
            self.on_power_cut()
        raise SimulatedCrash(f"power cut at step {step}")

    def _restore(self, directory: _Directory) -> None:
        directory.entries = dict(directory.durable)
        for node in directory.entries.values():
            if isinstance(node, _Directory):
                self._restore(node)
            else:
                node.linked = True

    def perform(self, operation: Operation, path: str, *, may_fail: bool = True) -> None:
        """Count one call, cut the power or refuse it where that is due."""
        error = self._count(operation, path, may_fail)
        if error:
            raise OSError(error, os.strerror(error), path)

    def _count(self, operation: Operation, path: str, may_fail: bool = True) -> int:
        if not self._powered:
            raise SimulatedCrash("the power is off")
        if operation is not Operation.READ and not self.may_change():
            raise SimulatedCrash("the process is gone")
        self.counts[operation] += 1
        if operation is not Operation.READ:
            self.steps += 1
            if self.steps == self.crash_at_step:
                self._power_cut()
        self._charge(operation)
        if not may_fail:
            return 0
        error = self._refusal(operation, path)
        if error:
            self._refused.add(path)
        return error

    def _refusal(self, operation: Operation, path: str) -> int:
        if self._broken and f"{path}/".startswith(self._broken):
            return errno.EIO
        if self._scripted and (operation, self.counts[operation]) in self._scripted:
            return self._scripted.pop((operation, self.counts[operation]))
        probability = self.faults.probability(operation)
        return errno.EIO if probability and self.random.random() < probability else 0

    def admit(self, path: str, size: int, growth: int) -> tuple[int, int]:
        """Count one write: (errno or 0, how many of its bytes the disk takes)."""
        error = self._count(Operation.WRITE, path)
        taken = int(self.random.random() * size) if error else size
        room = self.faults.capacity_bytes - self.used_bytes
        if growth > room:
            error = errno.ENOSPC
            taken = min(taken, max(0, size - growth + room))
        return error, taken

    def account(self, inode: Inode, growth: int) -> None:
        inode.modified_ms = self._wall_ms()
        if inode.linked:
            self.used_bytes += growth

    def is_cold(self) -> bool:
        cold = self.faults.cold_read
        return bool(cold) and self.random.random() < cold

    def _charge(self, operation: Operation) -> None:
        faults = self.faults
        if operation is Operation.SYNC:
            spread = faults.sync_ns_max - faults.sync_ns_min
            cost = (faults.sync_ns_min + int(self._latency.random() * spread)) * faults.slow_factor
            self.cost_ns += cost + faults.stall_ns
        elif operation is Operation.WRITE:
            self.cost_ns += faults.stall_ns

    def take_cost_ns(self) -> int:
        cost, self.cost_ns = self.cost_ns, 0
        return cost

    # --- names --------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Inode | _Directory | None:
        node: Inode | _Directory = self._root
        for name in _names(path):
            if not isinstance(node, _Directory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _place(self, path: str) -> tuple[_Directory, str]:
        names = _names(path)
        return self._directory("/".join(names[:-1])), names[-1]

    def _change(self, *entries: tuple[_Directory, str, Inode | _Directory | None]) -> None:
        for directory, name, node in entries:
            if node is None:
                del directory.entries[name]
            else:
                directory.entries[name] = node
        self._changes.append(_NameChange(list(entries)))

    def _forget(self, node: Inode | _Directory | None) -> None:
        if isinstance(node, Inode) and node.linked:
            self.used_bytes -= len(node.cache)
            node.linked = False

    def _files(self, directory: _Directory, path: str) -> Iterator[tuple[str, Inode]]:
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, _Directory):
                yield from self._files(node, f"{path}/{name}")
            else:
                yield f"{path}/{name}", node

    # --- the port -----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        directory, name = self._place(path)
        self._need_descriptor(path)
        if create and name not in directory.entries:
            self.perform(Operation.NAME, path)
            self._change((directory, name, Inode(modified_ms=self._wall_ms())))
        if not self._powered:
            raise SimulatedCrash("the power is off")
        return SimulatedFile(self, self._inode(path), path, read_only)

    def _need_descriptor(self, path: str) -> None:
        if self.open_count >= self.faults.descriptors_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def file_size(self, path: str) -> int:
        return len(self._inode(path).cache)

    def stamp(self, path: str) -> FileStamp:
        inode = self._inode(path)
        return FileStamp(len(inode.cache), 0, inode.modified_ms * 1_000_000)  # Its files have no inode numbers.

    def list_directory(self, path: str) -> list[str]:
        self.perform(Operation.READ, path)
        return sorted(self._directory(path).entries)

    def make_directories(self, path: str) -> None:
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory()
                self.perform(Operation.NAME, path)
                self._change((directory, name, node))
            if not isinstance(node, _Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def read(self, path: str) -> bytes:
        inode = self._inode(path)
        self.perform(Operation.READ, path)
        return bytes(inode.cache)

    def durable_bytes(self, path: str) -> bytes:
        """What the platter holds of a file: for checks."""
        return bytes(self._inode(path).durable)

    def peek(self, path: str) -> BytesLike:
        """What a process would read, without a call that counts, costs or fails: for checks."""
        return self._inode(path).cache

    def peek_durable(self, path: str) -> BytesLike:
        """The durable bytes of a file under its durable name: what is left after the worst loss of power."""
        node = self._durable(path)
        return node.durable if isinstance(node, Inode) else b""

    def has_durable_name(self, path: str) -> bool:
        """Whether the file of this name has it on the platter, too."""
        return self._durable(path) is self._inode(path)

    def _durable(self, path: str) -> Inode | _Directory | None:
        node: Inode | _Directory | None = self._root
        for name in _names(path):
            node = node.durable.get(name) if isinstance(node, _Directory) else None
        return node

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._place(old)
        target, new_name = self._place(new)
        node, replaced = source.entries.get(old_name), target.entries.get(new_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        if isinstance(replaced, _Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        self.perform(Operation.NAME, old)
        if node is replaced:
            return
        self._change((source, old_name, None), (target, new_name, node))
        self._forget(replaced)

    def unlink(self, path: str) -> None:
        inode = self._inode(path)
        self.perform(Operation.NAME, path)
        directory, name = self._place(path)
        self._change((directory, name, None))
        self._forget(inode)

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name in sorted(directory.entries):
            if isinstance(directory.entries[name], _Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        self.perform(Operation.NAME, path)
        parent, name = self._place(path)
        self._change((parent, name, None))

    def sync_directory(self, path: str) -> None:
        """Makes durable what changed in this directory, and what such a change needs in others (a move)."""
        directories = [self._directory(path)]
        self._need_descriptor(path)
        self.perform(Operation.SYNC, path)
        kept: list[_NameChange] = []
        due: list[_NameChange] = []
        for change in reversed(self._changes):
            if change.touches(directories):
                directories.extend(directory for directory, _, _ in change.entries)
                due.append(change)
            else:
                kept.append(change)
        for change in reversed(due):
            change.apply()
        self._changes = kept[::-1]

    def lock(self, path: str) -> SimulatedLock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path, create=True).close()
        self._locks.add(path)
        return SimulatedLock(self._locks, path)

    def disk_usage(self, path: str) -> tuple[int, int]:
        self._find(path)
        return self.faults.capacity_bytes, max(0, self.faults.capacity_bytes - self.used_bytes)

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        return node.modified_ms if isinstance(node, Inode) else 0


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
