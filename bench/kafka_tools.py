"""Kafka's own perf tools, each run a Java process. Their own CPU time limits what they can measure."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.contenders import Contender, ResourceUsage, run_in_turns, warmed_contenders
from bench.figures import Figure
from bench.groups import RunForm
from bench.subjects import Bench, die_with_parent
from tests.conformance.toolchain import Toolchain

PATIENCE_S: Final = 180
PACKAGE: Final = "org.apache.kafka.tools"


class ToolCase(NamedTuple):
    """Records of one size. The tool sends `uncounted` of them before it begins to measure."""

    name: str
    record_size: int
    records: int
    uncounted: int


CASES: Final = (ToolCase("100 B", 100, 2_000_000, 600_000), ToolCase("1 KiB", 1024, 500_000, 150_000))
QUICK_SHARE: Final = 5


class ToolResult(NamedTuple):
    """The output of a tool that has ended, and the number of cores that it used."""

    output: str
    share: float


class ToolRun(NamedTuple):
    """The records per second that the tool reports, its own share of a core, and the broker's resources."""

    rate: float
    tool_share: float
    megabytes: float
    spent: ResourceUsage


class ToolRound(NamedTuple):
    """One round: the consumer reads the records that the producer wrote."""

    produced: ToolRun
    consumed: ToolRun


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    toolchain = bench.toolchain
    if toolchain is None:
        return []
    contenders = warmed_contenders(bench, form)
    figures: list[Figure] = []
    for case in CASES:
        asked = case
        if form.is_quick:
            asked = case._replace(records=case.records // QUICK_SHARE, uncounted=case.uncounted // QUICK_SHARE)
        print(f"  {case.name}", flush=True)

        def run(contender: Contender, asked: ToolCase = asked) -> ToolRound:
            return _round(contender, toolchain, asked)

        rounds = run_in_turns(contenders, form.rounds, run, _sentence)
        figures += _figures("producer", case, {name: [each.produced for each in mine] for name, mine in rounds.items()})
        figures += _figures("consumer", case, {name: [each.consumed for each in mine] for name, mine in rounds.items()})
    return figures


def run_tool(toolchain: Toolchain, tool: str, *words: str) -> ToolResult:
    """Run one of Kafka's tools until it ends."""
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
    return ToolResult(done.stdout, cpu_s / seconds)


def _round(contender: Contender, toolchain: Toolchain, case: ToolCase) -> ToolRound:
    size = case.records * case.record_size
    contender.warm_memory(size)
    with contender.new_topic() as (_, topic):
        address = ("--bootstrap-server", contender.bootstrap, "--topic", topic, "--num-records")
        how = ("--record-size", str(case.record_size), "--throughput", "-1", "--warmup-records", str(case.uncounted))
        tool, spent = contender.measure_usage(
            lambda: run_tool(toolchain, "ProducerPerformance", *address, str(case.records), *how)
        )
        produced = ToolRun(_steady_rate(tool.output), tool.share, size / 1e6, spent)
        tool, spent = contender.measure_usage(
            lambda: run_tool(toolchain, "ConsumerPerformance", *address, str(case.records))
        )
        consumed = ToolRun(_fetch_rate(tool.output), tool.share, size / 1e6, spent)
    return ToolRound(produced, consumed)


def _steady_rate(output: str) -> float:
    """Parse the last line of the producer's output: `N steady state records sent, R records/sec ...`."""
    line = next(line for line in output.splitlines() if "steady state records sent" in line)
    return float(line.split(",")[1].split()[0])


def _fetch_rate(output: str) -> float:
    """Parse the last column of the consumer's output, `fetch.nMsg.sec`: the rate without the time to join the group."""
    return float(output.splitlines()[-1].rpartition(",")[2])


def _figures(kind: str, case: ToolCase, runs: dict[str, list[ToolRun]]) -> list[Figure]:
    share = max(run.tool_share for mine in runs.values() for run in mine)

    def figure(what: str, unit: str, of: Callable[[ToolRun], float], *, less_is_better: bool = True) -> Figure:
        values = {name: [of(run) for run in mine] for name, mine in runs.items()}
        return Figure(f"kafka-{kind}-perf-test {case.name}: {what}", unit, values, less_is_better, generator=share)

    return [
        figure("rate", "records/s", lambda run: run.rate, less_is_better=False),
        figure("user + system CPU", "s/GB", lambda run: run.spent.cpu.total_s / run.megabytes * 1e3),
    ]


def _sentence(result: ToolRound) -> str:
    produced, consumed = result
    return (
        f"produce {produced.rate:,.0f} records/s (tool {100 * produced.tool_share:.0f} % of a core),"
        f" consume {consumed.rate:,.0f} (tool {100 * consumed.tool_share:.0f} %)"
    )
