"""A node with many replicas gives them their roles in turns of the event loop."""

from __future__ import annotations

import asyncio

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
