"""librdkafka as a client, in a process of its own: the speed of the client on which most others are built."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.contenders import Contender, ResourceUsage, run_in_turns, warmed_contenders
from bench.figures import Figure
from bench.groups import RunForm
from bench.subjects import Bench, die_with_parent

PATIENCE_S: Final = 120
PRODUCING: Final = ("linger.ms=5", "queue.buffering.max.messages=500000", "acks=all")
CONSUMING: Final = ("queued.min.messages=1000000", "fetch.wait.max.ms=100", "check.crcs=false")


class ClientCase(NamedTuple):
    """Records of one size, and the settings of the client."""

    name: str
    record_size: int
    records: int
    settings: tuple[str, ...]
    is_consume: bool = False


CASES: Final = (
    ClientCase("produce 100 B", 100, 6_000_000, ("acks=1",)),
    ClientCase("produce 1 KiB, acks=all", 1024, 1_500_000, ()),
    ClientCase("produce 1 KiB, lz4", 1024, 1_000_000, ("compression.codec=lz4",)),
    ClientCase("produce 1 KiB, idempotent", 1024, 1_500_000, ("enable.idempotence=true",)),
    ClientCase("consume 1 KiB", 1024, 1_500_000, (), is_consume=True),
)
QUICK_SHARE: Final = 4


class ClientRun(NamedTuple):
    """The output of the client, and the broker's resources."""

    records_a_second: float
    client_share: float
    megabytes: float
    spent: ResourceUsage


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    contenders = warmed_contenders(bench, form)
    figures: list[Figure] = []
    for case in CASES:
        count = case.records // (QUICK_SHARE if form.is_quick else 1)
        print(f"  {case.name}", flush=True)

        def run(contender: Contender, case: ClientCase = case, count: int = count) -> ClientRun:
            return run_case(contender, case, count)

        figures += figures_of(case, run_in_turns(contenders, form.rounds, run, run_note))
    return figures


def run_case(contender: Contender, case: ClientCase, count: int) -> ClientRun:
    contender.warm_memory(count * case.record_size)
    with contender.new_topic() as (_, topic):
        address = (contender.bootstrap, topic, str(count), str(case.record_size))
        if case.is_consume:
            run_child_process("produce", *address, *PRODUCING)
        words = (
            ("consume", *address, *CONSUMING) if case.is_consume else ("produce", *address, *PRODUCING, *case.settings)
        )
        said, spent = contender.measure_usage(lambda: run_child_process(*words))
    return ClientRun(count / said["seconds"], said["cpu_s"] / said["seconds"], count * case.record_size / 1e6, spent)


def run_child_process(*words: str) -> dict[str, float]:
    """Run the child process, and return what it prints at its end."""
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


def figures_of(case: ClientCase, runs: dict[str, list[ClientRun]]) -> list[Figure]:
    client = max(run.client_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[ClientRun], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"librdkafka {case.name}: {what}", unit, values, less_is_better, generator=client)

    return [
        figure("rate", "records/s", lambda run: run.records_a_second, less_is_better=False),
        figure("user + system CPU", "s/GB", lambda run: run.spent.cpu.total_s / run.megabytes * 1e3),
        figure("RssAnon at most", "MB", lambda run: run.spent.anonymous_mb_max),
    ]


def run_note(run: ClientRun) -> str:
    return (
        f"{run.records_a_second:,.0f} records/s, broker {run.spent.cpu.total_s / run.megabytes * 1e3:.2f} s a GB,"
        f" {run.spent.anonymous_mb_max:.0f} MB (client {100 * run.client_share:.0f} % of a core)"
    )
