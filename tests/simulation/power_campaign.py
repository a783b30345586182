"""`python -m tests.simulation.power_campaign --seeds 10000 --jobs 2`: many seeds of the power-loss scenario, counted.

    --first N     begin at seed N instead of 0
    --seed N      this one alone, with all that is wrong with it: how a violation is replayed

Every tenth of a percent it says how far it is; a seed that breaks a promise is named at once.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulation.power_loss import Fault, run_seed

CHUNK = 25
REPORT_EVERY_S = 10.0


@dataclass(slots=True)
class Tally:
    """What so many seeds came to."""

    seeds: int = 0
    boots: int = 0
    power_losses: int = 0
    kills: int = 0
    stops: int = 0
    disk_errors: int = 0
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    simulated_s: float = 0.0
    violations: int = 0

    def add(self, other: Tally) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


Complaint = tuple[int, list[str]]


def run_chunk(seeds: range) -> tuple[Tally, list[Complaint]]:
    """In a process of its own."""
    tally, complaints = Tally(), []
    gc.disable()
    for seed in seeds:
        problems = _run_one(seed, tally)
        if problems:
            complaints.append((seed, problems))
    tally.violations = len(complaints)
    gc.collect()
    return tally, complaints


def _run_one(seed: int, tally: Tally) -> list[str]:
    tally.seeds += 1
    try:
        run = run_seed(seed)
    except Exception as error:
        return [f"{type(error).__name__}: {error}", traceback.format_exc()]
    tally.boots += run.boots
    tally.power_losses += run.struck[Fault.CUT] + run.struck[Fault.DARK] + 1
    tally.kills += run.struck[Fault.KILL]
    tally.stops += run.struck[Fault.STOP]
    tally.disk_errors += run.struck[Fault.ERROR]
    tally.sent += len(run.history.sends)
    tally.acknowledged += run.history.acknowledged_count
    tally.read += sum(len(reading.records) for reading in run.history.readings)
    tally.simulated_s += run.simulated_s
    return run.problems()


def chunks(first: int, count: int) -> Iterator[range]:
    for start in range(first, first + count, CHUNK):
        yield range(start, min(start + CHUNK, first + count))


def campaign(first: int, count: int, jobs: int) -> Tally:
    began, said = time.monotonic(), 0.0
    total = Tally()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for tally, complaints in pool.imap_unordered(run_chunk, chunks(first, count)):
            total.add(tally)
            for seed, problems in complaints:
                say(f"VIOLATION seed {seed} (replay: python -m tests.simulation.power_campaign --seed {seed})")
                for problem in problems[:3]:
                    say(f"    {problem[:500]}")
            now = time.monotonic() - began
            if now - said > REPORT_EVERY_S or total.seeds == count:
                said = now
                say(
                    f"{total.seeds} of {count} seeds in {now:.0f} s: {total.power_losses} power losses,"
                    f" {total.acknowledged} records acknowledged, {total.violations} seeds with violations"
                )
    return total


def replay(seed: int) -> int:
    run = run_seed(seed)
    say(f"{run.shape}\n{run.boots} starts, {run.simulated_s:.1f} s, digest {run.digest}")
    problems = run.problems()
    say("\n".join(problems) or "nothing is wrong")
    return 1 if problems else 0


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.power_campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the sums")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed)
    total = campaign(options.first, options.seeds, options.jobs)
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(total), indent=1) + "\n")
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
