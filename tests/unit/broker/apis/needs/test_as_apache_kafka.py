"""Particulars of refusals and permissions that the scenario `acls` of tests/conformance has found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.apis.groups import find_coordinator
from moldau.broker.apis.topics import create_topics, delete_topics
from moldau.broker.apis.topics.metadata import operations_on, visible_topics
from moldau.kraft.image.topics import TopicsDelta, TopicsImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequestTopic
from moldau.protocol.records.metadata import TopicRecord
from moldau.protocol.refusals import refused
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.authorizer import AclAccess, Authorizer, AuthorizerSettings
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import Principal
from tests.security.acl_decisions import Silent


def access_of(*bindings: AclBinding) -> AclAccess:
    authorizer = Authorizer(AuthorizerSettings(), Silent())
    authorizer.apply_changes({number.to_bytes(16, "big"): each for number, each in enumerate(bindings)})
    authorizer.on_metadata_loaded()
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
    find_coordinator.acl_rule(cast("Any", None), cast("Any", context), request, answer)
    assert any(seen) is is_refused_to_all


def test_topics_that_no_client_may_create_are_refused_by_the_controller_and_not_by_acls() -> None:
    asked: list[str] = []

    def answer(context: object, request: object) -> object:
        assert isinstance(request, CreateTopicsRequest)
        asked.extend(each.name for each in request.topics)
        return CreateTopicsResponse()

    names = ("__cluster_metadata", "mine", "twice", "twice")
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    context = SimpleNamespace(access=access_of())
    request = CreateTopicsRequest(topics=topics)
    response = cast("Any", create_topics.acl_rule(cast("Any", None), cast("Any", context), request, answer))
    assert asked == ["__cluster_metadata", "twice", "twice"]
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("mine", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ]


def test_an_invalid_name_that_would_be_created_needs_the_permission_to_create_it() -> None:
    wishes = [MetadataRequestTopic(name="bad/name")]
    describes, creates = on_topic(AclOperation.DESCRIBE, "bad/name"), on_topic(AclOperation.CREATE, "bad/name")
    _, (denied,) = visible_topics(access_of(describes), TopicsImage(), wishes, creates=True)
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for access, is_created in ((access_of(describes), False), (access_of(describes, creates), True)):
        assert not visible_topics(access, TopicsImage(), wishes, creates=is_created)[1]


def test_a_topic_that_is_not_there_has_authorized_operations() -> None:
    access = access_of(on_topic(AclOperation.READ, "none"))
    told = operations_on(access, TopicsImage(), [MetadataRequestTopic(name="none")])
    assert told == {"none": 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE}


def test_refused_credentials_have_one_result_a_user_without_its_name() -> None:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="a"), UserName(name="b")])
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = refused(request, 0, error)
    assert response.error_code == error
    assert [(each.user, each.error_code) for each in response.results] == [("", error), ("", error)]
    everybody = DescribeUserScramCredentialsRequest(users=None)
    assert refused(everybody, 0, error).results == []


def denied_on_topic(operation: AclOperation, name: str) -> AclBinding:
    return on_topic(operation, name)._replace(permission=PermissionType.DENY)


TOPIC_ID = b"\1" * 16
UNKNOWN, FAILED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
DELETE, DESCRIBE = AclOperation.DELETE, AclOperation.DESCRIBE


class Deletion:
    """DeleteTopics of one topic that exists, `here`, and one that does not, `gone`, under some ACLs."""

    def __init__(self, *bindings: AclBinding, is_enabled: bool = True) -> None:
        delta = TopicsDelta(TopicsImage())
        delta.replay_topic(TopicRecord(name="here", topic_id=TOPIC_ID))
        topics = delta.apply()
        config = SimpleNamespace(flag=lambda name: is_enabled)
        image = SimpleNamespace(image=SimpleNamespace(topics=topics))
        self._services = SimpleNamespace(config=config, cluster=image)
        self._context = SimpleNamespace(access=access_of(*bindings))
        self.passed_on: list[str | None] = []
        """What reached the controller."""

    def _answer(self, context: object, request: object) -> object:
        assert isinstance(request, DeleteTopicsRequest)
        self.passed_on += [*request.topic_names, *(each.name for each in request.topics)]
        return DeleteTopicsResponse()

    def refusals(self, *, names: list[str] | None = None, topics: list[DeleteTopicState] | None = None) -> Any:
        request = DeleteTopicsRequest(topic_names=names or [], topics=topics or [], timeout_ms=1000)
        response = delete_topics.acl_rule(
            cast("Any", self._services), cast("Any", self._context), request, self._answer
        )
        return [(each.name, each.error_code) for each in cast("DeleteTopicsResponse", response).responses]


@pytest.mark.parametrize("is_by_state", [False, True])
@pytest.mark.parametrize(
    ("rights", "here", "gone"),
    [
        ([], FAILED, FAILED),
        ([(DESCRIBE, True)], FAILED, UNKNOWN),
        ([(DELETE, True)], None, UNKNOWN),  # DELETE implies DESCRIBE.
        ([(DELETE, True), (DESCRIBE, False)], FAILED, FAILED),
        ([(DESCRIBE, True), (DELETE, False)], FAILED, UNKNOWN),
    ],
)
def test_a_topic_is_deleted_by_name_with_both_rights_and_is_missed_with_the_right_to_describe_it(
    rights: list[tuple[AclOperation, bool]], here: ErrorCode | None, gone: ErrorCode, is_by_state: bool
) -> None:
    bindings = [
        (on_topic if is_allowed else denied_on_topic)(operation, name)
        for operation, is_allowed in rights
        for name in ("here", "gone")
    ]
    deletion = Deletion(*bindings)
    names = ["here", "gone"]
    states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    refusals = deletion.refusals(topics=states) if is_by_state else deletion.refusals(names=names)
    assert refusals == [(name, error) for name, error in zip(names, (here, gone), strict=True) if error is not None]
    assert deletion.passed_on == ([] if here else ["here"])


@pytest.mark.parametrize(
    ("bindings", "told"),
    [
        ([], [(None, FAILED)]),
        ([on_topic(DESCRIBE, "here")], [("here", FAILED)]),
        ([on_topic(DELETE, "here"), denied_on_topic(DESCRIBE, "here")], []),
    ],
)
def test_a_topic_is_deleted_by_id_with_the_right_to_delete_it(bindings: list[AclBinding], told: list[object]) -> None:
    deletion = Deletion(*bindings)
    assert deletion.refusals(topics=[DeleteTopicState(name=None, topic_id=TOPIC_ID)]) == told
    assert len(deletion.passed_on) == (not told)


def test_what_the_controller_refuses_to_every_client_needs_no_right() -> None:
    nowhere = b"\7" * 16
    states = [DeleteTopicState(name=None, topic_id=nowhere), DeleteTopicState(name="here", topic_id=TOPIC_ID)]
    for deletion, names in ((Deletion(), ["here", "here"]), (Deletion(is_enabled=False), ["here", "gone"])):
        assert deletion.refusals(names=names) == []
        assert deletion.passed_on == names
    unclear = Deletion()
    assert unclear.refusals(topics=states) == []
    assert unclear.passed_on == [None, "here"]
    twice = Deletion()
    assert twice.refusals(topics=[DeleteTopicState(name=None, topic_id=TOPIC_ID)] * 2) == []
    assert twice.passed_on == [None, None]
