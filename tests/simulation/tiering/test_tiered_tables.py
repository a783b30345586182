"""The rule about compacted topics in both tiers flags the violations that are planted for it, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from moldau.storage.tiered.metadata.remote_segment import SegmentState, SegmentUpdate
from moldau.storage.tiered.remote_lookup import log_key
from tests.simulation.invariants.observation import Violation
from tests.simulation.tiering.compacted import CLEANER, COMPACTED, PAUSE_S, Table
from tests.simulation.tiering.scripts import Stage, told
from tests.simulation.tiering.tiered_tables import TieredTables

LOOK_S = 0.02


def a_segment_is_not_read(stage: Stage) -> None:
    """The first one, which has a key that was written once."""
    remote_log = stage.followed(stage.leader_id()).remote_log
    segment_id = remote_log.read_segments()[0].segment_id
    assert remote_log.replay(SegmentUpdate(segment_id, 1, 0, SegmentState.DELETE_SEGMENT_STARTED))


def a_segment_is_empty(stage: Stage) -> None:
    followed = stage.followed(stage.leader_id())
    key = log_key(followed.key, followed.remote_log.read_segments()[0])
    stage.bucket.store(key, b"")


@pytest.mark.parametrize("plant", [a_segment_is_not_read, a_segment_is_empty])
def test_a_planted_violation_is_flagged(plant: Callable[[Stage], None]) -> None:
    async def story(stage: Stage) -> None:
        table, rule, metadata = Table(stage), TieredTables(stage.bucket), stage.rules.metadata

        def look() -> None:
            seen = stage.observer.look()
            if seen is not None:
                metadata.learn(seen)
                rule.check(seen, metadata)

        async def watch() -> None:
            while True:
                look()
                await asyncio.sleep(LOOK_S)

        stage.is_watched = False
        watching = asyncio.get_running_loop().create_task(watch())
        for _ in range(3):
            await table.write(30)
            await asyncio.sleep(PAUSE_S)
        assert stage.leader().log.local_start_offset > 1
        watching.cancel()
        look()
        plant(stage)
        rule._compared.clear()
        rule._decoded.clear()
        with pytest.raises(Violation, match="in any tier"):
            look()

    told(0, story, properties=CLEANER, **COMPACTED)
