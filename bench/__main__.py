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

from bench.document import DOCUMENT, rows_without_figure, run_summary, verdict_counts, write_page
from bench.figures import number_text, ratio_spread_text
from bench.front import CHART, GROUPS_MEASURED
from bench.groups import GROUPS, MeasurementGroup
from bench.progress import Progress, time_limit
from bench.rows import ROWS
from bench.runs import KEPT, KEPT_LONG, LATEST, ROOT, BenchRun, GroupResult
from bench.subjects import Bench, find_peer, is_compiled, machine_text
from tests.conformance.brokers import Ports

PORTS_COUNT = 1000
FAILURE_LENGTH_MAX = 160
COMPUTED_FILES = (KEPT, KEPT_LONG, DOCUMENT, CHART, ROOT / "docs" / "long-lists.md")
"""Files that are computed from a run. A tree that differs from its commit in these files alone still counts as that
commit.
"""


def main() -> int:
    arguments = parse_arguments()
    if arguments.list:
        print_list()
        return 0
    if arguments.publish:
        return publish_run(KEPT_LONG if arguments.long else KEPT)
    if not is_compiled() and not arguments.plain:
        print("the hot path is plain Python here, at half the speed: `make compiled`, or --plain to measure that")
        return 2
    # A terminated run leaves its brokers no more behind than an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = new_or_continued_run(arguments)
    is_interrupted = measure_missing_groups(run, arguments)
    print(f"{verdict_counts(run)}; {run.minutes:.0f} minutes")
    is_a_part = bool(arguments.front or arguments.only or arguments.case or arguments.alone)
    if not (is_interrupted or is_a_part or arguments.quick or arguments.dry):
        publish_run(KEPT_LONG if arguments.long else KEPT)
    # A part, or the short form, need not have each row.
    failed = [name for name, group in run.groups.items() if group.failure]
    missing = {} if arguments.case or arguments.alone or arguments.quick else rows_without_figure(run)
    for name, why in missing.items():
        print(f"{name}: {why}")
    return 1 if is_interrupted or failed or missing else 0


def measure_missing_groups(run: BenchRun, arguments: argparse.Namespace) -> bool:
    """Measure each requested group that the run does not have yet, and save its result at once. Returns whether Ctrl-C
    or SIGTERM ended the run.
    """
    groups = [group for group in GROUPS if is_wanted(group, arguments) and not run.has_group(group.name)]
    for group, measured in measure(groups, arguments):
        if measured is None:
            return True
        run.groups[group.name] = measured
        for figure in measured.figures:
            print(
                f"{figure.name}: {number_text(figure.ours)} {figure.unit}, ratio {ratio_spread_text(figure)}."
                f" {figure.note}"
            )
        print(f"{group.name}: {measured.seconds:.0f} s", flush=True)
        if not arguments.dry:
            run.write(LATEST)
    return False


def new_or_continued_run(arguments: argparse.Namespace) -> BenchRun:
    """Return the last run if it is to be continued and has the same commit, form and machine. Otherwise return an empty
    run.
    """
    form = "quick" if arguments.quick else "full"
    run = BenchRun({"commit": commit_name(), "form": form, "date": time.strftime("%Y-%m-%d"), **machine_text()}, {})
    if not arguments.resume or not LATEST.exists():
        return run
    earlier = BenchRun.read(LATEST)
    if run.continues(earlier):
        print(f"continued: {', '.join(filter(earlier.has_group, earlier.groups))} were measured already")
        return earlier
    print("not continued: the last run is of another commit, form or machine")
    return run


def measure(
    groups: Sequence[MeasurementGroup], arguments: argparse.Namespace
) -> Iterator[tuple[MeasurementGroup, GroupResult | None]]:
    """Yield the result of each group: its figures, or why it failed. The result is None for the group during which
    Ctrl-C or SIGTERM ended the run.
    """
    peer = None if arguments.alone else find_peer()
    progress = Progress(groups)
    with (
        tempfile.TemporaryDirectory(
            prefix="moldau-bench-", dir=arguments.directory, ignore_cleanup_errors=True
        ) as home,
        Bench(Path(home), Ports(arguments.ports, arguments.ports + PORTS_COUNT), peer) as bench,
    ):
        for group in groups:
            print(progress.progress_line(group), flush=True)
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
                yield group, GroupResult(time.perf_counter() - began, (), one_line_error(error))
                continue
            seconds = time.perf_counter() - began
            progress.add_group(group, seconds)
            yield group, GroupResult(seconds, figures)


def one_line_error(error: Exception) -> str:
    """Format an error for a table cell: its type and the beginning of its message, in one line."""
    words = f"{type(error).__name__}: {error}".replace("|", "/").split()
    return textwrap.shorten(" ".join(words), FAILURE_LENGTH_MAX, placeholder=" …")


def publish_run(path: Path) -> int:
    """Copy the last run to the published run, and compute the page and the chart from it."""
    if not LATEST.exists():
        print(f"nothing was measured: there is no {LATEST.relative_to(ROOT)}")
        return 1
    run = BenchRun.read(LATEST)
    run.write(path)
    write_page()
    print(run_summary(run))
    return 0


def print_list() -> None:
    """Print every row with its bar and target, under the group that measures it."""
    for group in GROUPS:
        print(f"{group.name}: {group.about}; {group.expected_s} s{', only with --long' if group.is_long else ''}")
        for row in ROWS:
            if row.group == group.name:
                print(f"    {row.name}: bar {row.limit(row.bar) or '-'}, target {row.limit(row.target) or '-'}")
    print(f"all but those of --long: {sum(each.expected_s for each in GROUPS if not each.is_long) / 60:.0f} minutes")


def is_wanted(group: MeasurementGroup, arguments: argparse.Namespace) -> bool:
    if arguments.front:
        return group.name in GROUPS_MEASURED
    if arguments.only:
        return group.name in arguments.only
    return group.is_long == arguments.long and (group.is_in_quick or not arguments.quick)


def commit_name() -> str:
    """Return the short hash of the commit, followed by + if the tree has changes besides `COMPUTED_FILES`."""
    excluded = [f":(exclude){path.relative_to(ROOT)}" for path in COMPUTED_FILES]
    name = _git("describe", "--always").strip()
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *excluded)
    return name + "+" * bool(changed) if name else "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout


def parse_arguments() -> argparse.Namespace:
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
