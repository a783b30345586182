"""Rules of the APIs about settings, log directories and other matters of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from moldau.broker.requests.authorization.rule import (
    Answer,
    ElementsRule,
    Need,
    Rule,
    change_response,
    cluster,
    group,
    needs_cluster,
    topic,
    with_field,
)
from moldau.broker.requests.own_resources import BROKER_LOGGER
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_configs import AlterConfigsResourceResponse as AlteredResource
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from moldau.protocol.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResult
from moldau.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.handlers.share_group_state import Request as StateRequest
    from moldau.broker.requests.services import Services

MESSAGES: Final = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
}


def need_of_settings(operation: AclOperation, element: object) -> Need:
    """The resource on which a permission is needed: the topic or group for its own settings, the cluster for all
    others.
    """
    resource = cast("DescribeConfigsResource", element)
    if resource.resource_type == ResourceType.TOPIC:
        return topic(operation, resource.resource_name)
    if resource.resource_type == ResourceType.GROUP:
        return group(operation, resource.resource_name)
    return cluster(operation)


def _refused_description(element: object, error: ErrorCode) -> DescribeConfigsResult:
    resource = cast("DescribeConfigsResource", element)
    return DescribeConfigsResult(
        error_code=error,
        error_message=MESSAGES[error],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refused_alteration(element: object, error: ErrorCode) -> AlteredResource:
    resource = cast("DescribeConfigsResource", element)
    return AlteredResource(
        error_code=error,
        error_message=MESSAGES[error],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refused_increment(element: object, error: ErrorCode) -> AlterConfigsResourceResponse:
    resource = cast("DescribeConfigsResource", element)
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=MESSAGES[error],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


DESCRIBE_CONFIGS: Rule = ElementsRule(
    "resources",
    "results",
    lambda element: need_of_settings(AclOperation.DESCRIBE_CONFIGS, element),
    _refused_description,
)
ALTER_CONFIGS: Rule = ElementsRule(
    "resources",
    "responses",
    lambda element: need_of_settings(AclOperation.ALTER_CONFIGS, element),
    _refused_alteration,
)
INCREMENTAL_ALTER_CONFIGS: Rule = ElementsRule(
    "resources",
    "responses",
    lambda element: need_of_settings(AclOperation.ALTER_CONFIGS, element),
    _refused_increment,
)


def alter_loggers(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """ALTER_CONFIGS on the cluster for the loggers of this broker; for all other resources the controller asks the
    ACLs.
    """
    assert isinstance(request, IncrementalAlterConfigsRequest)
    loggers = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    if not loggers or cluster(AclOperation.ALTER_CONFIGS).is_met(context.access):
        return answer(context, request)
    refusals = [
        AlterConfigsResourceResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in loggers
    ]
    others = [each for each in request.resources if each.resource_type != BROKER_LOGGER]
    if not others:
        return IncrementalAlterConfigsResponse(responses=refusals)

    def add(response: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        response.responses.extend(refusals)
        return response

    return change_response(answer(context, with_field(request, "resources", others)), add)


def no_directories_altered(context: RequestContext, request: object, error: ErrorCode) -> AlterReplicaLogDirsResponse:
    assert isinstance(request, AlterReplicaLogDirsRequest)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=each.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    for index in each.partitions
                ],
            )
            for directory in request.dirs
            for each in directory.topics
        ]
    )


ALTER_REPLICA_LOG_DIRS: Final = needs_cluster(AclOperation.ALTER, no_directories_altered)


ELECT_LEADERS: Final = needs_cluster(AclOperation.ALTER)


def no_credentials_described(
    context: RequestContext, request: object, error: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    """One refusal for each user that the request names, without the name: so Apache Kafka does."""
    assert isinstance(request, DescribeUserScramCredentialsRequest)
    refused = [
        DescribeUserScramCredentialsResult(user="", error_code=error, error_message=None) for _ in request.users or ()
    ]
    return DescribeUserScramCredentialsResponse(error_code=error, error_message=None, results=refused)


DESCRIBE_USER_SCRAM_CREDENTIALS: Final = needs_cluster(AclOperation.DESCRIBE, no_credentials_described)


def no_quotas_described(context: RequestContext, request: object, error: ErrorCode) -> DescribeClientQuotasResponse:
    """The response that refuses: an error and no entries."""
    return DescribeClientQuotasResponse(error_code=error, error_message=None, entries=None)


DESCRIBE_CLIENT_QUOTAS: Final = needs_cluster(AclOperation.DESCRIBE_CONFIGS, no_quotas_described)


def share_state(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """CLUSTER_ACTION for the requests about share state, which only brokers send."""
    from moldau.broker.requests.handlers.share_group_state import refused

    if cluster(AclOperation.CLUSTER_ACTION).is_met(context.access):
        return answer(context, request)
    return refused(cast("StateRequest", request), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
