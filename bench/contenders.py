"""The brokers under load, side by side: warmed up, taking turns run by run, with what each spends meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from bench import load
from bench.client import Client
from bench.groups import Form
from bench.outcome import Outcome
from bench.processes import CpuTime, cpu_time, memory
from bench.subjects import Bench, Running, remove, warm_memory
from bench.workloads import HOT_PATH, Workload

T = TypeVar("T")


class Named(Protocol):
    """What takes part in a measurement; its name stands in the figures."""

    @property
    def name(self) -> str: ...


SubjectT = TypeVar("SubjectT", bound=Named)

SCRATCH_SIZE_MIN = 512 << 20
SCRATCH_SIZE_MAX = 4 << 30
WARM_UP_REQUESTS = 20_000
MEMORY_SAMPLE_S = 0.02


class Spent(NamedTuple):
    """What a broker took for a piece of work."""

    seconds: float
    cpu: CpuTime
    anonymous_mb_max: float


class Run(NamedTuple):
    """One run of a load against one broker."""

    outcome: Outcome
    spent: Spent


class Contender:
    """A running broker, and the topics made in it: each run has one of its own."""

    def __init__(self, broker: Running) -> None:
        self.name = broker.server.name
        self.port = broker.server.port
        self.pid = broker.pid
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.directory = broker.server.directory
        self._broker = broker
        self._topics = 0

    @contextmanager
    def topic(self) -> Iterator[tuple[Client, str]]:
        """A new topic of one partition, deleted afterwards."""
        self._topics += 1
        topic = f"{self.name}-{self._topics:06d}"
        client = self._broker.connect()
        try:
            client.create_topic(topic)
            yield client, topic
            client.delete_topic(topic)
        finally:
            client.close()

    def spend(self, work: Callable[[], T]) -> tuple[T, Spent]:
        """Do it, and see what the broker's process takes for it."""
        with _PeakMemory(self.pid) as peak:
            before, began = cpu_time(self.pid), time.perf_counter()
            result = work()
            seconds, cpu = time.perf_counter() - began, cpu_time(self.pid).since(before)
        return result, Spent(seconds, cpu, peak.anonymous_mb)

    def run(self, workload: Workload, requests: int) -> Run:
        """A closed loop on a topic of its own."""
        with self.topic() as (client, topic):
            frames = workload.frames(client, topic)
            position = workload.error_position(topic)
            return Run(
                *self.spend(
                    lambda: load.run(
                        self.port,
                        frames,
                        in_flight=workload.in_flight,
                        requests=requests,
                        error_position=position,
                        discards=workload.discards,
                    )
                )
            )

    def warm_memory(self, size: int) -> None:
        """For about so many bytes that the next run leaves in the log."""
        warm_memory(self.directory, min(max(2 * size, SCRATCH_SIZE_MIN), SCRATCH_SIZE_MAX))

    def warm_up(self, seconds: float) -> None:
        """Until the compiler of a JVM has seen the path of a produce for long enough."""
        print(f"  {self.name}: warming up for {seconds:.0f} s", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.run(HOT_PATH, WARM_UP_REQUESTS)

    def last_lines(self) -> str:
        text = (self.directory / "server.log").read_text(errors="replace")
        return "\n".join(f"    {self.name}: {line}" for line in text.splitlines()[-12:])


class _PeakMemory:
    """The most anonymous memory that a process held while `with` lasted, looked at every 20 ms."""

    def __init__(self, pid: int) -> None:
        self.anonymous_mb = 0.0
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.anonymous_mb = max(self.anonymous_mb, memory(self._pid).anonymous_mb)
            if self._is_over.wait(MEMORY_SAMPLE_S):
                return


def warmed(bench: Bench, form: Form) -> Sequence[Contender]:
    """The brokers that groups share, started and warmed when the first of them asks."""
    if not bench.contenders:
        for name in bench.names:
            server = bench.new(name)
            server.format()
            bench.running.callback(remove, server)
            bench.contenders.append(Contender(bench.running.enter_context(Running(server))))
        for contender in bench.contenders:
            contender.warm_up(form.warm_up_s)
    return bench.contenders


def in_turns(
    contenders: Sequence[SubjectT], rounds: int, work: Callable[[SubjectT], T], told: Callable[[T], str]
) -> dict[str, list[T]]:
    """A/B/A/B: what each broker's runs gave, neighbours in time at the same place of their lists."""
    runs: dict[str, list[T]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            result = work(contender)
            print(f"  {contender.name}: {told(result)}", flush=True)
            runs[contender.name].append(result)
    return runs
