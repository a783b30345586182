"""`python -m bench`: this broker beside Apache Kafka in one run, in parts that can be run alone and merged."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from bench.document import RESULTS, kept_results, merge_files, standing, write_json, write_page
from bench.figures import Figure, shown, spread
from bench.front import CHART, GROUPS_MEASURED, RESULT, chart
from bench.groups import GROUPS, Group
from bench.rows import ELSEWHERE, ROWS
from bench.subjects import Bench, find_peer, is_compiled, machine
from tests.conformance.brokers import Ports

PORTS_COUNT = 1000
LATEST = RESULTS / "latest.json"


def main() -> int:
    arguments = parsed()
    if arguments.list:
        print_list()
        return 0
    if arguments.page is not None:
        return recomputed(arguments.page)
    if not is_compiled() and not arguments.plain:
        print("the hot path is plain Python here, at half the speed: `make compiled`, or --plain to measure that")
        return 2
    # A terminated run leaves its brokers no more behind than an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    groups = [group for group in GROUPS if is_wanted(group, arguments)]
    for group in groups:
        if not group.is_there:
            print(f"{group.name}: there is no {group.module}")
    began = time.perf_counter()
    figures, is_whole = measured([group for group in groups if group.is_there], arguments)
    for figure in figures:
        print(f"{figure.name}: {shown(figure.ours)} {figure.unit}, ratio {spread(figure)}. {figure.note}")
    print(f"{standing(figures)}; {time.perf_counter() - began:.0f} s")
    if figures and not arguments.dry:
        keep(figures, arguments, is_whole=is_whole)
    return 0 if is_whole else 1


def measured(groups: Sequence[Group], arguments: argparse.Namespace) -> tuple[list[Figure], bool]:
    """The figures of all groups that could be measured, and whether these are all; what there is survives Ctrl-C."""
    quick: bool = arguments.quick
    peer = None if arguments.alone else find_peer()
    figures: list[Figure] = []
    is_whole = True
    made = f"{time.strftime('%Y-%m-%d')} {commit()} {'quick' if quick else 'full'} on {machine()['cpu']}"
    with (
        tempfile.TemporaryDirectory(
            prefix="moldau-bench-", dir=arguments.directory, ignore_cleanup_errors=True
        ) as home,
        Bench(Path(home), Ports(arguments.ports, arguments.ports + PORTS_COUNT), peer) as bench,
    ):
        for group in groups:
            began = time.perf_counter()
            print(f"{group.name}: {group.about}", flush=True)
            try:
                form = group.form(is_quick=quick, rounds=arguments.rounds, case=arguments.case)
                figures += [figure._replace(made=made) for figure in group.measure(bench, form)]
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                return figures, False
            except Exception:
                traceback.print_exc()
                print(f"{group.name}: not measured; what the brokers said last:\n{bench.last_lines()}", flush=True)
                bench.close()
                is_whole = False
            print(f"{group.name}: {time.perf_counter() - began:.0f} s", flush=True)
    return figures, is_whole


def keep(figures: Sequence[Figure], arguments: argparse.Namespace, *, is_whole: bool) -> None:
    """The latest run in a file of its own. What is kept and shown changes only if that is asked for, or measured
    as a whole."""
    write_json(LATEST, {"date": time.strftime("%Y-%m-%d"), **machine()}, figures)
    print(f"written to {LATEST}")
    if arguments.front and is_whole:
        write_json(RESULT, {"date": time.strftime("%Y-%m-%d"), **machine()}, figures)
        CHART.write_text(chart(figures))
        print(f"the README's chart follows from {RESULT}")
        return
    is_complete = is_whole and not (arguments.quick or arguments.only or arguments.case or arguments.alone)
    if is_complete or arguments.merge:
        recomputed([LATEST])


def recomputed(files: Sequence[Path]) -> int:
    """These results over those that are kept, as today's; the page from them."""
    kept = kept_results()
    if kept is None and not files:
        print("no results are kept")
        return 1
    before = [] if kept is None else [kept]
    path = merge_files([*before, *files], time.strftime("%Y-%m-%d")) if files else before[0]
    write_page(path)
    print(f"docs/performance.md follows from {path}")
    return 0


def print_list() -> None:
    """Every row with bar and target, under the group that measures it."""
    for group in GROUPS:
        print(f"{group.name}: {group.about}{'; only with --long' if group.is_long else ''}")
        for row in ROWS:
            if row.group == group.name:
                print(f"    {row.name}: bar {row.limit(row.bar) or '-'}, target {row.limit(row.target) or '-'}")
    print("measured by other commands:")
    for each in ELSEWHERE:
        print(f"    {each.name}: {each.bar}{f' ({each.where})' if each.where else ''}")


def is_wanted(group: Group, arguments: argparse.Namespace) -> bool:
    if arguments.front:
        return group.name in GROUPS_MEASURED
    if arguments.only:
        return group.name in arguments.only
    if group.is_long and not arguments.long:
        return False
    return group.is_in_quick or not arguments.quick


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def parsed() -> argparse.Namespace:
    names = [group.name for group in GROUPS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="every row with its bar and target, and the groups")
    parser.add_argument("--quick", action="store_true", help="the short form: fewer groups, rounds and requests")
    parser.add_argument("--long", action="store_true", help="the groups too that take dozens of minutes")
    parser.add_argument("--only", nargs="+", choices=names, metavar="GROUP", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--case",
        default="",
        help="in a group that has several: the cases whose name has this in it",
    )
    parser.add_argument("--merge", action="store_true", help="put what is measured into the kept results and the page")
    parser.add_argument("--page", nargs="*", type=Path, metavar="JSON", help="measure nothing: merge these, recompute")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--front", action="store_true", help="the rows of the README's chart, which is drawn from them")
    parser.add_argument("--rounds", type=int, help="of each measurement, with each broker")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data while it runs")
    parser.add_argument("--ports", type=int, default=22_000, metavar="FIRST", help="ports from here on are used")
    parser.add_argument("--plain", action="store_true", help="measure also if the hot path is plain Python")
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
