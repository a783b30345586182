"""APIs of features that this node does not have: each answers as Apache Kafka 4.3.1 does if they are off.

The expected answers were observed there, on a node without an authorizer, over PLAINTEXT.
"""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsRequest
from moldau.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
)
from moldau.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from moldau.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.node import CONTROLLER_PORT, PORT, Node, serve_and

FILTER = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)
CREATION = AclCreation(
    resource_type=2,
    resource_name="t",
    resource_pattern_type=3,
    principal="User:x",
    host="*",
    operation=3,
    permission_type=3,
)
DELETION = DeleteAclsFilter(
    resource_type_filter=2,
    resource_name_filter="t",
    pattern_type_filter=3,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


@pytest.mark.parametrize("port", [PORT, CONTROLLER_PORT])
def test_without_an_authorizer_acls_are_refused(port: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect(port)
        assert await client.ask(FILTER, 3) == DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
        created = await client.ask(CreateAclsRequest(creations=[CREATION, CREATION]), 3)
        refused = AclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
        )
        assert created.results == [refused, refused]
        deleted = await client.ask(DeleteAclsRequest(filters=[DELETION]), 1)
        assert deleted.filter_results == [
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.")
        ]
        assert (await client.ask(DeleteAclsRequest(filters=[]), 3)).filter_results == []

    serve_and(story)


def component(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([], ErrorCode.NONE, ""),
        ([component("user", 2)], ErrorCode.NONE, ""),
        ([component("user", 0, "x")], ErrorCode.NONE, ""),
        ([component("client-id", 1)], ErrorCode.NONE, ""),
        ([component("nope", 2)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type nope"),
        ([component("", 2)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        ([component("user", 5)], ErrorCode.INVALID_REQUEST, "Unknown match type 5"),
        (
            [component("user", 2), component("user", 2)],
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        (
            [component("ip", 2), component("user", 2)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component.",
        ),
        (
            [component("user", 0)],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [component("user", 1, "x")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
    ],
)
def test_no_quota_is_set_and_bad_filters_are_refused(
    components: list[ComponentData], error: ErrorCode, message: str
) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        answer = await client.ask(DescribeClientQuotasRequest(components=components, strict=False), 1)
        entries: list[EntryData] | None = [] if error is ErrorCode.NONE else None
        assert answer == DescribeClientQuotasResponse(error_code=error, error_message=message, entries=entries)

    serve_and(story)


def test_no_user_has_scram_credentials() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        every_user: tuple[list[UserName] | None, ...] = (None, [])
        for named in every_user:
            answer = await client.ask(DescribeUserScramCredentialsRequest(users=named), 0)
            assert (answer.error_code, answer.results) == (ErrorCode.NONE, [])
        users = [UserName(name=name) for name in ("x", "twice", "twice")]
        answer = await client.ask(DescribeUserScramCredentialsRequest(users=users), 0)
        assert answer.results == [
            DescribeUserScramCredentialsResult(
                user="x",
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message="Attempt to describe a user credential that does not exist: x",
            ),
            DescribeUserScramCredentialsResult(
                user="twice",
                error_code=ErrorCode.DUPLICATE_RESOURCE,
                error_message="Cannot describe SCRAM credentials for the same user twice in a single request: twice",
            ),
        ]

    serve_and(story)


@pytest.mark.parametrize(
    ("path", "topic", "index", "error"),
    [
        ("/nope", "t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/nope", "nosuch", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("relative", "t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/data/", "t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/data", "t", 0, ErrorCode.NONE),
        ("/data", "t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("/data", "nosuch", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("/data", "__cluster_metadata", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_replica_may_stay_in_its_log_directory(path: str, topic: str, index: int, error: ErrorCode) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        wish = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])])
        answer = await client.ask(AlterReplicaLogDirsRequest(dirs=[wish]), 2)
        (result,) = answer.results
        (partition,) = result.partitions
        assert (result.topic_name, partition.partition_index, partition.error_code) == (topic, index, error)

    serve_and(story)


def test_delegation_tokens_are_refused_where_clients_are_not_authenticated() -> None:
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    async def story(node: Node) -> None:
        client = await node.connect()
        request = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="x", renewers=[], max_lifetime_ms=-1
        )
        assert await client.ask(request, 3) == CreateDelegationTokenResponse(
            error_code=refused,
            principal_type="User",
            principal_name="x",
            token_requester_principal_type="User",
            token_requester_principal_name="ANONYMOUS",
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
            token_id="",
            hmac=b"",
        )
        answer = await client.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 1)
        assert (answer.error_code, answer.principal_name) == (refused, "ANONYMOUS")
        expired = await client.ask(ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1), 2)
        assert expired == ExpireDelegationTokenResponse(error_code=refused, expiry_timestamp_ms=-1)
        renewed = await client.ask(RenewDelegationTokenRequest(hmac=b"abc", renew_period_ms=-1), 1)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (refused, -1)
        described = await client.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert (described.error_code, described.tokens) == (refused, [])

    serve_and(story)
