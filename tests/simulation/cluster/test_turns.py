"""A broker that is asked for more than it has time for serves every client, and the rules flag one that does not. The
catalogue of planted bugs has those that the swarm finds (`tests/mutants/turns.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.cluster.turns import Told, run_seed
from tests.simulation.invariants.observation import Violation
from tests.support.node import PORT

RIGHT = Told({PORT: 10.0}, 5.0, [100, 110], [10, 12])


def test_every_client_is_served() -> None:
    for seed in range(2):
        told = run_seed(seed)
        assert told.latest_ms > 2 and sum(told.known) > 1_000, "it was not asked for too much"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({"slowest_ms": {PORT: 20.0}}, "one question at a time waits for 20.0 ms"),
        ({"latest_ms": 20.0}, "20.0 ms late"),
        ({"known": [0, 200]}, "one gets 0 answers, another 200"),
        ({"strangers": [90, 100]}, "before a login"),
    ],
)
def test_a_client_that_is_not_served_is_flagged(seen: dict[str, Any], said: str) -> None:
    RIGHT.judge()
    with pytest.raises(Violation, match=said):
        RIGHT._replace(**seen).judge()
