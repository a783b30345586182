"""The way of an erase order into a log: settings, rights, what the leader writes into it, and its line of the audit."""

from __future__ import annotations

import logging

import pytest

from moldau.protocol.erase_orders import Run, erase_order_batch, new_erase_order
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import ANONYMOUS
from moldau.storage.log.pending_orders import erase_order_at
from tests.support.node import Client, Node, batch, produce_request, serve_and

NAME = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ENTRY = bytes(16)
HASH = b"h" * 32


async def sent(client: Client, *runs: Run, topic: str = "t", acks: int = -1) -> PartitionProduceResponse:
    order = new_erase_order(bytes(range(16)), HASH, runs)
    order.principal = "User:somebody-else"
    reply = await client.ask(produce_request(topic, erase_order_batch(order, 5), acks=acks), 9)
    assert isinstance(reply, ProduceResponse)
    answer: PartitionProduceResponse = reply.responses[0].partition_responses[0]
    return answer


def denied(kind: ResourceKind, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, str(ANONYMOUS), "*", operation, PermissionType.DENY)


def allowed(number: int, kind: ResourceKind, name: str) -> tuple[bytes, AclBinding]:
    binding = AclBinding(kind, name, PatternType.LITERAL, str(ANONYMOUS), "*", AclOperation.ALL, PermissionType.ALLOW)
    return bytes([number] * 16), binding


def test_the_leader_writes_the_principal_and_the_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.ask(produce_request("t", batch("a", "b")), 9)
        answer = await sent(client, Run(0, 0))
        assert (answer.error_code, answer.base_offset) == (0, 2)
        partition = node.broker.replicas.get("t", 0)
        assert partition is not None
        order = erase_order_at(partition.log.segments, 2)
        assert order is not None
        assert order.principal == "User:ANONYMOUS"
        assert abs(order.asked_ms - node.broker.environment.wall_ms()) < 1000

    serve_and(story, moldau_erase_enable="true")
    (line,) = [each.getMessage() for each in caplog.records if "ordered the erasure" in each.getMessage()]
    assert line.startswith("User:ANONYMOUS ordered the erasure of 1 runs of offsets in t-0, as order 000102")
    assert line.endswith("NONE")


def test_it_takes_rights_of_its_own() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.ask(produce_request("t", batch("a")), 9)
        authorizer = node.broker.security.authorizer
        partition = node.broker.replicas.get("t", 0)
        assert authorizer is not None and partition is not None
        everything = (allowed(1, ResourceKind.TOPIC, "t"), allowed(2, ResourceKind.CLUSTER, "kafka-cluster"))
        authorizer.apply_changes(dict(everything))
        for binding, error, said in (
            (denied(ResourceKind.TOPIC, "t", AclOperation.DELETE), ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no DELETE"),
            (
                denied(ResourceKind.CLUSTER, "kafka-cluster", AclOperation.ALTER),
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "no ALTER on the cluster",
            ),
            (denied(ResourceKind.TOPIC, "t", AclOperation.WRITE), ErrorCode.TOPIC_AUTHORIZATION_FAILED, ""),
        ):
            authorizer.apply_changes({ENTRY: binding})
            answer = await sent(client, Run(0, 0))
            assert answer.error_code == error
            assert said in (answer.error_message or "")
            assert partition.log.end_offset == 1
            authorizer.apply_changes({ENTRY: None})
        assert (await sent(client, Run(0, 0))).error_code == 0

    serve_and(story, moldau_erase_enable="true", authorizer_class_name=NAME, allow_everyone_if_no_acl_found="true")


def test_what_is_refused() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.create("small", max_message_bytes=200)
        for topic in ("t", "small"):
            await client.ask(produce_request(topic, batch(*"abcdefghi")), 9)
        assert (await sent(client, Run(0, 0), acks=1)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert (await sent(client, Run(0, 9))).error_code == ErrorCode.INVALID_RECORD
        many = await sent(client, *(Run(each, each) for each in range(0, 9, 2)), topic="small")
        assert many.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await sent(client, Run(0, 0), topic="missing")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    serve_and(story, moldau_erase_enable="true")


def test_repeated_orders_are_orders_each_time() -> None:
    """A produce that repeats the previous one takes a shorter way, which is not for orders."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.ask(produce_request("t", batch("a")), 9)
        assert [(await sent(client, Run(0, 0))).error_code for _ in range(4)] == [0] * 4

    serve_and(story, moldau_erase_enable="true")
