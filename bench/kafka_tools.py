"""Kafka's own perf tools, a Java process for each run: what they say is bound by what they spend themselves."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.contenders import Contender, Spent, in_turns, warmed
from bench.figures import Figure
from bench.groups import Form
from bench.subjects import Bench, die_with_parent
from tests.conformance.toolchain import Toolchain

PATIENCE_S: Final = 180
PACKAGE: Final = "org.apache.kafka.tools"


class Case(NamedTuple):
    """Records of one size; of them some are sent before the tool begins to count."""

    name: str
    record_size: int
    records: int
    uncounted: int


CASES: Final = (Case("100 B", 100, 2_000_000, 600_000), Case("1 KiB", 1024, 500_000, 150_000))
QUICK_SHARE: Final = 5


class Ended(NamedTuple):
    """A tool that has run: its words and how many cores it kept busy."""

    output: str
    share: float


class Run(NamedTuple):
    """Records a second as the tool says, what the tool spent of a core, and the broker."""

    rate: float
    tool_share: float
    megabytes: float
    spent: Spent


class Round(NamedTuple):
    """What a producer wrote is what the consumer reads."""

    produced: Run
    consumed: Run


def measure(bench: Bench, form: Form) -> list[Figure]:
    toolchain = bench.toolchain
    if toolchain is None:
        return []
    contenders = warmed(bench, form)
    figures: list[Figure] = []
    for case in CASES:
        asked = case
        if form.is_quick:
            asked = case._replace(records=case.records // QUICK_SHARE, uncounted=case.uncounted // QUICK_SHARE)
        print(f"  {case.name}", flush=True)

        def run(contender: Contender, asked: Case = asked) -> Round:
            return _round(contender, toolchain, asked)

        rounds = in_turns(contenders, form.rounds, run, _sentence)
        figures += _figures("producer", case, {name: [each.produced for each in mine] for name, mine in rounds.items()})
        figures += _figures("consumer", case, {name: [each.consumed for each in mine] for name, mine in rounds.items()})
    return figures


def ended(toolchain: Toolchain, tool: str, *words: str) -> Ended:
    """Run one of Kafka's tools to its end."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*toolchain.java_command("-Xmx512m"), f"{PACKAGE}.{tool}", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        preexec_fn=die_with_parent,
    )
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{tool}: {done.stdout[-400:]}{done.stderr[-400:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(done.stdout, cpu_s / seconds)


def _round(contender: Contender, toolchain: Toolchain, case: Case) -> Round:
    size = case.records * case.record_size
    contender.warm_memory(size)
    with contender.topic() as (_, topic):
        address = ("--bootstrap-server", contender.bootstrap, "--topic", topic, "--num-records")
        how = ("--record-size", str(case.record_size), "--throughput", "-1", "--warmup-records", str(case.uncounted))
        tool, spent = contender.spend(
            lambda: ended(toolchain, "ProducerPerformance", *address, str(case.records), *how)
        )
        produced = Run(_steady_rate(tool.output), tool.share, size / 1e6, spent)
        tool, spent = contender.spend(lambda: ended(toolchain, "ConsumerPerformance", *address, str(case.records)))
        consumed = Run(_fetch_rate(tool.output), tool.share, size / 1e6, spent)
    return Round(produced, consumed)


def _steady_rate(output: str) -> float:
    """`N steady state records sent, R records/sec ...`, the last line of the producer."""
    line = next(line for line in output.splitlines() if "steady state records sent" in line)
    return float(line.split(",")[1].split()[0])


def _fetch_rate(output: str) -> float:
    """`fetch.nMsg.sec`, the last column: without the time that joining the group took."""
    return float(output.splitlines()[-1].rpartition(",")[2])


def _figures(kind: str, case: Case, runs: dict[str, list[Run]]) -> list[Figure]:
    share = max(run.tool_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[Run], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"kafka-{kind}-perf-test {case.name}: {what}", unit, values, less_is_better, generator=share)

    return [
        figure("rate", "records/s", lambda run: run.rate, less_is_better=False),
        figure("user + system CPU", "s/GB", lambda run: run.spent.cpu.total_s / run.megabytes * 1e3),
    ]


def _sentence(result: Round) -> str:
    produced, consumed = result
    return (
        f"produce {produced.rate:,.0f} records/s (tool {100 * produced.tool_share:.0f} % of a core),"
        f" consume {consumed.rate:,.0f} (tool {100 * consumed.tool_share:.0f} %)"
    )
