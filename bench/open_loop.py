"""The latency of produce requests at a given rate, from the time at which each request was due.

The rate is half of what Apache Kafka reaches in a closed loop in the same run. A broker that stalls is charged for
every request that should have left meanwhile: there is no coordinated omission.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from bench import load
from bench.contenders import Contender, ContenderRun, run_in_turns, warmed_contenders
from bench.figures import PEER, Figure
from bench.groups import RunForm
from bench.subjects import Bench
from bench.workloads import SMALL

NAME = "open loop at half of Apache Kafka's peak, 200 B, 4 connections"
SECONDS = 8
SECONDS_QUICK = 4
PEAK_ROUNDS = 3


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    contenders = warmed_contenders(bench, form)
    rate = _peak(contenders[-1], form) / 2
    requests = int(rate * (SECONDS_QUICK if form.is_quick else SECONDS))
    print(f"  {rate:,.0f} requests/s, half of the peak of {contenders[-1].name}", flush=True)

    def run(contender: Contender) -> ContenderRun:
        contender.warm_memory(SMALL.log_size(requests))
        with contender.new_topic() as (client, topic):
            frames = SMALL.frames(client, topic)
            position = SMALL.error_position(topic)
            interval_ns = round(1e9 / rate)
            return ContenderRun(
                *contender.measure_usage(
                    lambda: load.run_load(
                        contender.port,
                        frames,
                        in_flight=SMALL.in_flight,
                        requests=requests,
                        error_position=position,
                        interval_ns=interval_ns,
                    )
                )
            )

    runs = run_in_turns(contenders, form.rounds, run, _sentence)
    generator = max(run.outcome.generator_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[ContenderRun], float], note: str = "") -> Figure:
        values = {name: [of(each) for each in mine] for name, mine in runs.items()}
        return Figure(f"{NAME}: {what}", unit, values, generator=generator, note=note)

    whose = "Apache Kafka" if contenders[-1].name == PEER else "Moldau itself"
    return [
        figure("p50", "ms", lambda run: run.outcome.latency_ms(0.5)),
        figure(
            "p99",
            "ms",
            lambda run: run.outcome.latency_ms(0.99),
            f"{rate:,.0f} requests/s, half of the closed loop's rate of {whose} just before",
        ),
        figure("p99.9", "ms", lambda run: run.outcome.latency_ms(0.999)),
        figure("longest", "ms", lambda run: run.outcome.latency_ms(1.0)),
        figure("user + system CPU", "us", lambda run: run.spent.cpu.total_s / run.outcome.requests * 1e6),
    ]


def _peak(contender: Contender, form: RunForm) -> float:
    requests = SMALL.requests_quick if form.is_quick else SMALL.requests // 2
    runs = [contender.run_load(SMALL, requests).outcome for _ in range(PEAK_ROUNDS)]
    return median(run.requests / run.seconds for run in runs)


def _sentence(run: ContenderRun) -> str:
    latency_ms = run.outcome.latency_ms
    return (
        f"p50 {latency_ms(0.5):.2f} ms, p99 {latency_ms(0.99):.2f}, p99.9 {latency_ms(0.999):.2f},"
        f" longest {latency_ms(1.0):.1f} (generator {100 * run.outcome.generator_share:.0f} % of a core)"
    )
