"""The interface of a node to everything outside of its process, except the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import select
import stat
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar

from moldau.protocol.late_tuple import NamedTuple
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.port import FileSystem, Offload

if TYPE_CHECKING:
    from moldau.broker.runtime.acceptor import Acceptor, AcceptPolicy
    from moldau.broker.runtime.file_sending import FileSending
    from moldau.broker.runtime.work_reply import WorkerLimits
    from moldau.broker.runtime.worker import E, RunningWork, Work
    from moldau.storage.tiered.object_options import ObjectStoreOptions
    from moldau.storage.tiered.port import RemoteStorage

T = TypeVar("T")

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""The file with the id of the current boot, on Linux."""
PROCESS_DIRECTORY: Final = "/proc/self"
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""The numbers of two options of mallopt(3)."""
FREED_BLOCK_SIZE_MAX: Final = 4 << 20
"""The size (bytes) up to which malloc keeps freed blocks for reuse, once clients use the node."""
FREE_HEAP_END_SIZE_MAX: Final = 8 << 20
"""The number of free bytes at the end of malloc's heap above which they are returned to the system, once clients use
the node.
"""
DESCRIPTORS_MAX_OF_MACOS: Final = 10_240
"""OPEN_MAX of macOS: its kernel sets no higher limit on descriptors while the hard limit is "unlimited". The soft limit
of a new process there is 256.
"""
GC_GENERATIONS: Final = 3
OFFLOAD_THREADS_MAX: Final = 4
"""The maximum number of threads that run blocking calls for the event loop."""
OWN_THREADS_MAX: Final = 2
EXIT_HALTED = 1
"""The exit status of a process that halted itself."""


class Environment(Protocol):
    """The disk, clocks, randomness, threads and sockets of a node. `LocalEnvironment` implements it, and so does the
    simulated environment of the tests.
    """

    @property
    def fs(self) -> FileSystem:
        """The file system of the node."""

    @property
    def random(self) -> Random:
        """The source of random numbers for jitter and choices, not for secrets. Seeded in simulation."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch. May jump, also backwards."""

    def monotonic_ms(self) -> int:
        """The loop's clock (ms): it never jumps, and has no meaning outside of this process."""

    def precise_ns(self) -> int:
        """A monotonic clock (ns) for measuring durations, finer than the event loop's clock."""

    def boot_id(self) -> str:
        """An id that changes each time the machine starts; empty if the system has none."""

    def process(self) -> Process | None:
        """The source of the process's metrics; None in the simulation, in which several nodes share a process."""

    async def acceptor(self, policy: AcceptPolicy, host: str | None, port: int) -> Acceptor:
        """An acceptor that is bound to the address, and does not accept before `open`. Raises OSError."""

    def remote_storage(self, url: str, options: ObjectStoreOptions) -> RemoteStorage:
        """The client of the remote storage at a URL. Making the client sends no request to the storage. Raises
        `RemoteStorageError`.
        """

    def descriptors_max(self) -> int:
        """The maximum number of file descriptors of the process."""

    def entropy(self, size: int) -> bytes:
        """Random bytes for secrets and ids; an id is `entropy(16)`."""

    async def offload(self, work: Callable[[], T]) -> T:
        """Run blocking work, such as a sync, a read from the disk or a checkpoint, in an executor thread.

        The work cannot be interrupted: if the caller is cancelled, the work still runs to its end. Other callbacks of
        the event loop run meanwhile, so the caller has to read state again afterwards.
        """

    def own_threads(self) -> Offload:
        """Make a function that runs blocking work as `offload` does, but in threads of its own. It is for work that
        users of web pages cause, which must not delay a sync. `close` waits for the work.
        """

    def file_sending(self) -> FileSending | None:
        """The thread that sends files to sockets; None if the event loop sends them."""

    def in_process(self, work: Work[E], limits: WorkerLimits | None = None) -> RunningWork[E]:
        """Prepare long work for a process of its own. The process starts when the first event is requested.

        Work with limits may open files of the node only if `has_files_on_disk` is true. The caller closes the returned
        object.
        """

    def has_files_on_disk(self) -> bool:
        """Whether another process can open the files of the node; false if they are in memory."""

    def keep_allocated(self) -> None:
        """Exclude all objects that exist now from garbage collection, because they live as long as the process."""

    def halt(self, reason: str) -> None:
        """Stop the process at once, without cleaning up, because an invariant is broken. Does not return."""


class LocalEnvironment:
    """The environment of a process on a machine, with its one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, in_memory: bool = False) -> None:
        """`in_memory`: whether the files of the node are kept in memory, and are lost when the process ends."""
        self.fs: FileSystem = self._memory() if in_memory else LocalFiles()
        self.fs.open_files.close_aside = self._close_aside
        self._in_memory = in_memory
        self.random = Random()
        self._loop = loop
        self._threads: ThreadPoolExecutor | None = None
        self._further_threads: list[ThreadPoolExecutor] = []
        self._file_sending: FileSending | None = None

    def _memory(self) -> FileSystem:
        from moldau.storage.files.memory_files import MemoryFiles

        return MemoryFiles(self.wall_ms)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)  # int() would make 1000 of 1.001 * 1000

    precise_ns = staticmethod(time.perf_counter_ns)

    def boot_id(self) -> str:
        with contextlib.suppress(OSError), open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
        return ""

    def process(self) -> Process:
        return Process(self.precise_ns)

    async def acceptor(self, policy: AcceptPolicy, host: str | None, port: int) -> Acceptor:
        from moldau.broker.runtime.acceptor import SocketAcceptor

        acceptor = SocketAcceptor(self._loop, policy, self.descriptors_max())
        await acceptor.bind(host, port)
        return acceptor

    def remote_storage(self, url: str, options: ObjectStoreOptions) -> RemoteStorage:
        from moldau.storage.tiered.opening import open_storage

        return open_storage(url, self.random, asyncio.sleep, options=options)

    def descriptors_max(self) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def raise_descriptors_max(self) -> int:
        """Raise the limit on file descriptors to the process's hard limit, or as far as the kernel allows. Returns the
        new limit.
        """
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Some kernels report a limit as unlimited and then refuse that number.
        for wanted in (hard, max(soft, DESCRIPTORS_MAX_OF_MACOS)):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return wanted
        return soft

    def prevent_core_files(self) -> None:
        """Set the limit on core files to one byte: a core file would hold keys, passwords and records of clients.

        With 0 the kernel would still pipe the memory to a program that `kernel.core_pattern` names; 1 prevents both.
        The hard limit is not changed, so that `prlimit --core=unlimited` permits core files of a process that is
        examined. The process stays dumpable (prctl), because otherwise its user could not examine it (py-spy, gdb,
        /proc).
        """
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        if hard != 0:
            resource.setrlimit(resource.RLIMIT_CORE, (1, hard))

    @staticmethod
    def watchable_input() -> bool:
        """Whether the event loop can wait for the end of standard input. It cannot if standard input is a file or
        /dev/null.
        """
        mode = os.fstat(sys.stdin.fileno()).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(sys.stdin.fileno())

    @staticmethod
    def has_input_ended() -> bool:
        """Whether standard input is a pipe whose writers have all gone, with nothing left in it."""
        pipe = select.poll()
        pipe.register(sys.stdin, select.POLLIN)
        return any(event & select.POLLHUP and not event & select.POLLIN for _, event in pipe.poll(0))

    def entropy(self, size: int) -> bytes:
        return os.urandom(size)

    async def offload(self, work: Callable[[], T]) -> T:
        threads = self._threads
        if threads is None:
            threads = self._threads = ThreadPoolExecutor(OFFLOAD_THREADS_MAX, thread_name_prefix="offload")
        return await self._loop.run_in_executor(threads, work)

    def _close_aside(self, descriptor: int) -> bool:
        """Close a descriptor in an executor thread, if this is the event loop's thread. Returns False if it is not, or
        if there are no executor threads (any more).
        """
        if self._threads is None or not self._is_on_loop():
            return False
        self._threads.submit(os.close, descriptor)
        return True

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def own_threads(self) -> Offload:
        threads: ThreadPoolExecutor | None = None

        async def offload(work: Callable[[], T]) -> T:
            nonlocal threads
            if threads is None:
                threads = ThreadPoolExecutor(OWN_THREADS_MAX, thread_name_prefix="pages")
                self._further_threads.append(threads)
            return await self._loop.run_in_executor(threads, work)

        return offload

    def file_sending(self) -> FileSending | None:
        if self._file_sending is None:
            from moldau.broker.runtime.file_sending import file_sending

            self._file_sending = file_sending(self._loop)
        return self._file_sending

    def in_process(self, work: Work[E], limits: WorkerLimits | None = None) -> RunningWork[E]:
        from moldau.broker.runtime.worker import WorkInProcess, WorkInThread

        if self._in_memory and limits is None:
            return WorkInThread(work, self.fs, self.offload)
        return WorkInProcess(work, limits)

    def has_files_on_disk(self) -> bool:
        return not self._in_memory

    def keep_allocated(self) -> None:
        gc.freeze()

    def halt(self, reason: str) -> NoReturn:
        try:
            logging.getLogger("moldau").critical("halted: %s", reason, stack_info=True)
            logging.shutdown()
            sys.stderr.flush()
        finally:
            os._exit(EXIT_HALTED)

    def close(self) -> None:
        """Wait for offloaded work, and end all threads."""
        if self._file_sending is not None:
            self._file_sending.close()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
        for threads in self._further_threads:
            threads.shutdown(cancel_futures=True)


class ProcessFigures(NamedTuple):
    """Figures of the kernel about the process at one time."""

    cpu_s: float
    """The user and system time of all threads since the start, in seconds."""
    resident_bytes: int
    open_fds: int
    fds_max: int


class Process:
    """The process as a source of metrics. Only one node in a process can collect them. `clock_ns` is a monotonic clock
    (ns).
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._began_ns = 0
        self._collected: Callable[[int, float], None] = lambda generation, pause_s: None

    def start(self, collected: Callable[[int, float], None]) -> None:
        """Call `collected` after each garbage collection, with the generation and the pause in seconds."""
        self._collected = collected
        gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Stop reporting garbage collections. A second call has no effect."""
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def read(self) -> ProcessFigures | None:
        """The kernel's figures about the process now; None if the system has no files in /proc. Blocks while the kernel
        lists the descriptors.
        """
        try:
            resident_bytes = self.resident_bytes()
            open_fds = len(os.listdir(f"{PROCESS_DIRECTORY}/fd"))
        except OSError:
            return None
        usage = resource.getrusage(resource.RUSAGE_SELF)
        fds_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ProcessFigures(usage.ru_utime + usage.ru_stime, resident_bytes, open_fds, fds_max)

    @staticmethod
    def resident_bytes() -> int:
        """The resident memory (bytes) of the process. Raises OSError if the system has no such file in /proc."""
        with open(f"{PROCESS_DIRECTORY}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    @staticmethod
    def keep_blocks(unused: int = FREE_HEAP_END_SIZE_MAX) -> None:
        """Let malloc keep freed blocks of up to `FREED_BLOCK_SIZE_MAX` for reuse, and up to `unused` free bytes at the
        end of its heap. Without glibc this has no effect.
        """
        import ctypes  # It takes memory, and an idle node does not need it.

        option = getattr(ctypes.CDLL(None), "mallopt", None)
        if option is not None:
            option(M_MMAP_THRESHOLD, FREED_BLOCK_SIZE_MAX)
            option(M_TRIM_THRESHOLD, unused)

    @staticmethod
    def new_executor(threads_max: int) -> ThreadPoolExecutor:
        """Make an executor for calls that block, as the default one of an event loop, with up to `threads_max`
        threads."""
        return ThreadPoolExecutor(threads_max)

    @staticmethod
    def trim_heap() -> None:
        """Return the free pages of malloc's heap to the system. Without glibc this has no effect."""
        import ctypes  # It takes memory, and most nodes never need it.

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._clock_ns()
        else:
            self._collected(info["generation"], (self._clock_ns() - self._began_ns) / 1e9)
