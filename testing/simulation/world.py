"""A simulated world: hosts on one virtual clock that start, end and crash. It is the interface of a simulated test.

    boot    start a process, with a new stream of randomness, on the same disk
    kill    end the process (kill -9, halt). The kernel closes its connections, and the page cache stays.
    crash   cut the power. The disk loses what was not durable; peers get nothing more, or a reset.
    pause   stop the process (SIGSTOP). Its kernel continues to receive.

No callback of a process runs after its end. Its coroutines are kept and not closed, so that no `finally` block runs.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar, cast

from moldau.broker.runtime.acceptor import Acceptor, AcceptPolicy
from moldau.broker.runtime.work_reply import WorkerLimits, WorkerReply
from moldau.broker.runtime.worker import E, RunningWork, Work, WorkerDied, next_event_of
from moldau.broker.runtime.worker_process import encode_reply
from moldau.storage.files.port import Offload
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.opening import RetryingStorage
from moldau.storage.tiered.port import RemoteStorage
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.handles import SimulatedFuture, SimulatedTask
from moldau.testing.simulation.life import NANOSECONDS, Life
from moldau.testing.simulation.loop import SimulatedLoop
from moldau.testing.simulation.network import Network
from moldau.testing.simulation.reality import RealityGuard, virtual_functions
from moldau.testing.simulation.schedule import SimulationFailed
from moldau.testing.simulation.storage import SimulatedBucket, SimulatedStorage, StorageFaults
from moldau.testing.simulation.trace import Trace

T = TypeVar("T")
Main = Callable[["SimulatedEnvironment"], Coroutine[Any, Any, object]]

DRIVER = "driver"
EPOCH_MS = 1_767_225_600_000  # the world begins on 2026-01-01
LIMIT_S_DEFAULT = 3600.0
OFFLOAD_THREADS = 4
OFFLOAD_NS_MAX = 300_000
STEP_S_MAX = 0.05
WORKER_STALLS = 0.02
WORKER_STALL_S_MAX = 3.0
WORKER_DIES = 0.005

# Bound before the guard forbids it: simulated code must not see the tasks of all hosts.
_all_tasks = asyncio.all_tasks


class ProcessEnded(BaseException):
    """Raised if a process has ended itself, to end the callback that is still on the stack."""


class SimulatedEnvironment:
    """The `moldau.broker.runtime.environment.Environment` of a simulated process."""

    def __init__(self, host: Host, life: Life) -> None:
        self.fs = host.disk
        self.random = Random(f"{host.world.seed}/{host.name}/{life.number}/random")
        self._entropy = Random(f"{host.world.seed}/{host.name}/{life.number}/entropy")
        self._threads = Random(f"{host.world.seed}/{host.name}/{life.number}/threads")
        self._host = host
        self._life = life
        self._loop = host.world.loop
        self._busy = 0
        self._waiting: deque[tuple[Callable[[], Any], SimulatedFuture[Any]]] = deque()

    def wall_ms(self) -> int:
        return self._host.wall_ms()

    def monotonic_ms(self) -> int:
        return self._life.local_ns(self._loop.now_ns) // 1_000_000

    def precise_ns(self) -> int:
        return self._life.read_ns(self._loop.now_ns)

    def process(self) -> None:
        """None, because all hosts are one process."""

    async def acceptor(self, policy: AcceptPolicy, host: str | None, port: int) -> Acceptor:
        network = self._host.world.network

        def no_other_way() -> asyncio.BaseProtocol:
            raise AssertionError("the accept policy makes protocols")

        return network.listen(network.nodes[self._host.name], no_other_way, host, port, serving=False, policy=policy)

    def remote_storage(self, url: str, options: ObjectStoreOptions) -> RemoteStorage:
        """A client of the world's bucket with this URL, with the storage faults of this host."""
        host, life = self._host, self._life
        bucket = host.world.buckets.setdefault(url, SimulatedBucket())
        random = Random(f"{host.world.seed}/{host.name}/{life.number}/storage")
        now_s = lambda: self.precise_ns() / NANOSECONDS  # noqa: E731
        storage = SimulatedStorage(bucket, random, asyncio.sleep, now_s, host.storage_faults)
        return RetryingStorage(storage, asyncio.sleep, random)

    def entropy(self, size: int) -> bytes:
        return self._entropy.randbytes(size)

    async def offload(self, work: Callable[[], T]) -> T:
        """Run work in one of a few virtual threads. The seed chooses whether the whole work happens at the beginning or
        at the end of its duration. So tests find callers that rely on events in between."""
        future: SimulatedFuture[T] = self._loop.create_future()
        self._waiting.append((work, future))
        self._start()
        return await future

    def _start(self) -> None:
        while self._waiting and self._busy < OFFLOAD_THREADS:
            work, future = self._waiting.popleft()
            if future.cancelled():
                continue
            self._busy += 1
            delay_ns = int(self._threads.random() * self._host.offload_ns_max)
            if self._threads.random() < 0.5:
                finish, cost_ns = self._perform(work, future)
                self._later(delay_ns + cost_ns, finish)
            else:
                self._later(delay_ns, self._perform_late, work, future)

    def _perform_late(self, work: Callable[[], T], future: SimulatedFuture[T]) -> None:
        finish, cost_ns = self._perform(work, future)
        self._later(cost_ns, finish)

    def in_process(self, work: Work[E], limits: WorkerLimits | None = None) -> RunningWork[E]:
        return SimulatedWork(self, self._threads, work, dies=limits is None)

    def own_threads(self) -> Offload:
        """The threads of `offload`: in virtual time it makes no difference which threads do the work."""
        return self.offload

    def file_sending(self) -> None:
        """None, because the simulated network has no sockets."""

    def has_files_on_disk(self) -> bool:
        return True

    def boot_id(self) -> str:
        return f"{self._host.name}-{self._host.crashes}"

    def keep_allocated(self) -> None:
        """Do nothing: the tests control the garbage collector."""

    def descriptors_max(self) -> int:
        return self.fs.faults.descriptors_max

    def _perform(self, work: Callable[[], T], future: SimulatedFuture[T]) -> tuple[Callable[[], None], int]:
        """Do work now. Returns a function that passes its result to the caller, and the time (ns) that the disk
        took.
        """
        on_loop_ns = self.fs.take_cost_ns()
        finish: Callable[[], None]
        try:
            result = work()
        except Exception as error:
            failure = error
            finish = lambda: self._finish(future, lambda: future.set_exception(failure))  # noqa: E731
        else:
            finish = lambda: self._finish(future, lambda: future.set_result(result))  # noqa: E731
        cost_ns = self.fs.take_cost_ns()
        self.fs.cost_ns = on_loop_ns
        return finish, cost_ns

    def _finish(self, future: SimulatedFuture[T], tell: Callable[[], None]) -> None:
        self._busy -= 1
        if not future.done():
            tell()
        self._start()

    def _later(self, delay_ns: int, callback: Callable[..., None], *args: object) -> None:
        self._loop.call_later(delay_ns / NANOSECONDS, callback, *args)

    def halt(self, reason: str) -> NoReturn:
        self._host.halted = reason
        self._host.world.event("halt", reason)
        self._host.kill()
        if not self._host.may_halt:
            self._loop.fail(SimulationFailed(f"{self._host.name} halted: {reason}"))
        raise ProcessEnded(reason)


class SimulatedWork(Generic[E]):
    """Work in a simulated process of its own. Each step takes no virtual time, and begins some time after it was
    requested. Between two steps the process may stall, or die.
    """

    def __init__(self, environment: SimulatedEnvironment, random: Random, work: Work[E], dies: bool) -> None:
        self._environment = environment
        self._dies = dies
        self._random = random
        self._work: Work[E] | None = work
        self._steps: Iterator[E] = iter(())

    async def next_event(self, sent: object = None, /) -> E | None:
        stalls = self._random.random() < WORKER_STALLS
        await asyncio.sleep(self._random.random() * (WORKER_STALL_S_MAX if stalls else STEP_S_MAX))
        if self._random.random() < WORKER_DIES and self._dies:
            raise WorkerDied("the simulated process of the work was killed")
        return await self._environment.offload(partial(self._step, pickle.loads(pickle.dumps(sent, protocol=5))))

    def _step(self, sent: object) -> E | None:
        """Do one step of the work. Its result is pickled and restored, as with a real process."""
        try:
            if self._work is not None:
                self._steps, self._work = self._work(self._environment.fs), None
            event = next_event_of(self._steps, sent)
        except Exception as error:
            reply: WorkerReply = pickle.loads(encode_reply(WorkerReply(error=error)))
            assert reply.error is not None
            raise reply.error from None
        return cast("E | None", pickle.loads(encode_reply(WorkerReply(event=event))).event)

    def close(self) -> None:
        """Do nothing: a simulated process needs no end."""


class Host:
    """A simulated machine with a disk, a clock and at most one process."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.number = number
        self.disk = SimulatedDisk(f"{world.seed}/{name}", wall_ms=self.wall_ms)
        self.disk.on_power_cut = self.crash
        self.disk.may_change = world.may_change
        self.node = world.network.add(name)
        self.life: Life | None = None
        self.environment: SimulatedEnvironment | None = None
        self.lives = 0
        self.crashes = 0
        self.halted: str | None = None
        self.may_halt = False
        self.storage_faults = StorageFaults()
        self.clock_rate_ppm = 0  # for the next life
        self.clock_offset_ns = 0
        self.wall_skew_ms = 0  # may jump at any time
        self.offload_ns_max = OFFLOAD_NS_MAX  # how long an executor thread takes besides what the disk takes
        self._paused = False

    @property
    def is_up(self) -> bool:
        return self.life is not None

    def wall_ms(self) -> int:
        now_ns = self.world.loop.now_ns
        return EPOCH_MS + (self.life.local_ns(now_ns) if self.life else now_ns) // 1_000_000 + self.wall_skew_ms

    def boot(self, main: Main) -> SimulatedTask[object]:
        """Start the host's process. When `main` returns, the process ends; when it raises, the simulation fails."""
        assert self.life is None, f"{self.name} is up"
        self.lives += 1
        self.halted = None
        life = self.life = Life(self.name, self.number, self.lives, self.disk)
        life.clock_rate_ppm = self.clock_rate_ppm
        life.clock_offset_ns = self.clock_offset_ns
        self.disk.take_cost_ns()
        self.world.network.host_up(self.node, life)
        self.environment = SimulatedEnvironment(self, life)
        self.world.event("boot", self.name, self.lives)
        context = life.context()
        process = _process(main, self.environment)
        task = context.run(self.world.loop.create_task, process, name=self.name, context=context)
        task.add_done_callback(self._main_ended, context=context)
        return task

    def _main_ended(self, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            self.kill()
        elif not isinstance(error, ProcessEnded):
            failed = SimulationFailed(f"{self.name} ended with {error!r}")
            failed.__cause__ = error
            self.world.loop.fail(failed)

    def kill(self) -> None:
        """End the host's process, as `kill -9` does. Data that the kernel already has is not lost."""
        if self.life is not None:
            self.world.event("kill", self.name)
            self._end(kernel_lives=True, reset=False)
            self.disk.end_process()

    def crash(self, *, reset: bool | None = None) -> None:
        """Cut the power of the host. With `reset` its peers get a reset at once, without it they get nothing more; by
        default the seed chooses.
        """
        self.world.event("crash", self.name)
        self.crashes += 1
        if reset is None:
            reset = self.world.random.random() < 0.5
        self._end(kernel_lives=False, reset=reset)
        self.disk.crash()

    def _end(self, *, kernel_lives: bool, reset: bool) -> None:
        life, self.life, self.environment = self.life, None, None
        self._paused = False
        if life is not None:
            self.world.bury(life)
        self.world.network.host_down(self.node, kernel_lives=kernel_lives, reset=reset)

    @property
    def is_paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        if self.life is not None and not self._paused:
            self.world.event("pause", self.name)
            self._paused = True
            self.world.loop.hold(self.life)

    def resume(self) -> None:
        if self.life is not None and self._paused:
            self.world.event("resume", self.name)
            self._paused = False
            self.world.loop.unhold(self.life)


async def _process(main: Main, environment: SimulatedEnvironment) -> object:
    """Call `main` within the task of the host, so that its code before the first await also runs on the host."""
    return await main(environment)


class World:
    """The hosts, the network and the random generators of one simulation. It is used as a context manager."""

    def __init__(self, seed: int | str, *, keep_trace: bool = False, has_virtual_modules: bool = False) -> None:
        """`has_virtual_modules`: whether the functions of `time` and `random` use virtual time and the seed. Otherwise
        they raise, because the broker must not call them.
        """
        self.seed = seed
        self._has_virtual_modules = has_virtual_modules
        self.random = Random(f"{seed}/world")
        self.trace = Trace(keep=keep_trace)
        self.hosts: dict[str, Host] = {}
        self.buckets: dict[str, SimulatedBucket] = {}
        """The buckets of remote storage, by URL. They outlive hosts."""
        life = Life(DRIVER, 0, 1, SimulatedDisk(f"{seed}/{DRIVER}"))
        self.loop = SimulatedLoop(seed, life, self.trace)  # type: ignore[abstract]  # the rest is not simulated
        self.network = self.loop.network = Network(seed, self.loop)
        self.network.host_up(self.network.add(DRIVER), life)
        self._graveyard: list[tuple[Life, list[SimulatedTask[Any]]]] = []

    def add_host(self, name: str) -> Host:
        host = self.hosts[name] = Host(self, name, len(self.hosts) + 1)
        return host

    def run(self, scenario: Awaitable[T], *, limit_s: float = LIMIT_S_DEFAULT) -> T:
        """Run a coroutine of the test as the host `driver`, and all other hosts at the same time, until it returns.

        Raises what the coroutine raises, `SimulationFailed` for an error on a host, and `RealityTouched`.
        """
        limit_ns = self.loop.now_ns + int(limit_s * NANOSECONDS)
        virtual = None
        if self._has_virtual_modules:
            virtual = virtual_functions(self._wall_ns, Random(f"{self.seed}/modules"))
        with RealityGuard(self.loop.fail, self._wall_ns, virtual):
            return self.loop.run_until_limit(scenario, limit_ns)

    def _wall_ns(self) -> int:
        return EPOCH_MS * 1_000_000 + self.loop.now_ns

    @property
    def now_s(self) -> float:
        return self.loop.now_ns / NANOSECONDS

    def event(self, *parts: str | int | bytes | bool | None) -> None:
        """Add an event to the trace, such as a commit, an election or an acknowledgement."""
        self.trace.event(self.loop.now_ns, self.loop.current.host, *parts)

    def digest(self) -> str:
        """The digest of the run, which is equal for equal runs of the same code on the same Python."""
        return self.trace.digest()

    def may_change(self) -> bool:
        return self.loop.current.alive and not self.loop.is_closed()

    def bury(self, life: Life) -> None:
        self.loop.end(life)
        tasks = [task for task in _all_tasks(self.loop) if isinstance(task, SimulatedTask) and task.life is life]
        self._graveyard.append((life, tasks))

    def close(self) -> None:
        """End the simulation. Only now coroutines are closed; what they do then has no effect."""
        self.loop.close()
        for host in self.hosts.values():
            host.disk.end_process()
        tasks: list[asyncio.Task[Any]] = [task for _, buried in self._graveyard for task in buried]
        tasks.extend(sorted(_all_tasks(self.loop), key=hash))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of the dead that were never awaited
            for task in tasks:
                _throw_away(task)
            for life, _ in self._graveyard:
                life.queue.clear()
            self._graveyard.clear()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _throw_away(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    # What it raises while it is closed has no receiver: its host is gone.
    with suppress(BaseException):
        if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            # Python warns of a coroutine that was never begun: this one's arguments may be such ones as well.
            for argument in inspect.getcoroutinelocals(coroutine).values():
                if inspect.iscoroutine(argument):
                    argument.close()
        if coroutine is not None:
            coroutine.close()
