"""Scripted stories of a tiered partition whose leader has a damaged segment, which its followers have whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from moldau.broker.node.node import Node
from moldau.storage.files.log_paths import LOG_SUFFIX, OFFSET_INDEX_SUFFIX
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.sparse_index import OFFSET_ENTRY
from tests.simulation.tiering.moved import lead_by, replica
from tests.simulation.tiering.scripts import Stage, expected, told

SETTINGS: Final[dict[str, Any]] = {"internal_segment_bytes": 1200, "flush_messages": 1}
FLUSHED_S: Final = 8.0
"""After which the recovery points are in their checkpoints."""


async def damaged(
    stage: Stage, damage: Callable[[Segment, Callable[[str, int], object]], None], *, moves: bool
) -> Node:
    """Damage the second segment of the leader, node 1, while the storage is away. Then all is copied, by another leader
    if the first one gives its place up (`moves`), local segments are deleted everywhere, and all is read."""
    cluster = stage.cluster
    await lead_by(stage, 1)
    for faults in stage.faults():
        faults.is_away = True
    await stage.fill(60)
    await asyncio.sleep(FLUSHED_S)
    leader, log = stage.broker(1), stage.leader().log
    assert not stage.followed(1).remote_log.read_segments()
    damage(log.segments[1], cluster.nodes[1].host.disk.flip_bit)
    for faults in stage.faults():
        faults.is_away = False

    def leads(node_id: int) -> bool:
        return (partition := replica(stage, node_id)) is not None and partition.is_leader

    if moves:
        await cluster.until(lambda: leads(2) or leads(3), "another replica leads", 60)
    await stage.copied()

    def is_deleted() -> bool:
        partitions = [replica(stage, each) for each in cluster.nodes]
        return all(each is not None and each.log.segments == [each.log.active] for each in partitions)

    await cluster.until(is_deleted, "local segments are deleted everywhere", 60)
    assert await stage.read() == expected(stage.count)
    return leader


def a_leader_copies_no_batch_that_its_disk_damaged(seed: int) -> None:
    """The leader gives its place up. The next leader copies the segment from its own, sound bytes."""

    async def story(stage: Stage) -> None:
        def damage(segment: Segment, flip_bit: Callable[[str, int], object]) -> None:
            flip_bit(segment.path(LOG_SUFFIX), 65)

        leader = await damaged(stage, damage, moves=True)
        assert leader.damaged.found_count == 1 and not len(leader.damaged)

    told(seed, story, **SETTINGS)


def a_leader_copies_no_index_that_its_disk_damaged(seed: int) -> None:
    """The leader copies the segment with an index that is made from its batches."""

    async def story(stage: Stage) -> None:
        def damage(segment: Segment, flip_bit: Callable[[str, int], object]) -> None:
            flip_bit(segment.path(OFFSET_INDEX_SUFFIX), 3 * OFFSET_ENTRY.size)

        leader = await damaged(stage, damage, moves=False)
        assert not leader.damaged.found_count

    told(seed, story, **SETTINGS)


ALL: Final[tuple[Callable[[int], None], ...]] = (
    a_leader_copies_no_batch_that_its_disk_damaged,
    a_leader_copies_no_index_that_its_disk_damaged,
)
