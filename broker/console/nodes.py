"""What brokers report about themselves for the first page: release, start, traffic, disks, and the groups that lag
most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from moldau.broker.console.kafka_client import Unanswered
from moldau.broker.console.page import PageRequest, error_name, gather_results
from moldau.broker.coordinators.node_status import LAGS_MAX, STATUS_SETTING, ReportedStatus, WorstLag
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from moldau.security.access import CLUSTER_NAME, AclOperation, ResourceKind


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LogDirectory:
    path: str
    error: str
    total_bytes: int
    usable_bytes: int
    replicas: int
    replicas_bytes: int
    is_cordoned: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NodeState:
    """The status and the disk usage of a broker. A field that the user may not see is None."""

    status: ReportedStatus | None = None
    up_ms: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Traffic:
    """Records and bytes per second, summed over the brokers that report them; None if no broker does. Replication
    traffic is not counted.
    """

    records_in: float | None
    bytes_in: float | None
    bytes_out: float | None


async def states_of(visit: PageRequest, broker_ids: Iterable[int]) -> dict[int, NodeState]:
    """The state of each of these brokers. A broker that does not answer has its error."""

    async def ask(broker_id: int) -> tuple[int, NodeState]:
        try:
            status = await _status_of(visit, broker_id)
            if not visit.may(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
                return broker_id, NodeState(status, _up_ms(visit, status))
            directories = await log_directories(visit, broker_id)
        except Unanswered as unanswered:
            return broker_id, NodeState(error=str(unanswered))
        used = sum(each.replicas_bytes for each in directories)
        return broker_id, NodeState(status, _up_ms(visit, status), used, free_bytes(directories))

    return dict(await gather_results(*map(ask, broker_ids)))


async def _status_of(visit: PageRequest, broker_id: int) -> ReportedStatus | None:
    resource = DescribeConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=str(broker_id), configuration_keys=[STATUS_SETTING]
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = await visit.client.ask(request, DescribeConfigsResponse, broker_id=broker_id)
    told = [each.value for result in answer.results for each in result.configs if each.name == STATUS_SETTING]
    return ReportedStatus.from_json(told[0]) if told and told[0] else None


async def log_directories(visit: PageRequest, broker_id: int) -> list[LogDirectory]:
    """The log directories of a broker with the sizes of its replicas. Raises `Unanswered`."""
    answer = await visit.client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, broker_id=broker_id)
    found = []
    for each in answer.results:
        sizes = [partition.partition_size for topic in each.topics for partition in topic.partitions]
        found.append(
            LogDirectory(
                each.log_dir,
                error_name(each.error_code),
                each.total_bytes,
                each.usable_bytes,
                len(sizes),
                sum(sizes),
                each.is_cordoned,
            )
        )
        await asyncio.sleep(0)
    return found


def _up_ms(visit: PageRequest, status: ReportedStatus | None) -> int | None:
    if status is None or not status.started_ms:
        return None
    return max(visit.ports.environment.wall_ms() - status.started_ms, 0)


def free_bytes(directories: Iterable[LogDirectory]) -> int | None:
    """The free bytes on the volumes of log directories; None if no directory reports them. Directories with equal
    figures are assumed to be on one volume.
    """
    volumes = {(each.total_bytes, each.usable_bytes) for each in directories if each.usable_bytes >= 0}
    return sum(usable for _, usable in volumes) if volumes else None


def traffic_of(states: Iterable[NodeState]) -> Traffic:
    """The traffic of all brokers, summed."""
    told = [each.status for each in states if each.status is not None]
    records = [each.records_in for each in told if each.records_in is not None]
    bytes_in = [each.bytes_in for each in told if each.bytes_in is not None]
    bytes_out = [each.bytes_out for each in told if each.bytes_out is not None]
    if not records:
        return Traffic(None, None, None)
    return Traffic(round(sum(records), 2), round(sum(bytes_in), 2), round(sum(bytes_out), 2))


def worst_lags(visit: PageRequest, states: Iterable[NodeState]) -> list[WorstLag]:
    """The groups that lag most among those that the brokers report. Groups and topics that the user may not describe
    are left out.
    """
    told = [lag for each in states if each.status is not None for lag in each.status.lags]
    shown = [
        lag
        for lag in told
        if visit.may(AclOperation.DESCRIBE, ResourceKind.GROUP, lag.group)
        and visit.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, lag.topic)
    ]
    return sorted(shown, key=lambda each: -each.records)[:LAGS_MAX]
