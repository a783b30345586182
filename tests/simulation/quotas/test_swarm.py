"""The quotas of a broker alone keep both rules; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from moldau.security.quotas import throttling
from moldau.security.quotas.sampled_rate import SampledRate
from tests.simulation.invariants.observation import Violation
from tests.simulation.quotas.swarm import Swarm

SEEDS: Final = 8
PLANTED_SEEDS: Final = 12


def test_seeds_keep_both_rules() -> None:
    throttled = 0
    for seed in range(100, 100 + SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        throttled += swarm.throttled
    assert throttled > 100 * SEEDS, "hardly any client was throttled"


def rates_that_count_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(throttling, "throttle_ms", lambda *_: 0)


def rates_that_forget_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SampledRate, "_forget", lambda *_: None)


@pytest.mark.parametrize("plant", [rates_that_count_nothing, rates_that_forget_nothing])
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(PLANTED_SEEDS):
            Swarm(seed).run()
