"""A producer that repeats its request is refused from the moment when an ACL takes its permission."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import ProduceResponse
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import ANONYMOUS
from tests.support.node import Client, Node, batch, produce_request, serve_and

NAME = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
DENIED = AclBinding(
    ResourceKind.TOPIC, "t", PatternType.LITERAL, str(ANONYMOUS), "*", AclOperation.WRITE, PermissionType.DENY
)
ENTRY = bytes(16)


async def codes(client: Client, count: int) -> list[int]:
    found = []
    for _ in range(count):
        answer = await client.ask(produce_request("t", batch("a")), 9)
        assert isinstance(answer, ProduceResponse)
        found.append(answer.responses[0].partition_responses[0].error_code)
    return found


@pytest.mark.parametrize("logs_allowed", [False, True])
def test_a_repeated_produce_is_refused_as_soon_as_an_acl_denies_it(logs_allowed: bool) -> None:
    async def story(node: Node) -> None:
        await (await node.connect()).create("t")
        authorizer = node.broker.security.authorizer
        assert authorizer is not None
        client = await node.connect()
        assert await codes(client, 5) == [ErrorCode.NONE] * 5
        for _ in range(2):
            authorizer.apply_changes({ENTRY: DENIED})
            assert await codes(client, 2) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
            authorizer.apply_changes({ENTRY: None})
            assert await codes(client, 4) == [ErrorCode.NONE] * 4

    serve_and(
        story,
        authorizer_class_name=NAME,
        allow_everyone_if_no_acl_found="true",
        moldau_audit_log_allowed=str(logs_allowed).lower(),
    )
