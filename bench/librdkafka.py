"""librdkafka as a client, in a process of its own: how fast the client that most others are built on can go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.contenders import Contender, Spent, in_turns, warmed
from bench.figures import Figure
from bench.groups import Form
from bench.subjects import Bench, die_with_parent

PATIENCE_S: Final = 120
PRODUCING: Final = ("linger.ms=5", "queue.buffering.max.messages=500000", "acks=all")
CONSUMING: Final = ("queued.min.messages=1000000", "fetch.wait.max.ms=100", "check.crcs=false")


class Case(NamedTuple):
    """Records of one size, and the settings of the client."""

    name: str
    record_size: int
    records: int
    settings: tuple[str, ...]
    is_consume: bool = False


CASES: Final = (
    Case("produce 100 B", 100, 6_000_000, ("acks=1",)),
    Case("produce 1 KiB, acks=all", 1024, 1_500_000, ()),
    Case("produce 1 KiB, lz4", 1024, 1_000_000, ("compression.codec=lz4",)),
    Case("produce 1 KiB, idempotent", 1024, 1_500_000, ("enable.idempotence=true",)),
    Case("consume 1 KiB", 1024, 1_500_000, (), is_consume=True),
)
QUICK_SHARE: Final = 4


class Run(NamedTuple):
    """What the client said, and what the broker spent."""

    records_a_second: float
    client_share: float
    megabytes: float
    spent: Spent


def measure(bench: Bench, form: Form) -> list[Figure]:
    contenders = warmed(bench, form)
    figures: list[Figure] = []
    for case in CASES:
        count = case.records // (QUICK_SHARE if form.is_quick else 1)
        print(f"  {case.name}", flush=True)

        def run(contender: Contender, case: Case = case, count: int = count) -> Run:
            return measured(contender, case, count)

        figures += figures_of(case, in_turns(contenders, form.rounds, run, sentence))
    return figures


def measured(contender: Contender, case: Case, count: int) -> Run:
    contender.warm_memory(count * case.record_size)
    with contender.topic() as (_, topic):
        address = (contender.bootstrap, topic, str(count), str(case.record_size))
        if case.is_consume:
            asked("produce", *address, *PRODUCING)
        words = (
            ("consume", *address, *CONSUMING) if case.is_consume else ("produce", *address, *PRODUCING, *case.settings)
        )
        said, spent = contender.spend(lambda: asked(*words))
    return Run(count / said["seconds"], said["cpu_s"] / said["seconds"], count * case.record_size / 1e6, spent)


def asked(*words: str) -> dict[str, float]:
    """Run the child process; what it says at its end."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.librdkafka_client", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        preexec_fn=die_with_parent,
    )
    if done.returncode != 0:
        raise RuntimeError(f"librdkafka: {done.stderr[-600:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def figures_of(case: Case, runs: dict[str, list[Run]]) -> list[Figure]:
    client = max(run.client_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[Run], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"librdkafka {case.name}: {what}", unit, values, less_is_better, generator=client)

    return [
        figure("rate", "records/s", lambda run: run.records_a_second, less_is_better=False),
        figure("user + system CPU", "s/GB", lambda run: run.spent.cpu.total_s / run.megabytes * 1e3),
        figure("RssAnon at most", "MB", lambda run: run.spent.anonymous_mb_max),
    ]


def sentence(run: Run) -> str:
    return (
        f"{run.records_a_second:,.0f} records/s, broker {run.spent.cpu.total_s / run.megabytes * 1e3:.2f} s a GB,"
        f" {run.spent.anonymous_mb_max:.0f} MB (client {100 * run.client_share:.0f} % of a core)"
    )
