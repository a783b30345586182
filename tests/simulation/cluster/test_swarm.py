"""A few seeds of the swarm, and that a seed is a whole run: the same in any process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.cluster.eager import FAMILIES, eager_plan
from tests.simulation.cluster.plan import Fault, Plan
from tests.simulation.cluster.swarm import run_seed

DIGEST = "from tests.simulation.cluster.swarm import run_seed; print(run_seed({seed}, plan=None).digest)"


@pytest.mark.parametrize("seed", [2, 23])
def test_nothing_is_lost_and_the_cluster_comes_to_itself(seed: int) -> None:
    """Seed 23: the disk was full when a snapshot of the metadata arrived, and the node fell over it."""
    run = run_seed(seed)
    assert not run.problems()
    assert run.history.acknowledged_count > 0
    assert run.looks > 0


@pytest.mark.parametrize("seed", [19, 39])
def test_writers_do_not_outrun_followers_that_fetch_little(seed: int) -> None:
    """A follower fetches 400 bytes at a time and syncs each: with more than 60 records a second it never catches up."""
    faults = (Fault.LOSE_DIRECTORY, Fault.DISK_ERROR, Fault.KILL, Fault.STOP, Fault.KILL_LEADER)
    plan = eager_plan(seed, faults, (("directories", 2), ("careless", 1), ("flushes", True)))
    assert plan.properties and not run_seed(seed, plan=plan).problems()


def test_transactions_are_all_or_nothing() -> None:
    run = run_seed(6, plan=transactions_plan(6))
    assert not run.problems()
    assert run.ledger.committed_count > 10


def transactions_plan(seed: int) -> Plan:
    (family,) = [each for each in FAMILIES if each.name == "transactions"]
    return eager_plan(seed, family.faults, family.shape)


def test_one_seed_is_one_run_in_any_process_and_under_any_hash_seed() -> None:
    digests = set()
    for hash_seed in ("0", "random"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        finished = subprocess.run(
            [sys.executable, "-c", DIGEST.format(seed=2)], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(finished.stdout.strip())
    assert len(digests) == 1
