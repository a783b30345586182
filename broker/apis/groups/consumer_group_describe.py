"""ConsumerGroupDescribe (API key 69, versions 0-1; KIP-848, KIP-1099): members and assignments of consumer groups.

1: the type of each member (KIP-1099). The reply waits for earlier writes, so that it has only what is committed.
"""

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
from moldau.coordinator.consumer.describe import not_described
from moldau.coordinator.consumer.events import DescribeConsumerGroup
from moldau.kraft.features import GROUP_VERSION
from moldau.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.security.access import AclOperation

HIDDEN: Final = "the group has topics that the client may not describe"


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Pending[ConsumerGroupDescribeResponse]:
    return describe_groups(services, context, request, GROUP_VERSION, DescribeConsumerGroup, not_described)


def assigned_topic_names(group: DescribedGroup) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            yield from (assigned.topic_name for assigned in assignment.topic_partitions)


API: Final = Api(
    ConsumerGroupDescribeRequest,
    broker=handle,
    needs=all_of(
        each_in("group_ids", on_group, AclOperation.DESCRIBE, None, results="groups"),
        without_hidden_topics(assigned_topic_names, not_described, HIDDEN),
    ),
    lists=[in_parts("group_ids", "groups", is_distinct=True)],
)
