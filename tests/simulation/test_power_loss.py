"""Idempotent producers lose nothing, write nothing twice and nothing out of order, whenever power, process and disk
fail."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.power_loss import Fault, Shape, run_seed
from tests.support.node import Node, serve_and


@pytest.mark.parametrize("seed", range(30))
def test_acknowledged_records_survive_power_cuts_kills_stops_and_failed_syncs(seed: int) -> None:
    run = run_seed(seed)
    assert run.problems() == []
    assert run.history.acknowledged_count > 0 and run.boots > len(run.shape.faults)


@pytest.mark.parametrize(
    ("seed", "found"),
    [
        (4, "a reader saw what was not synced yet, and the power took it back"),
        (36, "the same: its next fetch was out of range"),
        (9, "after a restart only the last of the requests in flight was known as a duplicate"),
        (67, "the same in the first segment"),
        (0, "after kill -9 what was never synced was hidden from readers for a while"),
    ],
)
def test_what_seeds_have_found_stays_mended(seed: int, found: str) -> None:
    assert run_seed(seed, has_disk_errors=False).problems() == [], found


def test_a_committed_offset_survives_the_power_where_every_append_is_synced() -> None:
    """Coordinators append outside of Produce: the setting of the broker counts for them too."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        commit = OffsetCommitRequest(
            group_id="g", member_id="", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
        )
        while True:
            reply = await client.ask(commit, 8)
            if (error := reply.topics[0].partitions[0].error_code) == ErrorCode.NONE:
                break
            assert error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), error
            await client.ask(FindCoordinatorRequest(key="g"), 3)
            await asyncio.sleep(0.1)
        assert [each.log.unflushed_count for each in node.broker.replicas if each.log.end_offset] == [0]

    serve_and(story, log_flush_interval_messages=1)


def test_every_fault_is_drawn_within_a_few_seeds() -> None:
    shapes = [Shape.drawn(Random(seed), "1").with_disk_errors(Random(seed)) for seed in range(10)]
    assert {fault for shape in shapes for fault in shape.faults} == set(Fault)
    assert {(shape.acks, shape.directories) for shape in shapes} >= {((-1,), 1), ((1,), 1), ((1,), 2), ((-1, 1), 2)}


def test_without_a_sync_for_each_acknowledgement_the_checker_finds_losses() -> None:
    """So the checks above can fail."""
    runs = [run_seed(seed, flush_messages="1000000", has_disk_errors=False) for seed in range(8)]
    found = {anomaly.kind.value for run in runs for anomaly in run.found()}
    assert {"unseen", "inconsistent-offsets"} <= found


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_seed(5).digest == run_seed(5).digest != run_seed(6).digest
