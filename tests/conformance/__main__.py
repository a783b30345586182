"""`python -m tests.conformance`: the scenarios, the clients, the brokers, and the matrix of what came out."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tests.conformance.brokers import TRANSACTION_VERSION, Apache, Broker, Moldau, Ports, Running
from tests.conformance.comparison import Cell, Judgement, judge, known_divergences, record, recorded
from tests.conformance.matrix import remarks, table
from tests.conformance.outcome import Failed, Outcome, Status
from tests.conformance.plan import COLUMNS, Plan
from tests.conformance.runner import run_clients, run_directories, run_tools
from tests.conformance.toolchain import Missing, Toolchain
from tests.conformance.trio import Trio, pairs_of


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--broker", default="both", help="moldau, apache, both, or HOST:PORT of a running one (both)")
    parser.add_argument("--client", nargs="+", choices=COLUMNS, help="only these columns")
    parser.add_argument("--scenario", nargs="+", help="only scenarios whose name begins so")
    parser.add_argument("--bounded", action="store_true", help="against Moldau alone, with what is already installed")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of the cluster that clients meet (1)")
    parser.add_argument("--transaction-version", type=int, choices=(0, 1, 2), default=TRANSACTION_VERSION)
    parser.add_argument("--side-by-side", type=int, default=3, metavar="N", help="columns at the same time (3)")
    parser.add_argument("--record", action="store_true", help="keep what Apache Kafka does for runs without it")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as JSON")
    parser.add_argument("--keep", action="store_true", help="keep the brokers' directories and the clients' logs")
    parser.add_argument("--list", action="store_true", help="say what each scenario demands, and stop")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, flush=True)


def brokers(
    choice: str, nodes: int, directory: Path, ports: Ports, toolchain: Toolchain
) -> list[Broker | Trio | Running]:
    if choice not in ("moldau", "apache", "both"):
        return [Running(choice)]
    chosen: list[Broker | Trio | Running] = []
    if choice in ("moldau", "both"):
        place = directory / "moldau"
        chosen.append(Moldau(place, ports.pair()) if nodes == 1 else Trio("moldau", toolchain, pairs_of(ports), place))
    if choice in ("apache", "both"):
        try:
            toolchain.java()
            toolchain.jars()
        except Missing as missing:
            say(f"Apache Kafka is not run, what it answered when last recorded stands for it: {missing}")
        else:
            place = directory / "apache"
            one = nodes == 1
            chosen.append(
                Apache(place, ports.pair(), toolchain) if one else Trio("apache", toolchain, pairs_of(ports), place)
            )
    return chosen


def observe(
    broker: Broker | Trio | Running, plan: Plan, toolchain: Toolchain, directory: Path, width: int
) -> dict[Cell, Outcome]:
    """Every column against one broker, which is started for it and stopped afterwards."""
    with ExitStack() as stack:
        if not plan.clients and not plan.tools:
            return {}
        if not isinstance(broker, Running):
            stack.callback(broker.close if isinstance(broker, Trio) else broker.stop)
            broker.format()
            broker.start()
        cells = run_clients(broker, plan.clients, plan.scenarios, toolchain, directory, side_by_side=width, report=say)
        tools = run_tools(broker, plan.tools, toolchain, directory, side_by_side=width, report=say)
        return {**cells, **tools}


def judged(outcomes: Mapping[str, Mapping[Cell, Outcome]], nodes: int) -> dict[Cell, Judgement]:
    """The first broker's cells against Apache Kafka's of this run, or against those recorded."""
    name = next(iter(outcomes))
    theirs = {} if name == "apache" else outcomes.get("apache") or recorded(nodes)
    known = known_divergences()
    return {cell: judge(cell, outcome, theirs.get(cell), known) for cell, outcome in outcomes[name].items()}


def write_json(path: Path, outcomes: Mapping[str, Mapping[Cell, Outcome]]) -> None:
    rows = [
        {"broker": broker, "client": client, "scenario": scenario, **asdict(outcome), "status": outcome.status.value}
        for broker, cells in outcomes.items()
        for (client, scenario), outcome in cells.items()
    ]
    path.write_text(json.dumps(rows, indent=1))


def conclude(options: argparse.Namespace, outcomes: dict[str, dict[Cell, Outcome]]) -> int:
    verdicts = judged(outcomes, options.nodes)
    say("\n" + table(verdicts) + "\n\n" + remarks(verdicts))
    if options.json is not None:
        write_json(options.json, outcomes)
    if options.record and "apache" in outcomes:
        record(outcomes["apache"], options.nodes)
    for name, cells in outcomes.items():
        counts = Counter(outcome.status for outcome in cells.values())
        say(f"{name}: " + ", ".join(f"{counts[status]} {status.value}" for status in Status))
    bad = [cell for cell, judgement in verdicts.items() if judgement.verdict.is_bad]
    say(f"{len(verdicts)} cells, {len(bad)} to mend")
    return 1 if bad else 0


def run(options: argparse.Namespace, plan: Plan, directory: Path) -> int:
    choice = "moldau" if options.bounded else options.broker
    toolchain, ports = Toolchain(fetch=not options.bounded), Ports()
    outcomes: dict[str, dict[Cell, Outcome]] = {}
    try:
        for broker in brokers(choice, options.nodes, directory, ports, toolchain):
            if not isinstance(broker, Running):
                broker.transaction_version = options.transaction_version
            outcomes[broker.name] = observe(broker, plan, toolchain, directory, options.side_by_side)
    except Failed as failed:
        say(f"no broker: {failed}")
        return 2
    if not outcomes:
        return 2
    exchanges = [scenario for scenario in plan.directories if scenario.side in outcomes]
    for name, cells in run_directories(exchanges, toolchain, ports, directory, report=say).items():
        outcomes[name].update(cells)
    return conclude(options, outcomes)


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # stop the brokers on the way out
    plan = Plan.of(options.client, options.scenario, bounded=options.bounded, nodes=options.nodes)
    if not plan.names():
        say(f"no scenario begins with {' or '.join(options.scenario)}: --list shows them all")
        return 2
    if options.list:
        say("\n".join(plan.lines()))
        return 0
    directory = Path(tempfile.mkdtemp(prefix="moldau-conformance-"))
    try:
        return run(options, plan, directory)
    finally:
        if options.keep:
            say(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
