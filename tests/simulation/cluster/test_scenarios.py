"""The scripted stories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.cluster import stages


@pytest.mark.parametrize("scenario", stages.SCRIPTS, ids=lambda scenario: str(scenario.__name__))
def test_scenario(scenario: Callable[[int], None]) -> None:
    scenario(0)  # where the hunt for planted bugs begins: what fails there by itself finds nothing
