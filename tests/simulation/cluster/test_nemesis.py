"""The rules that keep the nemesis honest: what it must not take from a cluster that promised less."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from moldau.testing.simulation.disk_calls import DiskFaults
from tests.simulation.cluster.nemesis import Nemesis
from tests.simulation.cluster.plan import Fault, Plan
from tests.support.cluster import Cluster


@pytest.mark.parametrize("flushes", [False, True])
def test_a_disk_refuses_only_while_all_others_hold_what_it_may_lose(flushes: bool) -> None:
    """A replica that lost its cache is in sync until its broker registers again: with the next one's disk refusing
    something meanwhile, nobody counts as whole, though a third one is."""
    plan = replace(Plan.drawn(Random(1)), flushes=flushes, faults=(Fault.DISK_ERROR,))

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", min_insync_replicas=2, retention_ms=-1)
        await asyncio.sleep(2)
        nemesis = Nemesis(cluster, plan, Random(1))
        for node in cluster.nodes.values():
            node.host.may_halt = True
        cluster.nodes[3].crash()
        others = [cluster.nodes[1], cluster.nodes[2]]
        for _ in range(20):
            await nemesis.disk_error()
            await asyncio.sleep(1)
        assert all(node.is_up for node in others) is not flushes
        assert all(node.host.disk.faults == DiskFaults() for node in others)

    with Cluster(1) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_leader_is_the_node_that_is_paused(seed: int) -> None:
    plan = replace(Plan.drawn(Random(1)), faults=(Fault.PAUSE_LEADER,), strike_every_s=0.5)

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", replication_factor=1)
        leader_id = await cluster.led("t")
        nemesis = Nemesis(cluster, plan, Random(seed))
        working = asyncio.get_running_loop().create_task(nemesis.work())
        await cluster.until(lambda: bool(nemesis.struck), "a strike", 5)
        assert [each.id for each in cluster.nodes.values() if each.host.is_paused] == [leader_id]
        working.cancel()

    with Cluster(seed) as cluster:
        cluster.live(story)


def test_nothing_strikes_where_the_plan_has_no_faults() -> None:
    plan = replace(Plan.drawn(Random(1)), faults=())

    async def story(cluster: Cluster) -> None:
        nemesis = Nemesis(cluster, plan, Random(1))
        await asyncio.wait_for(nemesis.work(), 60)
        assert nemesis.struck == {}

    with Cluster(1) as cluster:
        cluster.live(story)
