"""The brokers under load, side by side: warmed up, taking turns run by run, with what each spends of the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from bench import load
from bench.figures import Figure
from bench.processes import CpuTime, cpu_time
from bench.subjects import Bench, Running, remove, warm_memory
from bench.workloads import HOT_PATH, Workload

SCRATCH_SIZE_MIN = 512 << 20
SCRATCH_SIZE_MAX = 4 << 30
WARM_UP_REQUESTS = 20_000
WARM_UP_SHARE = 10
"""Before the measured rounds of a load comes a round of this part of it that is not counted."""


class Run(NamedTuple):
    """One run of a load against one broker."""

    outcome: load.Outcome
    cpu: CpuTime


class Contender:
    """A running broker and the topics made in it, one for each run."""

    def __init__(self, broker: Running) -> None:
        self.name = broker.server.name
        self._broker = broker
        self._topics = 0

    def run(self, workload: Workload, requests: int) -> Run:
        """A run on a topic of its own, which is deleted afterwards."""
        self._topics += 1
        topic = f"{self.name}-{self._topics:06d}"
        port, pid = self._broker.server.port, self._broker.pid
        client = self._broker.connect()
        client.create_topic(topic)
        frames = workload.frames(client, topic)
        error_position = workload.error_position(topic)
        before = cpu_time(pid)
        outcome = load.run(port, frames, in_flight=workload.in_flight, requests=requests, error_position=error_position)
        used = cpu_time(pid).since(before)
        client.delete_topic(topic)
        client.close()
        return Run(outcome, used)

    def measure(self, workload: Workload, requests: int) -> Run:
        """A run that counts: memory is warmed before it."""
        size = workload.log_size(requests) + (64 << 20)
        warm_memory(self._broker.server.directory, min(max(2 * size, SCRATCH_SIZE_MIN), SCRATCH_SIZE_MAX))
        result = self.run(workload, requests)
        print(f"  {self.name}: {workload.name}: {_sentence(workload, result)}", flush=True)
        return result

    def last_lines(self) -> str:
        text = (self._broker.server.directory / "server.log").read_text(errors="replace")
        return "\n".join(f"    {self.name}: {line}" for line in text.splitlines()[-12:])

    def warm_up(self, seconds: float) -> None:
        """Until the compiler of a JVM has seen the path of a produce for long enough."""
        print(f"  {self.name}: warming up for {seconds:.0f} s", flush=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.run(HOT_PATH, WARM_UP_REQUESTS)


def measure_loads(
    bench: Bench, workloads: Sequence[Workload], rounds: int, warm_up_s: float, *, quick: bool
) -> list[Figure]:
    """All loads, each so many rounds with every broker in turn."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        contenders = []
        for name in bench.names:
            server = bench.new(name)
            server.format()
            stack.callback(remove, server)
            contenders.append(Contender(stack.enter_context(Running(server))))
        for contender in contenders:
            contender.warm_up(warm_up_s)
        for workload in workloads:
            requests = workload.requests_quick if quick else workload.requests
            try:
                figures += figures_of(workload, _rounds(contenders, workload, rounds, requests))
            except load.LoadFailed as failure:
                print(f"  {workload.name}: not measured, {failure}; what the brokers said last:", flush=True)
                for contender in contenders:
                    print(contender.last_lines(), flush=True)
    return figures


def _rounds(contenders: Sequence[Contender], workload: Workload, rounds: int, requests: int) -> dict[str, list[Run]]:
    for contender in contenders:
        contender.run(workload, max(requests // WARM_UP_SHARE, 100))
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            runs[contender.name].append(contender.measure(workload, requests))
    return runs


def figures_of(workload: Workload, runs: dict[str, list[Run]]) -> list[Figure]:
    """Rate, latencies and CPU of a load: for a request where they are small, for a gigabyte where they are large."""

    def figure(
        key: str, what: str, unit: str, of: Callable[[Run], float], *, less_is_better: bool = True, note: str = ""
    ) -> Figure:
        limit = workload.limits.get(key)
        return Figure(
            f"{workload.name}: {what}",
            unit,
            {name: [of(each) for each in mine] for name, mine in runs.items()},
            bar=limit.bar if limit else None,
            target=limit.target if limit else None,
            bar_is_ratio=limit.is_ratio if limit else False,
            less_is_better=less_is_better,
            note=note,
        )

    unit, scale = ("s/GB", 1e9) if workload.is_counted_in_mb else ("us", 1e-6)

    def per_unit(seconds: float, run: Run) -> float:
        amount = _size(workload, run) / scale if workload.is_counted_in_mb else run.outcome.requests * scale
        return seconds / amount

    generator = max(run.outcome.generator_cpu_s / run.outcome.seconds for mine in runs.values() for run in mine)
    return [
        figure(
            "rate",
            "rate",
            "MB/s" if workload.is_counted_in_mb else "requests/s",
            lambda run: rate(workload, run),
            less_is_better=False,
            note=f"the generator used up to {100 * generator:.0f} % of a core",
        ),
        figure("p50", "p50", "ms", lambda run: run.outcome.latency_ms(0.5)),
        figure("p99", "p99", "ms", lambda run: run.outcome.latency_ms(0.99)),
        figure("user", "user CPU", unit, lambda run: per_unit(run.cpu.user_s, run)),
        figure("cpu", "user + system CPU", unit, lambda run: per_unit(run.cpu.total_s, run)),
    ]


def rate(workload: Workload, run: Run) -> float:
    if not workload.is_counted_in_mb:
        return run.outcome.requests / run.outcome.seconds
    return _size(workload, run) / run.outcome.seconds / 1e6


def _size(workload: Workload, run: Run) -> int:
    return run.outcome.received_size if workload.is_fetch else run.outcome.sent_size


def _sentence(workload: Workload, run: Run) -> str:
    outcome, cpu = run
    unit = "MB/s" if workload.is_counted_in_mb else "requests/s"
    each = 1e6 / outcome.requests
    median_ms, p99_ms = outcome.latency_ms(0.5), outcome.latency_ms(0.99)
    return (
        f"{rate(workload, run):,.0f} {unit}, p50 {median_ms:.2f} ms, p99 {p99_ms:.2f} ms,"
        f" CPU {cpu.user_s * each:.1f} + {cpu.system_s * each:.1f} us a request"
        f" (generator {outcome.generator_cpu_s * each:.1f})"
    )
