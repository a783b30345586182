"""The pages about the cluster as a whole: its health, its quorum, its brokers and their settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moldau import __version__
from moldau.broker.console.kafka_client import Unanswered
from moldau.broker.console.nodes import (
    LogDirectory,
    NodeState,
    Traffic,
    log_directories,
    states_of,
    traffic_of,
    worst_lags,
)
from moldau.broker.console.page import SLICE, Page, PageRequest, Refusal, decimal, error_name, gather_results
from moldau.broker.coordinators.node_status import WorstLag
from moldau.broker.release import KAFKA_VERSION
from moldau.kraft.features import METADATA_VERSION_NAMES
from moldau.kraft.image.topics import NO_LEADER
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from moldau.security.access import CLUSTER_NAME, AclOperation, ResourceKind

METADATA_TOPIC: Final = "__cluster_metadata"
BROKER: Final = 4
TOPIC: Final = 2
SOURCES: Final = {
    1: "topic",
    2: "this broker, dynamic",
    3: "all brokers, dynamic",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
"""The source of a setting in words, by its number in DescribeConfigs."""
DEFAULT_SOURCE: Final = 5
NOT_TOLD: Final = NodeState()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionCounts:
    """Counts of the partitions that are healthy or not, of the topics that the user may describe."""

    topics: int = 0
    partitions: int = 0
    offline: int = 0
    """Partitions without a leader."""
    under_replicated: int = 0
    """Partitions with fewer in-sync replicas than replicas."""
    not_preferred: int = 0
    """Partitions whose leader is not the first replica."""
    moving: int = 0
    """Partitions whose reassignment is in progress."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Voter:
    node_id: int
    log_end_offset: int
    lag: int
    caught_up_ms_ago: int | None
    role: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class QuorumState:
    leader_id: int
    epoch: int
    high_watermark: int
    replicas: list[Voter]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BrokerRow:
    id: int
    address: str
    rack: str | None
    state: str
    leaders: int
    replicas: int
    told: NodeState


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RackRow:
    """The brokers of one rack. A machine that runs several brokers (`moldau serve --cores`) is a rack."""

    rack: str
    brokers: int
    active: int
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClusterOverview:
    cluster_id: str
    moldau: str
    kafka: str
    metadata_offset: int
    counts: PartitionCounts
    traffic: Traffic
    used_bytes: int | None
    """The size of all replicas; None if the user may not see it."""
    free_bytes: int | None
    lags: list[WorstLag]
    """The groups that lag most, the largest lag first."""
    brokers: list[BrokerRow]
    racks: list[RackRow]
    """The racks; empty if no rack has several brokers."""
    quorum: QuorumState | None
    """The state of the quorum. None if the user may not describe the cluster, or if the quorum does not answer."""
    features: dict[str, int]
    release: str | None
    """The release of Apache Kafka to which the metadata version belongs, such as 4.3-IV0."""
    problems: list[str]


async def describe_cluster(visit: PageRequest) -> ClusterOverview:
    image = visit.ports.cluster.image
    counts, leaders, replicas = await _count_partitions(visit)
    brokers = []
    problems = []
    listener = visit.ports.listener.name
    states = await states_of(visit, [each for each in image.cluster.brokers if visit.ports.cluster.is_alive(each)])
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        endpoint = broker.endpoints.get(listener)
        state = "fenced" if broker.fenced else "stopping" if broker.in_controlled_shutdown else "active"
        if state != "active":
            problems.append(f"broker {broker_id} is {state}")
        brokers.append(
            BrokerRow(
                broker_id,
                "" if endpoint is None else f"{endpoint.host}:{endpoint.port}",
                broker.rack,
                state,
                leaders.get(broker_id, 0),
                replicas.get(broker_id, 0),
                states.get(broker_id, NOT_TOLD),
            )
        )
    if counts.offline:
        problems.insert(0, f"{counts.offline} partitions have no leader")
    if counts.under_replicated:
        problems.append(f"{counts.under_replicated} partitions have fewer in-sync replicas than replicas")
    quorum = await _quorum(visit)
    if visit.ports.quorum.leader_id < 0:
        problems.insert(0, "the metadata quorum has no leader")
    return ClusterOverview(
        visit.ports.cluster.id,
        __version__,
        KAFKA_VERSION,
        image.provenance.end_offset,
        counts,
        traffic_of(states.values()),
        sum_of_known(each.used_bytes for each in states.values()),
        sum_of_known(each.free_bytes for each in states.values()),
        worst_lags(visit, states.values()),
        brokers,
        racks_of(brokers),
        quorum,
        dict(sorted(image.features.levels.items())),
        METADATA_VERSION_NAMES.get(image.features.metadata_version),
        problems,
    )


def sum_of_known(sizes: Iterable[int | None]) -> int | None:
    """The sum of the sizes that are known; None if no size is known."""
    known = [each for each in sizes if each is not None]
    return sum(known) if known else None


def racks_of(brokers: list[BrokerRow]) -> list[RackRow]:
    """The racks of the brokers, by name; empty if no rack has several brokers."""
    by_rack: dict[str, list[BrokerRow]] = {}
    for each in brokers:
        if each.rack is not None:
            by_rack.setdefault(each.rack, []).append(each)
    if all(len(members) == 1 for members in by_rack.values()):
        return []
    return [
        RackRow(
            rack,
            len(members),
            sum(each.state == "active" for each in members),
            sum(each.leaders for each in members),
            sum(each.replicas for each in members),
        )
        for rack, members in sorted(by_rack.items())
    ]


async def _count_partitions(visit: PageRequest) -> tuple[PartitionCounts, dict[int, int], dict[int, int]]:
    """Count the partitions by health, and for each broker the partitions that it leads and its replicas."""
    topics = visit.ports.cluster.image.topics
    shown = partitions = offline = under = not_preferred = moving = seen = 0
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in topics.by_id.values():
        if not visit.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, topic.name):
            continue
        shown += 1
        for each in topic.partitions.values():
            partitions += 1
            offline += each.leader == NO_LEADER
            under += len(each.isr) < len(each.replicas)
            not_preferred += each.leader not in (NO_LEADER, each.replicas[0])
            moving += bool(each.adding_replicas or each.removing_replicas)
            leaders[each.leader] = leaders.get(each.leader, 0) + 1
            for replica in each.replicas:
                replicas[replica] = replicas.get(replica, 0) + 1
        seen += 1 + len(topic.partitions)
        if seen > SLICE:
            seen = 0
            await asyncio.sleep(0)  # The image is immutable, so it cannot change during the loop.
    return PartitionCounts(shown, partitions, offline, under, not_preferred, moving), leaders, replicas


async def _quorum(visit: PageRequest) -> QuorumState | None:
    if not visit.may(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return None
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
    )
    answer = await visit.client.ask(request, DescribeQuorumResponse)
    if answer.error_code or not answer.topics:
        return None
    found = answer.topics[0].partitions[0]
    if found.error_code:
        return None
    now_ms = visit.ports.environment.wall_ms()
    ends = [each.log_end_offset for each in found.current_voters if each.replica_id == found.leader_id]
    end = ends[0] if ends else found.high_watermark

    def voter(state: ReplicaState, role: str) -> Voter:
        caught_up = state.last_caught_up_timestamp
        return Voter(
            state.replica_id,
            state.log_end_offset,
            max(end - state.log_end_offset, 0),
            max(now_ms - caught_up, 0) if caught_up >= 0 else None,
            "leader" if state.replica_id == found.leader_id else role,
        )

    voters = [voter(each, "voter") for each in found.current_voters]
    observers = [voter(each, "observer") for each in found.observers]
    return QuorumState(found.leader_id, found.leader_epoch, found.high_watermark, voters + observers)


# One broker


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SettingRow:
    name: str
    value: str | None
    """The value; None if it is secret."""
    source: str
    is_read_only: bool
    is_default: bool
    documentation: str
    synonyms: list[str]
    """The value of the setting in each of its sources, in the order of precedence."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BrokerDescription:
    id: int
    endpoints: dict[str, str]
    rack: str | None
    state: str
    directories: list[LogDirectory]
    settings: list[SettingRow]
    q: str
    shows: str
    error: str


async def describe_broker(visit: PageRequest) -> BrokerDescription:
    text = visit.variables["id"]
    broker_id = decimal(text)
    broker = None if broker_id is None else visit.ports.cluster.image.cluster.brokers.get(broker_id)
    if broker_id is None or broker is None:
        raise Refusal(404, f"no broker has the id {text}")
    error = ""
    directories: list[LogDirectory] = []
    settings: list[SettingRow] = []
    shows = visit.choice("shows", ("changed", "all"))
    try:
        settings, error = await settings_of(visit, BROKER, str(broker_id), broker_id=broker_id)
        if visit.may(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
            directories = await log_directories(visit, broker_id)
    except Unanswered as unanswered:
        error = str(unanswered)
    q = visit.field("q")
    # Kafka tells a client the endpoints of its own listener; the settings name all of them.
    sees_listeners = visit.may(AclOperation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER, CLUSTER_NAME)
    settings = [each for each in settings if q in each.name and (shows == "all" or not each.is_default)]
    return BrokerDescription(
        broker_id,
        {
            name: f"{each.host}:{each.port}"
            for name, each in broker.endpoints.items()
            if name == visit.ports.listener.name or sees_listeners
        },
        broker.rack,
        "fenced" if broker.fenced else "active",
        directories,
        settings,
        q,
        shows,
        error,
    )


async def settings_of(
    visit: PageRequest, kind: int, name: str, *, broker_id: int | None = None
) -> tuple[list[SettingRow], str]:
    """The settings of a resource, sorted by name, and the text of the error, which is empty if there is none. `kind` is
    the resource type in DescribeConfigs. `broker_id` is the broker to ask; None for this broker. Raises `Unanswered`.
    """
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    answer = await visit.client.ask(request, DescribeConfigsResponse, broker_id=broker_id)
    (result,) = answer.results
    rows = [
        SettingRow(
            each.name,
            None if each.is_sensitive else each.value,
            SOURCES.get(each.config_source, "unknown"),
            each.read_only,
            each.config_source == DEFAULT_SOURCE,
            each.documentation or "",
            [f"{SOURCES.get(other.source, 'unknown')}: {other.value}" for other in each.synonyms]
            if not each.is_sensitive
            else [],
        )
        for each in sorted(result.configs, key=lambda each: each.name)
    ]
    return rows, result.error_message or error_name(result.error_code)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Directories:
    brokers: dict[int, list[LogDirectory]]
    errors: list[str]


async def describe_directories(visit: PageRequest) -> Directories:
    """The log directories of all brokers."""
    visit.require(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME)
    found: dict[int, list[LogDirectory]] = {}
    errors: list[str] = []

    async def ask(broker_id: int) -> None:
        try:
            found[broker_id] = await log_directories(visit, broker_id)
        except Unanswered as unanswered:
            errors.append(str(unanswered))

    brokers = visit.ports.cluster.image.cluster.brokers
    await gather_results(*(ask(broker_id) for broker_id, broker in brokers.items() if not broker.fenced))
    return Directories(dict(sorted(found.items())), errors)


PAGES: Final = (
    Page("/", "cluster.html", describe_cluster),
    Page("/brokers/{id}", "broker.html", describe_broker),
    Page("/directories", "directories.html", describe_directories),
)
