"""Three nodes with an authorizer: the principal of a client reaches the controller, and ACLs reach every node."""

from __future__ import annotations

import asyncio

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from moldau.security.acl.bindings import PatternType, PermissionType
from tests.simulation.test_access import ALICE, AUTHORIZER, acl, permit, remove_all
from tests.support.cluster import Cluster, ClusterNode
from tests.support.node import Client, batch

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


async def led(cluster: Cluster) -> tuple[ClusterNode, list[ClusterNode]]:
    """The node that leads the quorum, and the others, once all serve."""
    while True:
        leader = cluster.leader_of_quorum()
        live = [node for node in cluster.nodes.values() if node.is_up]
        if leader is not None and all(
            node.broker is not None and not node.broker.readiness.not_ready() for node in live
        ):
            return leader, [node for node in live if node is not leader]
        await asyncio.sleep(0.1)


async def connect_as_alice(cluster: Cluster, node: ClusterNode) -> Client:
    assert node.broker is not None
    (listener,) = (each for each in node.broker.listeners if each.name == "PLAINTEXT")
    before = set(listener.connections)
    client = await cluster.connect(node.id)
    while not (new := set(listener.connections) - before):
        await asyncio.sleep(0.001)
    (connection,) = new
    connection.access = node.broker.security.access_of(ALICE, connection.client_host)
    return client


def test_the_principal_travels_in_the_envelope() -> None:
    async def story(cluster: Cluster) -> None:
        leader, others = await led(cluster)
        admin = await cluster.connect(leader.id)
        alice = await connect_as_alice(cluster, others[0])
        (denied,) = (await alice.ask(creation("orders"), 7)).topics
        assert denied.error_code == DENIED
        await permit(admin, acl(Op.CREATE, Kind.TOPIC, "orders"))
        (created,) = (await alice.ask(creation("orders"), 7)).topics
        assert (created.error_code, created.topic_config_error_code) == (0, DENIED)

    with Cluster(1, **AUTHORIZER) as cluster:
        cluster.live(story)


def test_acls_hold_on_every_node_and_over_a_failover_of_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        leader, _ = await led(cluster)
        admin = await cluster.connect(leader.id)
        await permit(
            admin,
            acl(Op.WRITE, Kind.TOPIC, "orders"),
            acl(Op.WRITE, Kind.TOPIC, "ord", PermissionType.DENY, PatternType.PREFIXED),
        )
        await admin.ask(creation("orders"), 7)
        leader.crash()
        second, (third,) = await led(cluster)
        admin = await cluster.connect(second.id)
        for node in (second, third):
            alice = await connect_as_alice(cluster, node)
            assert (await alice.produce("orders", batch("a"))).error_code == DENIED
        await remove_all(admin, "ord")
        await asyncio.sleep(5)
        codes = set()
        for node in (second, third):
            alice = await connect_as_alice(cluster, node)
            codes.add((await alice.produce("orders", batch("a"), acks=1)).error_code)
        assert DENIED not in codes
        await remove_all(admin, "orders")
        await asyncio.sleep(5)
        for node in (second, third):
            alice = await connect_as_alice(cluster, node)
            assert (await alice.produce("orders", batch("a"))).error_code == DENIED

    with Cluster(2, **AUTHORIZER) as cluster:
        cluster.live(story)
