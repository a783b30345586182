"""A share group in the console: its members, and what it has not read."""

from __future__ import annotations

import asyncio

from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.console_client import SETTINGS, get, json_of
from tests.support.coordinators import until_coordinated
from tests.support.node import Node, batch, serve_and
from tests.support.share_consumer import GROUP, Consumer
from tests.support.share_consumer import SETTINGS as SHARE_SETTINGS

ACCEPT = 1


def test_a_share_group_has_members_share_partitions_and_a_lag() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        topic_id = await client.create("t")
        await until_coordinated(client.ask, GROUP)
        epoch = 0
        for _ in range(50):
            beat = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="m", member_epoch=epoch, subscribed_topic_names=["t"] if epoch == 0 else None
            )
            reply = await client.ask(beat, 1)
            epoch = reply.member_epoch if reply.error_code == 0 else 0
            if reply.assignment is not None and reply.assignment.topic_partitions:
                break
            await asyncio.sleep(0.5)
        page = await json_of(f"/groups/{GROUP}")
        assert page["kind"] == "share"
        (member,) = page["members"]
        assert (member["id"], member["assigned"]) == ("m", {"t": [0]})
        consumer = Consumer(client, topic_id)
        await consumer.take(wait_ms=500)  # The group begins at the end of the log, which its first fetch finds.
        await client.produce("t", batch("a", "b", "c"))
        for _ in range(50):
            taken = await consumer.take(wait_ms=500)
            if taken and taken[0].values:
                break
        first, last, _ = taken[0].acquired[0]
        await client.produce("t", batch("d", "e"))
        assert await consumer.acknowledge(first, last, ACCEPT) == 0
        await asyncio.sleep(1)
        page = await json_of(f"/groups/{GROUP}")
        left = 5 - len(taken[0].values)
        assert (page["records"], page["is_exact"]) == (left, True), page
        (row,) = (await json_of("/groups?kind=share"))["groups"]["rows"]
        assert (row["id"], row["records"]) == (GROUP, left)
        assert "Share partitions" in (await get(f"/groups/{GROUP}"))[2]

    serve_and(story, **SETTINGS, **SHARE_SETTINGS)
