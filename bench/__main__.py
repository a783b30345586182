"""`python -m bench`: start, memory and the hot path beside Apache Kafka in one run, and larger loads."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.document import write_document, write_json
from bench.figures import Figure, table
from bench.memory import measure_memory
from bench.start import measure_start
from bench.subjects import Bench, find_peer, machine
from bench.throughput import measure_loads
from bench.workloads import HOT_PATH, LOADS
from tests.conformance.brokers import Ports

PARTS = ("start", "memory", "hot", "loads")
PORTS_COUNT = 1000


def main() -> int:
    arguments = parsed()
    peer = None if arguments.alone else find_peer()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="moldau-bench-", dir=arguments.directory) as home:
        bench = Bench(Path(home), Ports(arguments.ports, arguments.ports + PORTS_COUNT), peer)
        figures = measure(bench, arguments)
    print("\n".join(table(figures)))
    for figure in figures:
        if figure.note:
            print(f"{figure.name}: {figure.note}")
    print(f"{time.perf_counter() - began:.0f} s")
    if not arguments.dry:
        save(figures, arguments)
    return 0


def measure(bench: Bench, arguments: argparse.Namespace) -> list[Figure]:
    quick: bool = arguments.quick
    rounds: int = arguments.rounds or 3
    figures: list[Figure] = []
    if "start" in arguments.only:
        figures += measure_start(bench, 3 if quick else 9)
    if "memory" in arguments.only:
        figures += measure_memory(bench, 1 if quick else 3)
    workloads = (*((HOT_PATH,) if "hot" in arguments.only else ()), *(LOADS if "loads" in arguments.only else ()))
    if workloads:
        figures += measure_loads(bench, workloads, rounds, 10.0 if quick else 30.0, quick=quick)
    return figures


def save(figures: list[Figure], arguments: argparse.Namespace) -> None:
    """The table goes into the document only with all its rows in their long form, beside Apache Kafka."""
    facts = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        **machine(),
        "form": "quick" if arguments.quick else "full",
        "rounds": str(arguments.rounds or 3),
    }
    is_whole = set(arguments.only) == set(PARTS) and not arguments.quick and figures[0].peer is not None
    path = write_json(facts["date"] if is_whole else "latest", facts, figures)
    if is_whole:
        write_document(facts, figures, path)
    print(f"written to {path}")


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the short form: fewer rounds and requests")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts alone")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--rounds", type=int, help="of each load, with each broker (3)")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data while it runs")
    parser.add_argument("--ports", type=int, default=22_000, metavar="FIRST", help="ports from here on are used")
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
