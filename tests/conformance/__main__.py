"""`python -m tests.conformance`: the scenarios, the clients, the brokers, and the matrix of what came out."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tests.conformance.brokers import Apache, Broker, Moldau, Ports, Running
from tests.conformance.catalogue import CLIENT_SCENARIOS
from tests.conformance.clients import CLIENTS
from tests.conformance.comparison import Cell, Judgement, judge, known_divergences, record, recorded
from tests.conformance.matrix import remarks, table
from tests.conformance.outcome import Outcome
from tests.conformance.runner import run_clients
from tests.conformance.toolchain import Missing, Toolchain


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--broker", default="both", help="moldau, apache, both, or HOST:PORT of a running one (both)")
    parser.add_argument("--client", nargs="+", choices=[kind.name for kind in CLIENTS], help="only these clients")
    parser.add_argument("--scenario", nargs="+", help="only scenarios whose name begins so")
    parser.add_argument("--bounded", action="store_true", help="against Moldau alone, with what is already installed")
    parser.add_argument("--side-by-side", type=int, default=2, metavar="N", help="clients at the same time (2)")
    parser.add_argument("--record", action="store_true", help="keep what Apache Kafka does for runs without it")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as JSON")
    parser.add_argument("--keep", action="store_true", help="keep the brokers' directories and the clients' logs")
    parser.add_argument("--list", action="store_true", help="say what each scenario demands, and stop")
    return parser.parse_args()


def brokers(choice: str, directory: Path, toolchain: Toolchain) -> list[Broker | Running]:
    ports = Ports()
    if choice not in ("moldau", "apache", "both"):
        return [Running(choice)]
    chosen: list[Broker | Running] = []
    if choice in ("moldau", "both"):
        chosen.append(Moldau(directory / "moldau", ports.pair()))
    if choice in ("apache", "both"):
        chosen.append(Apache(directory / "apache", ports.pair(), toolchain))
    return chosen


def say(line: str) -> None:
    print(line, flush=True)


def judged(outcomes: Mapping[str, Mapping[Cell, Outcome]]) -> dict[Cell, Judgement]:
    """The first broker's cells against Apache Kafka's of this run, or against those recorded."""
    name = next(iter(outcomes))
    theirs = {} if name == "apache" else outcomes.get("apache") or recorded()
    known = known_divergences()
    return {cell: judge(cell, outcome, theirs.get(cell), known) for cell, outcome in outcomes[name].items()}


def write_json(path: Path, outcomes: Mapping[str, Mapping[Cell, Outcome]]) -> None:
    rows = [
        {"broker": broker, "client": client, "scenario": scenario, **asdict(outcome), "status": outcome.status.value}
        for broker, cells in outcomes.items()
        for (client, scenario), outcome in cells.items()
    ]
    path.write_text(json.dumps(rows, indent=1))


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # stop the brokers on the way out
    wanted = tuple(options.scenario or ("",))
    scenarios = [scenario for scenario in CLIENT_SCENARIOS if scenario.name.startswith(wanted)]
    if options.list:
        say("\n".join(f"{scenario.name:26} {scenario.demands}" for scenario in scenarios))
        return 0
    kinds = [kind for kind in CLIENTS if not options.client or kind.name in options.client]
    toolchain = Toolchain(fetch=not options.bounded)
    directory = Path(tempfile.mkdtemp(prefix="moldau-conformance-"))
    outcomes: dict[str, dict[Cell, Outcome]] = {}
    with ExitStack() as stack:
        if not options.keep:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            chosen = brokers("moldau" if options.bounded else options.broker, directory, toolchain)
        except Missing as missing:
            say(f"no Apache Kafka: {missing}")
            return 2
        for broker in chosen:
            if isinstance(broker, Broker):
                stack.callback(broker.stop)
                broker.format()
                broker.start()
            outcomes[broker.name] = run_clients(
                broker, kinds, scenarios, toolchain, directory, side_by_side=options.side_by_side, report=say
            )
        return conclude(options, outcomes, [kind.name for kind in kinds], [scenario.name for scenario in scenarios])


def conclude(
    options: argparse.Namespace,
    outcomes: dict[str, dict[Cell, Outcome]],
    clients: Sequence[str],
    scenarios: Sequence[str],
) -> int:
    verdicts = judged(outcomes)
    say("\n" + table(clients, scenarios, verdicts) + "\n\n" + remarks(verdicts))
    if options.json is not None:
        write_json(options.json, outcomes)
    if options.record and "apache" in outcomes:
        record(outcomes["apache"])
    return 1 if any(judgement.verdict.is_bad for judgement in verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
