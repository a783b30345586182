"""Closed loops: a fixed number of ready-made requests in flight, both brokers in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.contenders import Contender, Run, in_turns, warmed
from bench.figures import Figure
from bench.groups import Form
from bench.subjects import Bench
from bench.workloads import LOADS, Workload

WARM_UP_SHARE = 10
"""Before the measured rounds of a load comes a round of this part of it that is not counted."""


def measure(bench: Bench, form: Form) -> list[Figure]:
    return measured(bench, form, LOADS)


def measured(bench: Bench, form: Form, workloads: Sequence[Workload]) -> list[Figure]:
    """All these loads, each so many rounds with every broker in turn."""
    figures: list[Figure] = []
    contenders = warmed(bench, form)
    for workload in workloads:
        requests = workload.requests_quick if form.is_quick else workload.requests
        for contender in contenders:
            contender.run(workload, max(requests // WARM_UP_SHARE, 100))
        figures += figures_of(workload, rounds(contenders, workload, form.rounds, requests))
    return figures


def rounds(contenders: Sequence[Contender], workload: Workload, count: int, requests: int) -> dict[str, list[Run]]:
    def run(contender: Contender) -> Run:
        contender.warm_memory(workload.log_size(requests))
        return contender.run(workload, requests)

    print(f"  {workload.name}", flush=True)
    return in_turns(contenders, count, run, lambda result: sentence(workload, result))


def figures_of(workload: Workload, runs: dict[str, list[Run]]) -> list[Figure]:
    """Rate, latencies and CPU of a load: for a request if they are small, for a gigabyte if they are large."""
    generator = max(run.outcome.generator_share for mine in runs.values() for run in mine)
    unit, scale = ("s/GB", 1e9) if workload.is_counted_in_mb else ("us", 1e-6)

    def figure(what: str, unit: str, of: Callable[[Run], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(each) for each in mine] for name, mine in runs.items()}
        return Figure(f"{workload.name}: {what}", unit, values, less_is_better, generator=generator)

    def per_unit(seconds: float, run: Run) -> float:
        amount = _size(workload, run) / scale if workload.is_counted_in_mb else run.outcome.requests * scale
        return seconds / amount

    rate_unit = "MB/s" if workload.is_counted_in_mb else "requests/s"
    return [
        figure("rate", rate_unit, lambda run: rate(workload, run), less_is_better=False),
        figure("p50", "ms", lambda run: run.outcome.latency_ms(0.5)),
        figure("p99", "ms", lambda run: run.outcome.latency_ms(0.99)),
        figure("user CPU", unit, lambda run: per_unit(run.spent.cpu.user_s, run)),
        figure("user + system CPU", unit, lambda run: per_unit(run.spent.cpu.total_s, run)),
        figure("RssAnon at most", "MB", lambda run: run.spent.anonymous_mb_max),
    ]


def rate(workload: Workload, run: Run) -> float:
    if not workload.is_counted_in_mb:
        return run.outcome.requests / run.outcome.seconds
    return _size(workload, run) / run.outcome.seconds / 1e6


def _size(workload: Workload, run: Run) -> int:
    return run.outcome.received_size if workload.is_fetch else run.outcome.sent_size


def sentence(workload: Workload, run: Run) -> str:
    outcome, spent = run
    unit = "MB/s" if workload.is_counted_in_mb else "requests/s"
    each = 1e6 / outcome.requests
    median_ms, p99_ms = outcome.latency_ms(0.5), outcome.latency_ms(0.99)
    return (
        f"{rate(workload, run):,.0f} {unit}, p50 {median_ms:.2f} ms, p99 {p99_ms:.2f} ms,"
        f" CPU {spent.cpu.user_s * each:.1f} + {spent.cpu.system_s * each:.1f} us a request,"
        f" {spent.anonymous_mb_max:.0f} MB (generator {outcome.generator_cpu_s * each:.1f} us,"
        f" {100 * outcome.generator_share:.0f} % of a core)"
    )
