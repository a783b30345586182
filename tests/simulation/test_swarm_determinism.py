"""A seed is one story in each swarm of a machine alone that draws its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.groups.consumer_swarm import ConsumerSwarm
from tests.simulation.groups.conversion_swarm import ConversionSwarm
from tests.simulation.groups.share_swarm import ShareSwarm
from tests.simulation.groups.streams_swarm import StreamsSwarm
from tests.simulation.groups.swarm import Swarm as ClassicSwarm
from tests.simulation.quotas.swarm import Swarm as QuotaSwarm
from tests.simulation.share_records.swarm import ShareRecordsSwarm
from tests.simulation.transactions.swarm import Swarm as TransactionSwarm


def story_of(swarm: Any) -> object:
    """The log that a swarm leaves (of quotas: the counts), when it ended, and what its next draw would be."""
    swarm.run()
    if isinstance(swarm, QuotaSwarm):
        return swarm.requests, swarm.throttled, swarm.now_ms, swarm.random.random()
    stage = swarm.host if isinstance(swarm, ShareRecordsSwarm) else swarm.stage
    return [batch.data for batch in stage.log], stage.epoch, swarm.time_ms(), swarm.random.random()


@pytest.mark.parametrize(
    "swarm_of",
    [
        *(ClassicSwarm, ConsumerSwarm, ConversionSwarm, ShareSwarm, StreamsSwarm),
        *(ShareRecordsSwarm, TransactionSwarm, QuotaSwarm),
    ],
    ids=lambda each: f"{each.__module__.split('.')[2]}-{each.__name__}",
)
def test_equal_seeds_tell_equal_stories(swarm_of: Callable[[int], Any]) -> None:
    assert story_of(swarm_of(7)) == story_of(swarm_of(7))
    assert story_of(swarm_of(7)) != story_of(swarm_of(8))
