"""SCRAM credentials and client quotas through a node: altered by the controller, described from the image."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.security import describe_acls
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_client_quotas as altering
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from moldau.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from moldau.protocol.records.metadata import AccessControlEntryRecord
from moldau.security.access import Unrestricted
from moldau.security.quotas.entity import QuotaEntity
from moldau.security.quotas.filters import matches
from tests.support.node import Node, serve_and
from tests.support.short_answers import short_answers
from tests.unit.kraft.image.images import image_of, uuid


def test_credentials_are_described_without_keys() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for user, mechanism in (("bob", 2), ("alice", 2), ("alice", 1)):
            upsertion = ScramCredentialUpsertion(
                name=user, mechanism=mechanism, iterations=8192, salt=b"s", salted_password=b"p" * 32
            )
            altered = await client.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
            assert [(each.user, each.error_code) for each in altered.results] == [(user, 0)]
        described = await client.ask(DescribeUserScramCredentialsRequest(users=None), 0)
        both = [CredentialInfo(mechanism=1, iterations=8192), CredentialInfo(mechanism=2, iterations=8192)]
        assert [(each.user, each.credential_infos) for each in described.results] == [
            ("alice", both),
            ("bob", both[1:]),
        ]
        some = [UserName(name="bob"), UserName(name="no")]
        described = await client.ask(DescribeUserScramCredentialsRequest(users=some), 0)
        assert [each.error_code for each in described.results] == [0, ErrorCode.RESOURCE_NOT_FOUND]

    serve_and(story)


def test_quotas_are_described() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        entity = [altering.EntityData(entity_type="user", entity_name="alice")]
        change = altering.OpData(key="producer_byte_rate", value=1024.0, remove=False)
        entry = altering.RequestEntryData(entity=entity, ops=[change])
        altered = await client.ask(altering.AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
        assert [each.error_code for each in altered.entries] == [0]
        component = ComponentData(entity_type="user", match_type=0, match="alice")
        described = await client.ask(DescribeClientQuotasRequest(components=[component], strict=True), 1)
        assert described.entries is not None
        (found,) = described.entries
        assert [(part.entity_type, part.entity_name) for part in found.entity] == [("user", "alice")]
        assert [(each.key, each.value) for each in found.values] == [("producer_byte_rate", 1024.0)]

    serve_and(story)


ENTITIES = {
    "alice": QuotaEntity.from_parts([("user", "alice")]),
    "default": QuotaEntity.from_parts([("user", None)]),
    "both": QuotaEntity.from_parts([("user", "alice"), ("client-id", "c")]),
    "ip": QuotaEntity.from_parts([("ip", "10.0.0.1")]),
    "ips": QuotaEntity.from_parts([("ip", None)]),
}


@pytest.mark.parametrize(
    ("components", "found", "found_strictly"),
    [
        ([], set(ENTITIES), set()),
        ([("user", 2, None)], {"alice", "default", "both"}, {"alice", "default"}),
        ([("user", 1, None)], {"default"}, {"default"}),
        ([("user", 0, "alice")], {"alice", "both"}, {"alice"}),
        ([("user", 0, "alice"), ("client-id", 0, "c")], {"both"}, {"both"}),
        ([("client-id", 2, None)], {"both"}, set()),
        ([("ip", 2, None)], {"ip", "ips"}, {"ip", "ips"}),
        ([("ip", 0, "no such")], set(), set()),
    ],
)
def test_filters_match_as_in_apache_kafka(
    components: list[tuple[str, int, str | None]], found: set[str], found_strictly: set[str]
) -> None:
    parts = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    for is_strict, expected in ((False, found), (True, found_strictly)):
        assert {name for name, entity in ENTITIES.items() if matches(entity, parts, is_strict)} == expected


def acl(number: int, name: str, host: str) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=uuid(number),
        resource_type=2,
        resource_name=name,
        pattern_type=3,
        principal="User:a",
        host=host,
        operation=3,
        permission_type=3,
    )


def test_acls_are_described_by_their_patterns() -> None:
    image = image_of([acl(1, "t", "*"), acl(2, "t", "10.0.0.1"), acl(3, "u", "*")])
    services = SimpleNamespace(
        has_authorizer=True,
        cluster=SimpleNamespace(image=image),
        long_requests=short_answers(),
    )

    def described(name: str | None, kind: int = 1) -> object:
        request = DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        context = cast("Any", SimpleNamespace(access=Unrestricted()))
        response: Any = describe_acls.handle(cast("Any", services), context, request)
        found = {each.resource_name: sorted(entry.host for entry in each.acls) for each in response.resources}
        return found if not response.error_code else ErrorCode(response.error_code)

    assert described(None) == {"t": ["*", "10.0.0.1"], "u": ["*"]}
    assert described("u") == {"u": ["*"]}
    assert described("x") == {}
    assert described(None, kind=0) is ErrorCode.INVALID_REQUEST
