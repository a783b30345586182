"""Runs one simulation, seed after seed, until something is found: in the copy of the tree that has the bug.

`python -m tests.mutants.hunt NUMBER`: exits with 1 and says what was found, and with which seed; 0 after its time.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.mutants.catalogue import MUTANTS, Hunt, Mutant
from tests.simulation.cluster import regressions, scenarios
from tests.simulation.cluster.plan import Plan
from tests.simulation.cluster.swarm import run_seed
from tests.simulation.raft.swarm import Swarm

MACHINE_S_MAX = 60.0


def of_raft(seed: int, mutant: Mutant) -> list[str]:
    Swarm(seed).run()
    return []


def of_clusters(seed: int, mutant: Mutant) -> list[str]:
    """Short and eager: the faults that matter, a look every few milliseconds."""
    drawn = Plan.drawn(Random(f"{seed}/plan"))
    plan = replace(
        drawn,
        flushes=drawn.flushes if mutant.flushes is None else mutant.flushes,
        faults=mutant.faults or drawn.faults,
        fault_s=12.0,
        strike_every_s=1.0,
        look_every_s=0.004,
        session_ms=2000,
        lag_ms_max=1000,
        pause_s=0.02,
        in_flight=5,
    )
    return run_seed(seed, plan=replace(plan, **dict(mutant.shape))).problems()  # type: ignore[arg-type]


def of_scenarios(seed: int, mutant: Mutant) -> list[str]:
    for scenario in (*scenarios.ALL, *regressions.ALL):
        scenario(seed)
    return []


HUNTS: dict[Hunt, Callable[[int, Mutant], list[str]]] = {
    Hunt.RAFT: of_raft,
    Hunt.SWARM: of_clusters,
    Hunt.SCENARIOS: of_scenarios,
}


def main() -> int:
    (mutant,) = [each for each in MUTANTS if each.number == int(sys.argv[1])]
    logging.disable(logging.CRITICAL)
    gc.disable()
    for seed in itertools.count():
        try:
            problems = HUNTS[mutant.hunt](seed, mutant)
        except Exception as error:
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            print(f"{seed}\t{problems[0][:300]}", flush=True)
            return 1
        gc.collect()
        if time.process_time() > MACHINE_S_MAX:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
