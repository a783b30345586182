"""Closed loops: a fixed number of encoded requests in flight, on both brokers in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.contenders import Contender, ContenderRun, run_in_turns, warmed_contenders
from bench.figures import Figure
from bench.groups import RunForm
from bench.subjects import Bench
from bench.workloads import LOADS, Workload

WARM_UP_SHARE = 10
"""Before the measured rounds of a load, a round of this part of it runs uncounted."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    return measure_workloads(bench, form, LOADS)


def measure_workloads(bench: Bench, form: RunForm, workloads: Sequence[Workload]) -> list[Figure]:
    """Measure all these loads, with some rounds on each broker in turn."""
    figures: list[Figure] = []
    contenders = warmed_contenders(bench, form)
    for workload in workloads:
        requests = workload.requests_quick if form.is_quick else workload.requests
        for contender in contenders:
            contender.run_load(workload, max(requests // WARM_UP_SHARE, 100))
        figures += figures_of(workload, run_rounds(contenders, workload, form.rounds, requests))
    return figures


def run_rounds(
    contenders: Sequence[Contender], workload: Workload, count: int, requests: int
) -> dict[str, list[ContenderRun]]:
    def run(contender: Contender) -> ContenderRun:
        contender.warm_memory(workload.log_size(requests))
        return contender.run_load(workload, requests)

    print(f"  {workload.name}", flush=True)
    return run_in_turns(contenders, count, run, lambda result: run_note(workload, result))


def figures_of(workload: Workload, runs: dict[str, list[ContenderRun]]) -> list[Figure]:
    """The rate, latencies and CPU time of a load: for each request if they are small, for each gigabyte if they are
    large.
    """
    generator = max(run.outcome.generator_share for mine in runs.values() for run in mine)
    unit, scale = ("s/GB", 1e9) if workload.is_counted_in_mb else ("us", 1e-6)

    def figure(what: str, unit: str, of: Callable[[ContenderRun], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(each) for each in mine] for name, mine in runs.items()}
        return Figure(f"{workload.name}: {what}", unit, values, less_is_better, generator=generator)

    def per_unit(seconds: float, run: ContenderRun) -> float:
        amount = _size(workload, run) / scale if workload.is_counted_in_mb else run.outcome.requests * scale
        return seconds / amount

    rate_unit = "MB/s" if workload.is_counted_in_mb else "requests/s"
    return [
        figure("rate", rate_unit, lambda run: workload_rate(workload, run), less_is_better=False),
        figure("p50", "ms", lambda run: run.outcome.latency_ms(0.5)),
        figure("p99", "ms", lambda run: run.outcome.latency_ms(0.99)),
        figure("user CPU", unit, lambda run: per_unit(run.spent.cpu.user_s, run)),
        figure("user + system CPU", unit, lambda run: per_unit(run.spent.cpu.total_s, run)),
        figure("RssAnon at most", "MB", lambda run: run.spent.anonymous_mb_max),
    ]


def workload_rate(workload: Workload, run: ContenderRun) -> float:
    if not workload.is_counted_in_mb:
        return run.outcome.requests / run.outcome.seconds
    return _size(workload, run) / run.outcome.seconds / 1e6


def _size(workload: Workload, run: ContenderRun) -> int:
    return run.outcome.received_size if workload.is_fetch else run.outcome.sent_size


def run_note(workload: Workload, run: ContenderRun) -> str:
    outcome, spent = run
    unit = "MB/s" if workload.is_counted_in_mb else "requests/s"
    each = 1e6 / outcome.requests
    median_ms, p99_ms = outcome.latency_ms(0.5), outcome.latency_ms(0.99)
    return (
        f"{workload_rate(workload, run):,.0f} {unit}, p50 {median_ms:.2f} ms, p99 {p99_ms:.2f} ms,"
        f" CPU {spent.cpu.user_s * each:.1f} + {spent.cpu.system_s * each:.1f} us a request,"
        f" {spent.anonymous_mb_max:.0f} MB (generator {outcome.generator_cpu_s * each:.1f} us,"
        f" {100 * outcome.generator_share:.0f} % of a core)"
    )
