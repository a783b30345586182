"""Runs one simulation, seed after seed, until something is found: in the copy of the tree that has the bug.

`python -m tests.mutants.hunt NUMBER`: exits with 1 and says what was found, and in which run; 0 after its time.
`--untold` in the number's stead: what `make sim` runs, in its order, told nothing of the bug.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout

import pytest

from tests.mutants.catalogue import MUTANTS, Hunt, Mutant
from tests.simulation.cluster import stages
from tests.simulation.cluster.campaign import run_one
from tests.simulation.cluster.eager import eager_plan
from tests.simulation.cluster.stages import Lines, Report, Run, Runner

MACHINE_S_MAX = 60.0
REPLICA_SEEDS = 50
"""Beside each round of the scripts."""
TABLES = "tables"
TESTS_OF_TABLES = tuple(
    f"tests/unit/lake/test_{name}.py"
    for name in (
        "layout",
        "keys",
        "flattening",
        "forms",
        "columns",
        "upsert",
        "moved_keys",
        "sink",
        "orphans",
        "data_files",
    )
)
UNTOLD = "--untold"
TAILORED = "tailored"
"""The kind of run that is eager for what the catalogue says of the one bug."""


def tailored(mutant: Mutant) -> Runner:
    flushes = () if mutant.flushes is None else (("flushes", mutant.flushes),)
    return stages.of_cluster(lambda seed: eager_plan(seed, mutant.faults, (*flushes, *mutant.shape)))


def runs_for(mutant: Mutant) -> Iterator[Run]:
    for seed in itertools.count():
        match mutant.hunt:
            case Hunt.RAFT:
                yield Run(stages.QUORUM, seed)
            case Hunt.CONTROLLER:
                yield Run(stages.CONTROLLER, seed)
            case Hunt.GROUPS:
                yield Run(stages.GROUPS, seed)
            case Hunt.CONSUMER_GROUPS | Hunt.SHARE_GROUPS | Hunt.STREAMS_GROUPS | Hunt.CONVERSIONS | Hunt.SHARE_RECORDS:
                yield Run(mutant.hunt.value, seed)
            case Hunt.TRANSACTIONS:
                yield Run(stages.TRANSACTIONS, seed)
            case Hunt.METADATA:
                yield Run(stages.METADATA, seed)
            case Hunt.LOG_CLEANER:
                yield Run(stages.LOG_CLEANER, seed)
            case Hunt.LOG_ERASER | Hunt.REMOTE_ERASER | Hunt.BACKUPS:
                yield Run(mutant.hunt.value, seed)
            case Hunt.QUOTAS:
                yield Run(stages.QUOTAS, seed)
            case Hunt.SESSIONS:
                yield Run(stages.SESSIONS, seed)
            case Hunt.WAITS:
                yield Run(stages.WAITS, seed)
            case Hunt.TURNS:
                yield Run(stages.TURNS, seed)
            case Hunt.REPLICAS:
                yield Run(stages.REPLICAS, seed)
            case Hunt.SWARM:
                yield Run(TAILORED, seed)
            case Hunt.STORIES:
                yield from (Run(path, seed) for path in stages.EARLIEST_STORIES + stages.FIRST_STORIES + stages.STORIES)
            case Hunt.SOCKETS:
                yield Run(stages.REPLIES_OF_FILES, seed)
            case Hunt.TABLES:
                yield Run(TABLES, seed)
                return
            case Hunt.SCENARIOS:
                yield from (Run(script.__name__, seed) for script in stages.SCRIPTS)
                yield from (Run(stages.REPLICAS, seed * REPLICA_SEEDS + each) for each in range(REPLICA_SEEDS))


def of_tables(seed: int, lines: Lines) -> Report:
    """The unit tests of tables, which need pyiceberg."""
    failed = FirstFailure()
    with redirect_stdout(sys.stderr):
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", *TESTS_OF_TABLES], plugins=[failed])
    return Report(problems=failed.names)


class FirstFailure:
    """The names of the tests that have failed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def untold_runs() -> Iterator[Run]:
    for together in itertools.chain(stages.opening(0), stages.swarm(0)):
        yield from together


def main() -> int:
    kinds = {**stages.KINDS, TABLES: of_tables}
    if sys.argv[1] == UNTOLD:
        runs = untold_runs()
    else:
        (mutant,) = [each for each in MUTANTS if each.number == int(sys.argv[1])]
        kinds[TAILORED] = tailored(mutant)
        runs = runs_for(mutant)
    for run in runs:
        problems = run_one(run, kinds).report.problems
        if problems:
            print(f"{run.name}\t{problems[0][:300]!r}", flush=True)
            return 1
        if time.process_time() > MACHINE_S_MAX:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
