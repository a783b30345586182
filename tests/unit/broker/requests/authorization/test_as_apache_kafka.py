"""Particulars of refusals and permissions that the scenario `acls` of tests/conformance has found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from broker.requests.authorization.cluster_rules import no_credentials_described
from broker.requests.authorization.visible_topics import operations_on
from kraft.image.topics import TopicsImage
from protocol.access import AclOperation
from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from protocol.messages.metadata import MetadataRequestTopic
from security.access import ResourceKind
from security.acl.authorizer import Authorizer, AuthorizerSettings
from security.acl.bindings import AclBinding, PatternType, PermissionType
from security.principal import Principal
from tests.security.acl_decisions import Silent


def test_a_topic_that_is_not_there_has_authorized_operations() -> None:
    authorizer = Authorizer(AuthorizerSettings(), Silent())
    where = (ResourceKind.TOPIC, "none", PatternType.LITERAL, "User:alice", "*")
    authorizer.changed({b"1": AclBinding(*where, AclOperation.READ, PermissionType.ALLOW)})
    authorizer.loaded()
    access = authorizer.access(Principal("User", "alice"), "192.0.2.7")
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
