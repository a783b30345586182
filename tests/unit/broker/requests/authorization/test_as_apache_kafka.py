"""Particulars of refusals and permissions that the scenario `acls` of tests/conformance has found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.requests.authorization import group_rules, topic_rules
from broker.requests.authorization.cluster_rules import no_credentials_described
from broker.requests.authorization.visible_topics import operations_on, visible_topics
from kraft.image.topics import TopicsImage
from protocol.access import AclOperation
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequestTopic
from security.access import ResourceKind
from security.acl.authorizer import AclAccess, Authorizer, AuthorizerSettings
from security.acl.bindings import AclBinding, PatternType, PermissionType
from security.principal import Principal
from tests.security.acl_decisions import Silent


def access_of(*bindings: AclBinding) -> AclAccess:
    authorizer = Authorizer(AuthorizerSettings(), Silent())
    authorizer.changed({number.to_bytes(16, "big"): each for number, each in enumerate(bindings)})
    authorizer.loaded()
    return authorizer.access(Principal("User", "alice"), "192.0.2.7")


def on_topic(operation: AclOperation, name: str) -> AclBinding:
    where = (ResourceKind.TOPIC, name, PatternType.LITERAL, "User:alice", "*")
    return AclBinding(*where, operation, PermissionType.ALLOW)


GROUP, SHARE, UNKNOWN_TYPE = 0, 2, 3


@pytest.mark.parametrize(
    ("key_type", "version", "is_refused_to_all"),
    [
        (GROUP, 3, False),
        (GROUP, 6, False),
        (SHARE, 3, True),
        (SHARE, 5, True),
        (SHARE, 6, False),
        (UNKNOWN_TYPE, 3, True),
        (UNKNOWN_TYPE, 6, True),
        (-1, 6, True),
    ],
)
def test_a_type_of_keys_that_a_version_does_not_have_needs_no_permission_to_be_refused(
    key_type: int, version: int, is_refused_to_all: bool
) -> None:
    """The handler answers INVALID_REQUEST: CLUSTER_AUTHORIZATION_FAILED would tell a client to ask for a right."""
    seen: list[list[str]] = []

    def answer(context: object, request: Any) -> object:
        seen.append([*request.coordinator_keys, *request.key])
        return SimpleNamespace(coordinators=[])

    keys = ["a", "b"] if version >= 4 else []
    request = FindCoordinatorRequest(key="" if keys else "a", key_type=key_type, coordinator_keys=keys)
    context = SimpleNamespace(access=access_of(), version=version)
    group_rules.find_coordinator(cast("Any", None), cast("Any", context), request, answer)
    assert any(seen) is is_refused_to_all


def test_the_topic_of_the_metadata_log_is_refused_by_the_controller_and_not_by_acls() -> None:
    asked: list[str] = []

    def answer(context: object, request: object) -> object:
        assert isinstance(request, CreateTopicsRequest)
        asked.extend(each.name for each in request.topics)
        return CreateTopicsResponse()

    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("__cluster_metadata", "mine")
    ]
    context = SimpleNamespace(access=access_of())
    request = CreateTopicsRequest(topics=topics)
    response = cast("Any", topic_rules.create_topics(cast("Any", None), cast("Any", context), request, answer))
    assert asked == ["__cluster_metadata"]
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("mine", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ]


def test_an_invalid_name_that_would_be_created_needs_the_permission_to_create_it() -> None:
    wishes = [MetadataRequestTopic(name="bad/name")]
    describes, creates = on_topic(AclOperation.DESCRIBE, "bad/name"), on_topic(AclOperation.CREATE, "bad/name")
    (denied,) = visible_topics(access_of(describes), TopicsImage(), wishes, creates=True).denied
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for access, is_created in ((access_of(describes), False), (access_of(describes, creates), True)):
        assert not visible_topics(access, TopicsImage(), wishes, creates=is_created).denied


def test_a_topic_that_is_not_there_has_authorized_operations() -> None:
    access = access_of(on_topic(AclOperation.READ, "none"))
    told = operations_on(access, TopicsImage(), [MetadataRequestTopic(name="none")])
    assert told == {"none": 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE}


def test_refused_credentials_have_one_result_a_user_without_its_name() -> None:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="a"), UserName(name="b")])
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = no_credentials_described(cast("Any", SimpleNamespace()), request, error)
    assert response.error_code == error
    assert [(each.user, each.error_code) for each in response.results] == [("", error), ("", error)]
    everybody = DescribeUserScramCredentialsRequest(users=None)
    assert no_credentials_described(cast("Any", SimpleNamespace()), everybody, error).results == []
