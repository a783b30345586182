"""Nodes that are controllers only, and nodes that are brokers only."""

from __future__ import annotations

import asyncio

import pytest

from moldau.broker.network.route import ListenerRole
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.metadata import MetadataRequest
from tests.simulation.test_cluster import produce, read
from tests.support.cluster import Cluster, ClusterNode, host_name
from tests.support.node import CONTROLLER_PORT, Client


def listener_roles(node: ClusterNode) -> set[ListenerRole]:
    assert node.broker is not None
    return {listener.role for listener in node.broker.listeners}


async def connect_to_controller(node_id: int) -> Client:
    return Client(*await asyncio.open_connection(host_name(node_id), CONTROLLER_PORT), "test")


@pytest.mark.parametrize("seed", range(3))
def test_three_controllers_and_two_brokers_serve_and_outlive_the_active_controller(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        assert [listener_roles(node) for node in cluster.nodes.values()] == [{ListenerRole.CONTROLLER}] * 3 + [
            {ListenerRole.BROKER}
        ] * 2
        await cluster.create("orders", replication_factor=2)
        await produce(cluster, "orders", "before")
        leader = cluster.leader_of_quorum()
        assert leader is not None and leader.id <= 3
        leader.crash()
        await cluster.until(lambda: cluster.leader_of_quorum() not in (None, leader), "another leader", 10)
        await cluster.create("later", replication_factor=2)
        await produce(cluster, "orders", "after")
        assert await read(cluster, "orders") == ["before", "after"]
        leader.boot()
        await asyncio.sleep(1)
        await cluster.settled()
        for node in cluster.nodes.values():
            node.stop()
            await cluster.until(lambda node=node: node.broker is None, "a clean stop", 30)  # type: ignore[misc]

    with Cluster(seed, nodes=5, controllers=3) as cluster:
        cluster.live(story)


def test_each_says_who_it_is(seed: int = 0) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        controllers = await connect_to_controller(1)
        apis = await controllers.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        told = {each.api_key for each in apis.api_keys}
        assert 62 in told and 3 not in told, "it registers brokers, and knows no Metadata"
        described = await controllers.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2), 1
        )
        assert [(each.broker_id, each.port) for each in described.brokers] == [(1, CONTROLLER_PORT)]
        assert described.controller_id == 1

        clients = await cluster.connect(2)
        apis = await clients.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        told = {each.api_key for each in apis.api_keys}
        assert 3 in told and 62 not in told
        described = await clients.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1), 1
        )
        assert sorted(each.broker_id for each in described.brokers) == [2, 3], "a controller is no broker"
        assert described.controller_id in (2, 3), "requests to the controller go through any broker"

    with Cluster(seed, nodes=3, controllers=1) as cluster:
        cluster.live(story)


def test_a_broker_is_not_ready_without_a_controller_nor_is_a_controller_without_a_majority() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        cluster.nodes[1].crash()
        cluster.nodes[2].crash()
        for node_id in (3, 4):
            broker = cluster.nodes[node_id].broker
            assert broker is not None
            await cluster.until(lambda broker=broker: bool(broker.readiness.not_ready()), "it says so", 30)  # type: ignore[misc]
        cluster.nodes[1].boot()
        cluster.nodes[2].boot()
        await asyncio.sleep(1)
        await cluster.settled()

    with Cluster(4, nodes=4, controllers=3) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("seed", range(4))
def test_brokers_are_told_in_the_order_of_their_ids_whoever_registered_first(seed: int) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        for node_id in cluster.nodes:
            client = await cluster.connect(node_id)
            told: list[int] = []
            while len(told) < len(cluster.nodes):  # one may not be unfenced yet
                await asyncio.sleep(0.1)
                told = [each.node_id for each in (await client.ask(MetadataRequest(topics=[]), 12)).brokers]
            assert told == [1, 2, 3]

    with Cluster(seed) as cluster:
        cluster.live(story)
