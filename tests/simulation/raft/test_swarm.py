"""Seeds of random faults. A bug that one of them finds leaves its seed here, or a transcript."""

from __future__ import annotations

import pytest

from tests.simulation.raft.swarm import Swarm


@pytest.mark.parametrize("seed", range(20))
def test_faults(seed: int) -> None:
    print(f"SEED={seed}")
    Swarm(seed).run()
