"""Reads what the coordinators of groups keep only in memory: the history of a group, and its lag in the last hour."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from moldau.broker.console.kafka_client import KafkaClient, Unanswered
from moldau.broker.console.page import gather_results
from moldau.broker.coordinators.lag_history import LAG_SETTING, POINTS
from moldau.broker.reasons.facts import GROUP_HISTORY_SETTING, History
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)


async def history_of(client: KafkaClient, group_id: str, coordinator: int) -> History | None:
    """The history of a group; None if its coordinator does not report it."""
    value = (await _ask(client, coordinator, [group_id], GROUP_HISTORY_SETTING)).get(group_id)
    return None if value is None else History.from_json(value)


async def lags_of_last_hour(client: KafkaClient, coordinators: Mapping[str, int]) -> dict[str, list[int | None]]:
    """The lag of each group in the last hour: a point for each minute, the oldest first; None for a minute without a
    known lag. `coordinators` has the coordinator of each group. A group is left out if its coordinator reports no lag.
    The reason may be that the coordinator has no lag exporter, or that the user may not describe all topics.
    """
    by_coordinator: dict[int, list[str]] = {}
    for group_id, coordinator in coordinators.items():
        by_coordinator.setdefault(coordinator, []).append(group_id)
    told = await gather_results(*(_ask(client, each, ids, LAG_SETTING) for each, ids in by_coordinator.items()))
    return {group_id: json.loads(value) for of in told for group_id, value in of.items()}


async def _ask(client: KafkaClient, coordinator: int, group_ids: list[str], setting: str) -> dict[str, str]:
    """The value of a setting of each group, from their coordinator. Empty if the coordinator does not answer."""
    resources = [
        DescribeConfigsResource(resource_type=ResourceType.GROUP, resource_name=each, configuration_keys=[setting])
        for each in group_ids
    ]
    request = DescribeConfigsRequest(resources=resources)
    try:
        answer = await client.ask(request, DescribeConfigsResponse, broker_id=coordinator)
    except Unanswered:
        return {}
    return {
        result.resource_name: each.value
        for result in answer.results
        for each in result.configs
        if each.value is not None
    }


SPARKLINE_SIZE: Final = (600, 80)
"""The width and height of the plot of the last hour."""


def sparkline_points(points: list[int | None], width: int = SPARKLINE_SIZE[0], height: int = SPARKLINE_SIZE[1]) -> str:
    """The points of an SVG polyline for a series of numbers. The newest number is at the right edge, unknown ones are
    left out.
    """
    most = max((each for each in points if each is not None), default=0) or 1
    step = width / (POINTS - 1)
    first = width - step * (len(points) - 1)
    return " ".join(
        f"{first + step * place:.0f},{height - height * each / most:.0f}"
        for place, each in enumerate(points)
        if each is not None
    )
