"""Every scenario that clients are held to, in the order of the matrix."""

from __future__ import annotations

from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import configs, groups, offsets, produce, topics

CLIENT_SCENARIOS: tuple[Scenario, ...] = (
    *produce.SCENARIOS,
    *groups.SCENARIOS,
    *offsets.SCENARIOS,
    *topics.SCENARIOS,
    *configs.SCENARIOS,
)
