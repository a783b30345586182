"""A node with an authorizer: what its clients may do follows its ACLs, and an audit log says what they may not."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import CLUSTER_NAME
from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from moldau.security.acl.bindings import PatternType, PermissionType
from moldau.security.principal import ANONYMOUS, Principal
from tests.support.node import (
    CONTROLLER_PORT,
    Client,
    Closed,
    Node,
    Story,
    batch,
    fetch_request,
    produce_request,
    serve_and,
)

AUTHORIZER: Final[dict[str, Any]] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
ALICE: Final = Principal("User", "alice")
FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def authorized(story: Story) -> None:
    """Listeners are PLAINTEXT: the anonymous client is the administrator."""
    serve_and(story, **AUTHORIZER)


async def connect_as(node: Node, principal: Principal, port: int = 9092) -> Client:
    """A connection whose client has authenticated."""
    listeners = [each for each in node.broker.listeners if each.port == port]
    before = {connection for each in listeners for connection in each.connections}
    client = await node.connect(port)
    while not (new := [each for listener in listeners for each in listener.connections if each not in before]):
        await asyncio.sleep(0.001)
    (connection,) = new
    connection.access = node.broker.security.access_of(principal, connection.client_host)
    return client


def acl(
    operation: Op,
    kind: Kind,
    name: str,
    permission: PermissionType = PermissionType.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=str(ALICE),
        host="*",
        operation=operation,
        permission_type=permission,
    )


async def permit(admin: Client, *creations: AclCreation) -> None:
    reply = await admin.ask(CreateAclsRequest(creations=list(creations)), 3)
    assert [each.error_code for each in reply.results] == [0] * len(creations)
    await asyncio.sleep(0.01)


async def remove_all(admin: Client, name: str) -> None:
    every = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=name,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    await admin.ask(DeleteAclsRequest(filters=[every]), 3)
    await asyncio.sleep(0.01)


def test_a_producer_needs_write_at_each_request() -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        await admin.create("orders")
        assert (await alice.produce("orders", batch("a"))).error_code == FAILED
        await permit(admin, acl(Op.WRITE, Kind.TOPIC, "orders"))
        for _ in range(4):  # the hook answers from the third one on
            assert (await alice.produce("orders", batch("a"))).error_code == 0
        await permit(admin, acl(Op.WRITE, Kind.TOPIC, "ord", PermissionType.DENY, PatternType.PREFIXED))
        assert (await alice.produce("orders", batch("b"))).error_code == FAILED
        assert (await alice.produce("none", batch("b"))).error_code == FAILED, "no existence is told"
        alice.send(produce_request("orders", batch("b"), acks=0), 9, is_answered=False)
        with pytest.raises(Closed):
            await alice.ask(MetadataRequest(topics=[]), 12)
        assert (await admin.fetch("orders")).high_watermark == 4

    authorized(story)


def test_cve_2018_17196_a_transactional_flag_needs_the_transactional_id() -> None:
    """A flag in one batch among others, without a transactional id or with one of another client."""

    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        await admin.create("orders", 2)
        await permit(admin, acl(Op.WRITE, Kind.TOPIC, "orders"))
        flagged = batch("x", is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
        for id_ in (None, "theirs"):
            request = produce_request("orders", batch("a"))
            request.transactional_id = id_
            request.topic_data += produce_request("orders", flagged, partition=1).topic_data
            reply = await alice.ask(request, 9)
            codes = {each.error_code for topic in reply.responses for each in topic.partition_responses}
            assert codes == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert (await admin.fetch("orders")).high_watermark == 0

    authorized(story)


def test_cve_2018_1288_a_client_that_says_it_is_a_follower_reads_nothing() -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        await admin.create("orders")
        await admin.produce("orders", batch("a"))
        await permit(admin, acl(Op.READ, Kind.TOPIC, "orders"))
        request = fetch_request([("orders", 0, 0)])
        assert (await alice.ask(request, 12)).responses[0].partitions[0].error_code == 0
        request.replica_id = 1
        (answer,) = (await alice.ask(request, 12)).responses[0].partitions
        assert (answer.error_code, answer.records) == (FAILED, b"")

    authorized(story)


def test_cve_2024_27309_an_acl_that_goes_takes_no_other_with_it() -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        await admin.create("orders")
        await permit(
            admin,
            acl(Op.WRITE, Kind.TOPIC, "orders"),
            acl(Op.READ, Kind.TOPIC, "orders"),
            acl(Op.WRITE, Kind.TOPIC, "o", PermissionType.DENY, PatternType.PREFIXED),
            acl(Op.WRITE, Kind.TOPIC, "or", PermissionType.DENY, PatternType.PREFIXED),
        )
        await remove_all(admin, "or")
        assert (await alice.produce("orders", batch("a"))).error_code == FAILED, "the other DENY is still there"
        await remove_all(admin, "o")
        assert (await alice.produce("orders", batch("a"))).error_code == 0

    authorized(story)


def test_a_fetch_session_ends_with_the_permission() -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        id_ = await admin.create("orders")
        await admin.produce("orders", batch("a"))
        assert (await alice.ask(fetch_request([(id_, 0, 0)]), 13)).responses[0].partitions[0].error_code == FAILED
        await permit(admin, acl(Op.READ, Kind.TOPIC, "*"))
        opened = await alice.ask(fetch_request([(id_, 0, 0)], session=(0, 0)), 13)
        assert opened.responses[0].partitions[0].error_code == 0
        await remove_all(admin, "*")
        later = await alice.ask(fetch_request([], session=(opened.session_id, 1), max_wait_ms=60_000), 13)
        (answer,) = later.responses[0].partitions
        assert (answer.error_code, answer.records) == (FAILED, b"")
        unknown = await alice.ask(fetch_request([(b"\7" * 16, 0, 0)]), 13)
        assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    authorized(story)


def test_metadata_shows_what_may_be_described() -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        hidden = await admin.create("hidden")
        await admin.create("orders")
        for version in (0, 1, 12):
            every = await alice.ask(MetadataRequest(topics=None if version else []), version)
            assert every.topics == []
        await permit(admin, acl(Op.READ, Kind.TOPIC, "ord", pattern=PatternType.PREFIXED))
        every = await alice.ask(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
        assert [(each.name, each.topic_authorized_operations) for each in every.topics] == [
            ("orders", 1 << Op.READ | 1 << Op.DESCRIBE)
        ]
        wishes = [MetadataRequestTopic(name=name) for name in ("hidden", "none", "orders-2")]
        named = await alice.ask(MetadataRequest(topics=[*wishes, MetadataRequestTopic(name=None, topic_id=hidden)]), 12)
        told = {(each.name, each.topic_id, each.error_code) for each in named.topics}
        assert told == {
            ("hidden", ZERO_UUID, FAILED),
            ("none", ZERO_UUID, FAILED),
            ("orders-2", ZERO_UUID, FAILED),  # it may be described, and not created
            (None, hidden, FAILED),
        }
        await permit(admin, acl(Op.CREATE, Kind.TOPIC, "orders-2"))
        await alice.ask(MetadataRequest(topics=wishes, allow_auto_topic_creation=True), 12)
        await asyncio.sleep(1)
        every = await admin.ask(MetadataRequest(topics=None), 12)
        assert {each.name for each in every.topics} == {"hidden", "orders", "orders-2"}

    authorized(story)


def test_the_cluster_tells_its_operations_to_those_that_may_describe_it() -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await alice.ask(request, 1)).cluster_authorized_operations == 0
        await permit(admin, acl(Op.ALTER, Kind.CLUSTER, CLUSTER_NAME))
        reply = await alice.ask(request, 1)
        assert reply.cluster_authorized_operations == 1 << Op.ALTER | 1 << Op.DESCRIBE

    authorized(story)


@pytest.mark.parametrize("port", [9092, CONTROLLER_PORT], ids=["forwarded", "controller"])
def test_the_controller_asks_for_the_principal_of_the_client(port: int) -> None:
    """Whether the client's broker hands the request on, or the client connects to the controller itself."""

    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE, port)

        def creation(name: str) -> CreateTopicsRequest:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            return CreateTopicsRequest(topics=[topic], timeout_ms=1000)

        denied = await alice.ask(creation("orders"), 7)
        assert [each.error_code for each in denied.topics] == [FAILED]
        refused = await alice.ask(CreateAclsRequest(creations=[acl(Op.ALL, Kind.TOPIC, "*")]), 3)
        assert [each.error_code for each in refused.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        quorum = await alice.ask(DescribeQuorumRequest(topics=[]), 2)
        assert quorum.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await permit(admin, acl(Op.CREATE, Kind.TOPIC, "orders"))
        (created,) = (await alice.ask(creation("orders"), 7)).topics
        assert (created.error_code, created.topic_config_error_code, created.num_partitions) == (0, FAILED, -1)
        by_id = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=created.topic_id)], timeout_ms=1000)
        (kept,) = (await alice.ask(by_id, 6)).responses
        assert (kept.name, kept.error_code) == (None, FAILED)
        described = await admin.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)
        assert described.topics[0].error_code == 0

    authorized(story)


def test_acls_are_described_to_those_that_may_describe_the_cluster() -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        await permit(admin, acl(Op.READ, Kind.TOPIC, "orders"))
        every = DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        denied = await alice.ask(every, 3)
        assert (denied.error_code, denied.resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
        (resource,) = (await admin.ask(every, 3)).resources
        assert [each.principal for each in resource.acls] == [str(ALICE)]

    authorized(story)


def test_a_denied_request_leaves_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        admin, alice = await node.connect(), await connect_as(node, ALICE)
        await admin.create("orders")
        await alice.produce("orders", batch("a"))

    with caplog.at_level(logging.INFO, "moldau.audit"):
        authorized(story)
    (line,) = (json.loads(each.message) for each in caplog.records if each.name == "moldau.audit")
    del line["time"], line["host"]
    assert line == {
        "principal": "User:alice",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "orders",
        "decision": "DENIED",
    }


def test_without_an_authorizer_nothing_is_asked() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("orders")
        assert (await client.produce("orders", batch("a"))).error_code == 0
        (listener,) = (each for each in node.broker.listeners if each.port == 9092)
        (connection,) = listener.connections
        assert connection.access.is_unrestricted and connection.access.principal == ANONYMOUS

    serve_and(story)
