"""ShareGroupDescribe (API key 77, version 1; KIP-932): members, epochs and assignments of share groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import describe_groups, without_hidden_topics
from moldau.broker.apis.needs import all_of, each_in, on_group
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.share.describe import not_described
from moldau.coordinator.share.events import DescribeShareGroup
from moldau.kraft.features import SHARE_VERSION
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from moldau.security.access import AclOperation

HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."


def handle(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> Pending[ShareGroupDescribeResponse]:
    return describe_groups(services, context, request, SHARE_VERSION, DescribeShareGroup, not_described, refused)


def refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return not_described(group_id, error, ERROR_TEXTS.get(error))


def assigned_topic_names(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        yield from (assigned.topic_name for assigned in member.assignment.topic_partitions)


API: Final = Api(
    ShareGroupDescribeRequest,
    broker=handle,
    needs=all_of(
        each_in("group_ids", on_group, AclOperation.DESCRIBE, None, results="groups"),
        without_hidden_topics(assigned_topic_names, not_described, HIDDEN),
    ),
    lists=[in_parts("group_ids", "groups", is_distinct=True)],
)
