"""`python -m tests.simulation.cluster --hours 0.5 --jobs 2`: the opening, then seeds of the swarm until so many hours
of whole clusters were simulated.

--seed RUN    this one alone, with what happened in it: how a violation is replayed. N is a seed of the swarm, KIND/N
              one of another kind (see `stages`)
--first N     begin at seed N instead of 0
--seeds N     so many seeds of the swarm instead of hours, and no opening
--forever     until stopped
--minutes M   at most so many minutes of real time
--harsh       more kinds of fault, more often, in every seed of the swarm; --harsh-every N: in every Nth
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import multiprocessing
import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from building.extensions import stale_files
from tests.simulation.cluster.stages import (
    HARSH,
    KINDS,
    LONG_STORIES,
    QUORUM,
    SWARM,
    Report,
    Run,
    Runner,
    named,
    opening,
    swarm,
)

REPORT_EVERY_S = 20.0
TRACE_LINES = 200
LONG_S_MAX, SHORT_S_MAX = 200.0, 150.0
"""Of machine time for a seed of the swarm or a long story, and for any other run. The longest take about 95 s, and a
machine may be half as fast.
"""
AGAIN_S = 1.0
TASKS_MAX = 100_000


class Endless(SystemExit):
    """A run goes on and on: of the kind of exception that no task keeps to itself."""


@dataclass(slots=True)
class Outcome:
    """Of one run."""

    run: Run
    report: Report = field(default_factory=Report)


@contextmanager
def errors_alone_are_logged() -> Iterator[None]:
    """And told to nobody but those who listen."""
    before, silence = logging.root.manager.disable, logging.NullHandler()
    logging.disable(logging.WARNING)
    logging.root.addHandler(silence)
    try:
        yield
    finally:
        logging.root.removeHandler(silence)
        logging.disable(before)


def run_one(run: Run, kinds: Mapping[str, Runner] = KINDS, lines: list[str] | None = None) -> Outcome:
    with errors_alone_are_logged():
        return _run_one(run, kinds, lines)


def _run_one(run: Run, kinds: Mapping[str, Runner], lines: list[str] | None) -> Outcome:
    gc.disable()
    outcome = Outcome(run)
    signal.signal(signal.SIGPROF, _give_up)
    limit_s = LONG_S_MAX if run.kind in (SWARM, HARSH, *LONG_STORIES) else SHORT_S_MAX
    signal.setitimer(signal.ITIMER_PROF, limit_s, AGAIN_S)
    try:
        outcome.report = kinds[run.kind](run.number, lines)
    except BaseException as error:  # whatever it is, it is the run's
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome.report.problems = [f"{type(error).__name__}: {error}", traceback.format_exc()]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.enable()
    gc.collect()
    return outcome


def run_some(runs: list[Run]) -> list[Outcome]:
    """In a process of their own."""
    return [run_one(run) for run in runs]


def _give_up(number: int, frame: FrameType | None) -> None:
    raise Endless("it goes on and on: its machine time is over")


def tasks(options: argparse.Namespace) -> Iterator[list[Run]]:
    """What is run, in its order, each for one process at a time."""
    seeds = swarm(options.first, 1 if options.harsh else options.harsh_every)
    if options.seeds:
        return itertools.islice(seeds, options.seeds)
    # a pool draws all that there is at once: more than anybody runs, and an end
    return itertools.islice(itertools.chain(opening(options.first), seeds), TASKS_MAX)


@dataclass(slots=True)
class Tally:
    runs: int = 0
    hours: float = 0.0
    acknowledged: int = 0
    looks: int = 0
    violations: int = 0

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.hours += outcome.report.simulated_s / 3600
        self.acknowledged += outcome.report.acknowledged
        self.looks += outcome.report.looks
        self.violations += bool(outcome.report.problems)

    def told(self, real_s: float) -> str:
        return (
            f"{self.runs} seeds, {self.hours:.3f} simulated cluster-hours in {real_s:.0f} s: {self.acknowledged}"
            f" records acknowledged, {self.looks} looks, {self.violations} seeds with violations"
        )


def campaign(options: argparse.Namespace) -> int:
    began, said, tally = time.monotonic(), 0.0, Tally()
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, maxtasksperchild=20) as pool:
        for outcomes in pool.imap_unordered(run_some, tasks(options)):
            for outcome in outcomes:
                tally.add(outcome)
                if outcome.report.problems:
                    complain(outcome)
            now = time.monotonic() - began
            is_done = not options.seeds and not options.forever and tally.hours >= options.hours
            is_done = is_done or bool(options.minutes and now > options.minutes * 60)
            if now - said > REPORT_EVERY_S or is_done:
                said = now
                say(tally.told(now))
            if is_done:
                pool.terminate()
                break
    say(tally.told(time.monotonic() - began))
    return 1 if tally.violations else 0


def complain(outcome: Outcome) -> None:
    say(f"VIOLATION seed {outcome.run.name} (replay: make sim SEED={outcome.run.name})")
    for problem in outcome.report.problems[:3]:
        say(f"    {problem[-1500:]}")


def replay(run: Run, count: int) -> int:
    lines: list[str] = []
    report = run_one(run, lines=lines).report
    if report.told:
        say(report.told)
    told = (
        lines if run.kind == QUORUM else [each for each in lines if each.rstrip().endswith(")") and "'ack'" not in each]
    )
    say("\n".join(told[-count:]))
    say("\n".join(report.problems) or "nothing is wrong")
    return 1 if report.problems else 0


def say(line: str) -> None:
    print(line, flush=True)


def staleness() -> str | None:
    """Why this must not run: Python would take stale extension modules in place of the sources."""
    stale = stale_files()
    if not stale:
        return None
    return (
        f"{stale[0].name} is older than its source, and Python would run it: `make compiled` compiles again,"
        " `python -m building --remove` removes what is compiled"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", metavar="RUN", help="replay this one")
    parser.add_argument("--lines", type=int, default=TRACE_LINES, help="of the trace of a replay")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--forever", action="store_true")
    parser.add_argument("--harsh", action="store_true")
    parser.add_argument("--harsh-every", type=int, default=0, metavar="N")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    if (stale := staleness()) is not None:
        say(stale)
        return 2
    if options.seed is None:
        return campaign(options)
    try:
        run = named(options.seed)
    except ValueError as error:
        parser.error(str(error))
    return replay(run._replace(kind=HARSH) if options.harsh and run.kind == SWARM else run, options.lines)
