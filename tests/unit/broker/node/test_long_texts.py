"""Texts that grow longer in a log than a request can send them: no node could read that log again."""

from __future__ import annotations

import asyncio

import pytest

from moldau.kraft.controller.config_control import TOO_LONG
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.primitives import TEXT_SIZE_MAX
from tests.support.coordinators import until_coordinated
from tests.support.node import Client, Closed, Node, batch, serve_and
from tests.unit.broker.node.test_delegation_tokens import WITH_KEY, logged_in

THROTTLED = "leader.replication.throttled.replicas"
APPEND = 2


async def append(client: Client, value: str) -> AlterConfigsResourceResponse:
    change = AlterableConfig(name=THROTTLED, config_operation=APPEND, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    reply = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    (result,) = reply.responses
    assert isinstance(result, AlterConfigsResourceResponse)
    return result


async def restarted(node: Node) -> Client:
    node.host.crash()
    node.boot()
    client = await node.connect()
    while (await client.produce("t", batch("a"))).error_code != ErrorCode.NONE:
        await asyncio.sleep(0.1)
    return client


def test_a_list_does_not_grow_beyond_what_nodes_read() -> None:
    """As a tool throttles a reassignment: it appends the replicas of some partitions after the other."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        pairs = [f"{index}:1" for index in range(8_000)]
        first = ",".join(pairs[:4_000])
        assert (await append(client, first)).error_code == ErrorCode.NONE
        refused = await append(client, ",".join(pairs[4_000:]))
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_CONFIG, TOO_LONG)
        client = await restarted(node)
        assert node.broker.image.configs.settings_of(ResourceType.TOPIC, "t") == {THROTTLED: first}
        assert (await append(client, "8000:1")).error_code == ErrorCode.NONE

    serve_and(story)


def test_the_renewer_of_a_token_does_not_grow_beyond_what_nodes_read() -> None:
    """In the record its type stands before the name, which may be as long as a request allows."""

    async def story(node: Node) -> None:
        admin = await node.connect()
        await admin.create("t")
        alice = await logged_in(node, "alice")
        renewer = CreatableRenewers(principal_type="User", principal_name="x" * TEXT_SIZE_MAX)
        reply = await alice.ask(CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1), 3)
        assert reply.error_code == ErrorCode.INVALID_REQUEST
        await restarted(node)
        assert not node.broker.image.tokens.by_id

    serve_and(story, **WITH_KEY)


def test_a_client_id_does_not_grow_beyond_what_coordinators_read() -> None:
    """Each of its bytes, which are not UTF-8, would become three."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await until_coordinated(client.ask, "g")
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        hostile = await node.connect()
        hostile.client_id = b"\xff" * 11_000
        with pytest.raises(Closed):
            await hostile.ask(request, 1)
        client = await restarted(node)
        await until_coordinated(client.ask, "g")
        joined = await client.ask(request, 1)
        assert (joined.error_code, len(joined.assignment.topic_partitions)) == (ErrorCode.NONE, 1)

    serve_and(story)
