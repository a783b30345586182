"""A node with many replicas gives them their roles in turns of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.replicas.metadata_applier import MetadataApplier
from moldau.broker.runtime.tasks import SLICE_COUNT
from tests.support.node import Node, serve_and


def test_a_replica_that_leaves_while_roles_are_given_gets_none() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 3 * SLICE_COUNT)
        applier, replicas = node.broker.applier, node.broker.replicas
        first, last = replicas.by_name["t"][0], replicas.by_name["t"][3 * SLICE_COUNT - 1]
        for partition in (first, last):
            partition.become_follower(2, partition.leader_epoch)
        roles = asyncio.get_running_loop().create_task(applier.begin())
        await asyncio.sleep(0)
        assert first.is_leader and not last.is_leader, "one turn gives some of the roles"
        applier._leave("t", last.topic_id, last.index)
        await roles
        assert not last.is_leader

    serve_and(story)


def test_the_broker_stays_unfenced_while_many_replicas_get_their_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = MetadataApplier.begin

    async def begin_slowly(applier: MetadataApplier) -> None:
        await asyncio.sleep(30)
        await begin(applier)

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        node.host.kill()
        monkeypatch.setattr(MetadataApplier, "begin", begin_slowly)
        node.boot()
        await asyncio.sleep(15)
        for _ in range(12):
            assert not node.broker.image.cluster.brokers[1].fenced
            await asyncio.sleep(1)
        assert not node.broker.replicas.by_name["t"][0].is_leader
        await node.connect()

    serve_and(story)
