"""`python -m tests.simulation.cluster --hours 0.5 --jobs 2`: seeds of the swarm until so many hours were simulated.

--seed N      this one alone, with what happened in it: how a violation is replayed
--first N     begin at seed N instead of 0
--seeds N     so many seeds instead of hours
--forever     until stopped
--minutes M   at most so many minutes of real time
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import multiprocessing
import time
import traceback
from dataclasses import dataclass, field

from tests.simulation.cluster.swarm import run_seed

REPORT_EVERY_S = 20.0
TRACE_LINES = 200


@dataclass(slots=True)
class Outcome:
    """Of one seed."""

    seed: int
    simulated_s: float = 0.0
    acknowledged: int = 0
    looks: int = 0
    problems: list[str] = field(default_factory=list)


def run_one(seed: int) -> Outcome:
    gc.disable()
    logging.disable(logging.CRITICAL)
    outcome = Outcome(seed)
    try:
        run = run_seed(seed)
        outcome.simulated_s, outcome.looks = run.simulated_s, run.looks
        outcome.acknowledged = run.history.acknowledged_count
        outcome.problems = run.problems()
    except BaseException as error:  # whatever it is, it is the seed's
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome.problems = [f"{type(error).__name__}: {error}", traceback.format_exc()]
    gc.collect()
    return outcome


def campaign(options: argparse.Namespace) -> int:
    began, said = time.monotonic(), 0.0
    hours, seeds, acknowledged, looks, violations = 0.0, 0, 0, 0, 0
    source = itertools.count(options.first)
    numbers = itertools.islice(source, options.seeds) if options.seeds else source
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, maxtasksperchild=20) as pool:
        for outcome in pool.imap_unordered(run_one, numbers if options.seeds else _bounded(numbers)):
            seeds += 1
            hours += outcome.simulated_s / 3600
            acknowledged += outcome.acknowledged
            looks += outcome.looks
            if outcome.problems:
                violations += 1
                say(f"VIOLATION seed {outcome.seed} (replay: make sim SEED={outcome.seed})")
                for problem in outcome.problems[:3]:
                    say(f"    {problem[-1500:]}")
            now = time.monotonic() - began
            is_done = not options.seeds and not options.forever and hours >= options.hours
            is_done = is_done or bool(options.minutes and now > options.minutes * 60)
            if now - said > REPORT_EVERY_S or is_done:
                said = now
                say(summary(seeds, hours, now, acknowledged, looks, violations))
            if is_done:
                pool.terminate()
                break
    say(summary(seeds, hours, time.monotonic() - began, acknowledged, looks, violations))
    return 1 if violations else 0


def summary(seeds: int, hours: float, real_s: float, acknowledged: int, looks: int, violations: int) -> str:
    return (
        f"{seeds} seeds, {hours:.3f} simulated cluster-hours in {real_s:.0f} s: {acknowledged} records acknowledged,"
        f" {looks} looks, {violations} seeds with violations"
    )


def _bounded(numbers: itertools.count[int] | itertools.islice[int]) -> itertools.islice[int]:
    """A pool draws all that there is at once: more than anybody runs, and an end."""
    return itertools.islice(numbers, 100_000)


def replay(seed: int, count: int) -> int:
    lines: list[str] = []
    try:
        run = run_seed(seed, lines=lines)
        say(f"{run.plan}\nstruck: {run.struck}\n{run.simulated_s:.1f} s, {run.looks} looks, digest {run.digest}")
        problems = run.problems()
    except Exception as error:
        traceback.print_exc()
        problems = [f"{type(error).__name__}: {error}"]
    told = [line for line in lines if line.rstrip().endswith(")") and "'ack'" not in line]
    say("\n".join(told[-count:]))
    say("\n".join(problems) or "nothing is wrong")
    return 1 if problems else 0


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.cluster", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--lines", type=int, default=TRACE_LINES, help="of the trace of a replay")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--hours", type=float, default=0.5)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--forever", action="store_true")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    return replay(options.seed, options.lines) if options.seed is not None else campaign(options)
