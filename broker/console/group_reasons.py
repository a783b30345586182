"""Why a group lags, rebalances or skips: the sentences of `moldau group explain` on the page of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.broker.console.group_members import MemberRow
from moldau.broker.console.kafka_client import KafkaClient, Unanswered
from moldau.broker.console.lag import Ends, PartitionLag
from moldau.broker.reasons.explain import Sentence, explain
from moldau.broker.reasons.facts import HISTORY_SETTING, GroupFacts, History, MemberFacts, PartitionFacts
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

SHARE: Final = "share"


async def reasons(
    client: KafkaClient,
    group: tuple[str, str, str],
    coordinator: int,
    members: Sequence[MemberRow],
    lags: Sequence[PartitionLag],
    ends: Ends,
) -> list[Sentence]:
    """The sentences about a group, which is given by its id, kind and state."""
    history = await _history(client, group[0], coordinator)
    commits = {} if history is None else history.commits_ms or {}
    readers: dict[tuple[str, int], str] = {}
    if group[1] != SHARE:  # Several members read a partition of a share group.
        for member in members:
            readers.update(((topic, number), member.id) for topic, of in member.assigned.items() for number in of)
    partitions = [
        PartitionFacts(
            each.topic,
            each.partition,
            each.committed,
            ends.first.get((each.topic, each.partition)),
            each.end,
            None,
            each.behind_ms,
            commits.get((each.topic, each.partition)),
            readers.get((each.topic, each.partition)),
        )
        for each in lags
    ]
    facts = [MemberFacts(each.id, each.client_id, each.host, each.instance_id) for each in members]
    return explain(GroupFacts(*group, facts, partitions, history))


async def _history(client: KafkaClient, group_id: str, coordinator: int) -> History | None:
    """What the coordinator remembers; None if it does not tell it."""
    resource = DescribeConfigsResource(
        resource_type=ResourceType.GROUP, resource_name=group_id, configuration_keys=[HISTORY_SETTING]
    )
    request = DescribeConfigsRequest(resources=[resource])
    try:
        answer = await client.ask(request, DescribeConfigsResponse, broker_id=coordinator)
    except Unanswered:
        return None
    value = next((each.value for result in answer.results for each in result.configs), None)
    return None if value is None else History.from_json(value)
