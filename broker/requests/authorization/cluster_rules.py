"""Rules of the APIs about settings, log directories and other matters of the cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast

from moldau.broker.requests.authorization.rule import (
    Answer,
    Need,
    change_response,
    cluster,
    elements_rule,
    group,
    topic,
    with_field,
)
from moldau.broker.requests.own_resources import BROKER_LOGGER
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_configs import DescribeConfigsResource
from moldau.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.refusals import refused
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services


def need_of_settings(operation: AclOperation, services: Services, context: RequestContext, element: object) -> Need:
    """The resource on which a permission is needed: the topic or group for its own settings, the cluster for all
    others.
    """
    resource = cast("DescribeConfigsResource", element)
    if resource.resource_type == ResourceType.TOPIC:
        return topic(operation, resource.resource_name)
    if resource.resource_type == ResourceType.GROUP:
        return group(operation, resource.resource_name)
    return cluster(operation)


DESCRIBE_CONFIGS: Final = elements_rule(
    "resources", "results", partial(need_of_settings, AclOperation.DESCRIBE_CONFIGS)
)
ALTER_CONFIGS: Final = elements_rule("resources", "responses", partial(need_of_settings, AclOperation.ALTER_CONFIGS))


def alter_loggers(services: Services, context: RequestContext, request: object, answer: Answer) -> object:
    """ALTER_CONFIGS on the cluster for the loggers of this broker; for all other resources the controller asks the
    ACLs.
    """
    assert isinstance(request, IncrementalAlterConfigsRequest)
    loggers = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    if not loggers or cluster(AclOperation.ALTER_CONFIGS).is_met(context.access):
        return answer(context, request)
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refusals: IncrementalAlterConfigsResponse = refused(
        with_field(request, "resources", loggers), context.version, error
    )
    others = [each for each in request.resources if each.resource_type != BROKER_LOGGER]
    if not others:
        return refusals

    def add(response: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        response.responses.extend(refusals.responses)
        return response

    return change_response(answer(context, with_field(request, "resources", others)), add)
