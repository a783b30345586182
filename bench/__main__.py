"""`python -m bench`: this broker beside Apache Kafka in one run of one commit, in groups that can be run alone."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.document import DOCUMENT, rows_without_figure, standing, told, write_page
from bench.figures import shown, spread
from bench.front import CHART, GROUPS_MEASURED
from bench.groups import GROUPS, Group
from bench.progress import Progress, time_limit
from bench.rows import ROWS
from bench.runs import KEPT, KEPT_LONG, LATEST, ROOT, Measured, Run
from bench.subjects import Bench, find_peer, is_compiled, machine
from tests.conformance.brokers import Ports

PORTS_COUNT = 1000
FAILURE_LENGTH_MAX = 160
FOLLOWS_FROM_A_RUN = (KEPT, KEPT_LONG, DOCUMENT, CHART, ROOT / "docs" / "long-lists.md")
"""A tree in which nothing but these was changed is still of its commit."""


def main() -> int:
    arguments = parsed()
    if arguments.list:
        print_list()
        return 0
    if arguments.publish:
        return published(KEPT_LONG if arguments.long else KEPT)
    if not is_compiled() and not arguments.plain:
        print("the hot path is plain Python here, at half the speed: `make compiled`, or --plain to measure that")
        return 2
    # A terminated run leaves its brokers no more behind than an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = begun(arguments)
    is_interrupted = carried_out(run, arguments)
    print(f"{standing(run)}; {run.minutes:.0f} minutes")
    is_a_part = bool(arguments.front or arguments.only or arguments.case or arguments.alone)
    if not (is_interrupted or is_a_part or arguments.quick or arguments.dry):
        published(KEPT_LONG if arguments.long else KEPT)
    # A part, or the short form, need not have each row.
    failed = [name for name, group in run.groups.items() if group.failure]
    missing = {} if arguments.case or arguments.alone or arguments.quick else rows_without_figure(run)
    for name, why in missing.items():
        print(f"{name}: {why}")
    return 1 if is_interrupted or failed or missing else 0


def carried_out(run: Run, arguments: argparse.Namespace) -> bool:
    """Measure each group that is asked for and that the run does not have yet, and keep what it gave at once.
    Returns whether Ctrl-C or SIGTERM ended it.
    """
    groups = [group for group in GROUPS if is_wanted(group, arguments) and not run.has(group.name)]
    for group, measured in measure(groups, arguments):
        if measured is None:
            return True
        run.groups[group.name] = measured
        for figure in measured.figures:
            print(f"{figure.name}: {shown(figure.ours)} {figure.unit}, ratio {spread(figure)}. {figure.note}")
        print(f"{group.name}: {measured.seconds:.0f} s", flush=True)
        if not arguments.dry:
            run.write(LATEST)
    return False


def begun(arguments: argparse.Namespace) -> Run:
    """An empty run, or the last one if it is to be continued and is of this commit, form and machine."""
    form = "quick" if arguments.quick else "full"
    run = Run({"commit": commit(), "form": form, "date": time.strftime("%Y-%m-%d"), **machine()}, {})
    if not arguments.resume or not LATEST.exists():
        return run
    earlier = Run.read(LATEST)
    if run.continues(earlier):
        print(f"continued: {', '.join(filter(earlier.has, earlier.groups))} were measured already")
        return earlier
    print("not continued: the last run is of another commit, form or machine")
    return run


def measure(groups: Sequence[Group], arguments: argparse.Namespace) -> Iterator[tuple[Group, Measured | None]]:
    """What each group gave, or why it failed; None for the one at which Ctrl-C or SIGTERM ended the run."""
    peer = None if arguments.alone else find_peer()
    progress = Progress(groups)
    with (
        tempfile.TemporaryDirectory(
            prefix="moldau-bench-", dir=arguments.directory, ignore_cleanup_errors=True
        ) as home,
        Bench(Path(home), Ports(arguments.ports, arguments.ports + PORTS_COUNT), peer) as bench,
    ):
        for group in groups:
            print(progress.line(group), flush=True)
            if not group.shares_brokers:
                bench.close()
            began = time.perf_counter()
            try:
                form = group.form(is_quick=arguments.quick, rounds=arguments.rounds, case=arguments.case)
                with time_limit(group.limit_s):
                    figures = tuple(group.measure(bench, form))
            except KeyboardInterrupt:
                print("interrupted; --resume goes on from here", flush=True)
                yield group, None
                return
            except Exception as error:
                traceback.print_exc()
                print(f"{group.name}: not measured; what the brokers said last:\n{bench.last_lines()}", flush=True)
                bench.clear()
                yield group, Measured(time.perf_counter() - began, (), in_a_line(error))
                continue
            seconds = time.perf_counter() - began
            progress.add(group, seconds)
            yield group, Measured(seconds, figures)


def in_a_line(error: Exception) -> str:
    """The kind of an error and the beginning of what it says, as a cell of a table shows it."""
    words = f"{type(error).__name__}: {error}".replace("|", "/").split()
    return textwrap.shorten(" ".join(words), FAILURE_LENGTH_MAX, placeholder=" …")


def published(path: Path) -> int:
    """The last run becomes the kept one, and the page and the chart follow from it."""
    if not LATEST.exists():
        print(f"nothing was measured: there is no {LATEST.relative_to(ROOT)}")
        return 1
    run = Run.read(LATEST)
    run.write(path)
    write_page()
    print(told(run))
    return 0


def print_list() -> None:
    """Every row with bar and target, under the group that measures it."""
    for group in GROUPS:
        print(f"{group.name}: {group.about}; {group.expected_s} s{', only with --long' if group.is_long else ''}")
        for row in ROWS:
            if row.group == group.name:
                print(f"    {row.name}: bar {row.limit(row.bar) or '-'}, target {row.limit(row.target) or '-'}")
    print(f"all but those of --long: {sum(each.expected_s for each in GROUPS if not each.is_long) / 60:.0f} minutes")


def is_wanted(group: Group, arguments: argparse.Namespace) -> bool:
    if arguments.front:
        return group.name in GROUPS_MEASURED
    if arguments.only:
        return group.name in arguments.only
    return group.is_long == arguments.long and (group.is_in_quick or not arguments.quick)


def commit() -> str:
    """The short name of the commit, with a + if the tree differs from it by more than what follows from a run."""
    excluded = [f":(exclude){path.relative_to(ROOT)}" for path in FOLLOWS_FROM_A_RUN]
    name = _git("describe", "--always").strip()
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *excluded)
    return name + "+" * bool(changed) if name else "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout


def parsed() -> argparse.Namespace:
    names = [group.name for group in GROUPS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="every row with its bar and target, and the groups")
    parser.add_argument("--quick", action="store_true", help="the short form: fewer groups, rounds and requests")
    parser.add_argument(
        "--long", action="store_true", help="the groups that take dozens of minutes, in place of the others"
    )
    parser.add_argument("--front", action="store_true", help="the groups of the chart's rows")
    parser.add_argument("--only", nargs="+", choices=names, metavar="GROUP", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--case",
        default="",
        help="in a group that has several: the cases whose name has this in it",
    )
    parser.add_argument("--resume", action="store_true", help="leave out what the last run of this commit has measured")
    parser.add_argument(
        "--publish", action="store_true", help="measure nothing: the page shows the last run, whole or not"
    )
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--rounds", type=int, help="of each measurement, with each broker")
    parser.add_argument("--directory", type=Path, help="where the brokers keep their data while it runs")
    parser.add_argument("--ports", type=int, default=22_000, metavar="FIRST", help="ports from here on are used")
    parser.add_argument("--plain", action="store_true", help="measure also if the hot path is plain Python")
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
