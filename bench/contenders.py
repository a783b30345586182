"""The brokers under load, side by side. They are warmed up and run in turns, and their resource usage is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from bench import load
from bench.client import Client
from bench.groups import RunForm
from bench.outcome import Outcome
from bench.processes import CpuTime, cpu_time, memory
from bench.subjects import Bench, RunningBroker, remove_server, warm_memory
from bench.workloads import HOT_PATH, Workload

T = TypeVar("T")


class NamedSubject(Protocol):
    """A subject of a measurement. Its name appears in the figures."""

    @property
    def name(self) -> str: ...


SubjectT = TypeVar("SubjectT", bound=NamedSubject)

SCRATCH_SIZE_MIN = 512 << 20
SCRATCH_SIZE_MAX = 4 << 30
WARM_UP_REQUESTS = 20_000
MEMORY_SAMPLE_S = 0.02


class ResourceUsage(NamedTuple):
    """The time, the CPU time and the peak memory that a broker used for some work."""

    seconds: float
    cpu: CpuTime
    anonymous_mb_max: float


class ContenderRun(NamedTuple):
    """The result of one run of a load against one broker."""

    outcome: Outcome
    spent: ResourceUsage


class Contender:
    """A running broker under load. Each run has a topic of its own."""

    def __init__(self, broker: RunningBroker) -> None:
        self.name = broker.server.name
        self.port = broker.server.port
        self.pid = broker.pid
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.directory = broker.server.directory
        self._broker = broker
        self._topics = 0

    @contextmanager
    def new_topic(self) -> Iterator[tuple[Client, str]]:
        """A context with a new topic of one partition, which is deleted at the end."""
        self._topics += 1
        topic = f"{self.name}-{self._topics:06d}"
        client = self._broker.connect()
        try:
            client.create_topic(topic)
            yield client, topic
            client.delete_topic(topic)
        finally:
            client.close()

    def measure_usage(self, work: Callable[[], T]) -> tuple[T, ResourceUsage]:
        """Run `work`, and return its result and the resources that the broker's process used meanwhile."""
        with _PeakMemory(self.pid) as peak:
            before, began = cpu_time(self.pid), time.perf_counter()
            result = work()
            seconds, cpu = time.perf_counter() - began, cpu_time(self.pid).since(before)
        return result, ResourceUsage(seconds, cpu, peak.anonymous_mb)

    def run_load(self, workload: Workload, requests: int) -> ContenderRun:
        """Run a closed loop on a topic of its own."""
        with self.new_topic() as (client, topic):
            frames = workload.frames(client, topic)
            position = workload.error_position(topic)
            return ContenderRun(
                *self.measure_usage(
                    lambda: load.run_load(
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
        """Touch about as much memory as the next run will write into the log."""
        warm_memory(self.directory, min(max(2 * size, SCRATCH_SIZE_MIN), SCRATCH_SIZE_MAX))

    def warm_up(self, seconds: float) -> None:
        """Produce for some seconds, so that a JVM compiles the code of a produce."""
        print(f"  {self.name}: warming up for {seconds:.0f} s", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.run_load(HOT_PATH, WARM_UP_REQUESTS)

    def last_lines(self) -> str:
        text = (self.directory / "server.log").read_text(errors="replace")
        return "\n".join(f"    {self.name}: {line}" for line in text.splitlines()[-12:])


class _PeakMemory:
    """Measures the peak of a process's anonymous memory during a `with` block, with a sample every 20 ms."""

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


def warmed_contenders(bench: Bench, form: RunForm) -> Sequence[Contender]:
    """Return the brokers that several groups share. They start and warm up for the first group that needs them."""
    if not bench.contenders:
        for name in bench.names:
            server = bench.new_server(name)
            server.format()
            bench.running.callback(remove_server, server)
            bench.contenders.append(Contender(bench.running.enter_context(RunningBroker(server))))
        for contender in bench.contenders:
            contender.warm_up(form.warm_up_s)
    return bench.contenders


def run_in_turns(
    contenders: Sequence[SubjectT], rounds: int, work: Callable[[SubjectT], T], told: Callable[[T], str]
) -> dict[str, list[T]]:
    """Run `work` on the contenders in turns (A/B/A/B). Returns the results of each contender; results at the same index
    are of neighbouring times.
    """
    runs: dict[str, list[T]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            result = work(contender)
            print(f"  {contender.name}: {told(result)}", flush=True)
            runs[contender.name].append(result)
    return runs
