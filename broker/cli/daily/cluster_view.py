"""The action `moldau cluster-status`: gathers the state of a cluster, and prints it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from moldau import __version__
from moldau.broker.cli.daily.client import Client
from moldau.broker.cli.daily.failures import Failure
from moldau.broker.cli.daily.output import Row
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.topic_views import is_under_replicated, partitions_of
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.errors import ErrorCode, error_name
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from moldau.tables.client.connection import Disconnected

if TYPE_CHECKING:
    from moldau.protocol.messages.describe_cluster import DescribeClusterBroker
    from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsResult

BROKERS: Final = (
    "broker",
    "host",
    "port",
    "rack",
    "state",
    "release",
    "leaders",
    "replicas",
    "used_bytes",
    "free_bytes",
)
UNWELL: Final = ("topic", "partition", "leader", "replicas", "in_sync")
SHOWN_MAX: Final = 20
"""The most partitions that are listed, unless the output is JSON."""
METADATA_VERSION: Final = "metadata.version"
FREE_SHARE_MIN: Final = 0.01
"""The part of a disk that must be free. A broker with less is reported as a problem, because it will soon refuse
records of producers.
"""


def status(session: Session) -> int:
    """Print the state of the cluster (`cluster-status`)."""
    client, output = session.client, session.output
    topics = client.topics(None)
    described = _described(client)
    partitions = partitions_of(topics.values())
    led: dict[int, int] = {}
    kept: dict[int, int] = {}
    for each in partitions:
        led[each.leader_id] = led.get(each.leader_id, 0) + 1
        for replica in each.replica_nodes:
            kept[replica] = kept.get(replica, 0) + 1
    brokers = [
        _broker_row(client, each, led, kept) for each in sorted(described.brokers, key=lambda each: each.broker_id)
    ]
    unwell = [
        {
            "topic": name,
            "partition": each.partition_index,
            "leader": each.leader_id if each.leader_id >= 0 else None,
            "replicas": list(each.replica_nodes),
            "in_sync": list(each.isr_nodes),
        }
        for name, topic in sorted(topics.items())
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        if each.leader_id < 0 or is_under_replicated(each)
    ]
    offline = sum(each.leader_id < 0 for each in partitions)
    under = sum(is_under_replicated(each) for each in partitions)
    features = _features(client)
    quorum, problems = quorum_state(client)
    problems += [f"broker {row['broker']} is {row['state']}" for row in brokers if row["state"] != "serving"]
    problems += [f"{count_with_noun(offline, 'partition')} offline"] if offline else []
    problems += [f"{count_with_noun(under, 'partition')} under-replicated"] if under else []
    output.object(
        {
            "cluster_id": described.cluster_id,
            "controller": None if quorum is None else quorum["leader"],
            "quorum": quorum,
            "features": features,
            "topics": len(topics),
            "partitions": len(partitions),
            "offline": offline,
            "under_replicated": under,
            "problems": problems,
            "brokers": brokers,
            "unwell_partitions": unwell,
        }
    )
    if not output.is_json:
        _show(session, described.cluster_id, quorum, features, problems)
        output.say("")
        output.rows(brokers, BROKERS)
        output.say("")
        output.say(f"{count_with_noun(len(topics), 'topic')}, {count_with_noun(len(partitions), 'partition')}")
        if unwell:
            output.rows(unwell[:SHOWN_MAX], UNWELL)
            if len(unwell) > SHOWN_MAX:
                output.say(f"and {len(unwell) - SHOWN_MAX:,} more: --json names all")
    return int(session.arguments.check and bool(problems))


def _show(session: Session, cluster_id: str, quorum: Row | None, features: dict[str, int], problems: list[str]) -> None:
    output = session.output
    output.say("; ".join(problems) if problems else "all is well", "red" if problems else "green")
    pairs = [("cluster", cluster_id)]
    if quorum is not None:
        lag = quorum["lag"]
        behind = f", the slowest is {lag:,} records behind" if isinstance(lag, int) and lag else ""
        voters = quorum["voters"]
        pairs.append(
            ("controller", f"node {quorum['leader']} of voters {_joined(voters)}, epoch {quorum['epoch']}{behind}")
        )
    if METADATA_VERSION in features:
        level = features[METADATA_VERSION]
        pairs.append(("version", f"{METADATA_VERSION} {level}{_named(level)}"))
    output.pairs(pairs)


def _joined(numbers: object) -> str:
    return ", ".join(map(str, numbers)) if isinstance(numbers, list) else str(numbers)


def _named(level: int) -> str:
    release = _release_of(level)
    return f" ({release})" if release else ""


def _release_of(level: int) -> str | None:
    """The release to which a metadata version belongs, such as 4.3-IV0. None if the version is not known."""
    from moldau.kraft.features import METADATA_VERSION_NAMES

    return METADATA_VERSION_NAMES.get(level)


def _described(client: Client) -> DescribeClusterResponse:
    """Describe the cluster: its brokers, with the fenced ones if the user may see them. Raises `Failure`."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    reply = client.ask(request, DescribeClusterResponse)
    client.check(reply.error_code, reply.error_message, "the cluster")
    return reply


def _broker_row(
    client: Client, broker: DescribeClusterBroker, led: dict[int, int], kept: dict[int, int]
) -> dict[str, object]:
    row: dict[str, object] = {
        "broker": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "state": "serving",
        "release": None,
        "leaders": led.get(broker.broker_id, 0),
        "replicas": kept.get(broker.broker_id, 0),
        "used_bytes": None,
        "free_bytes": None,
    }
    if broker.is_fenced:
        return {**row, "state": "fenced"}
    try:
        versions = client.ask_broker(broker.broker_id, _versions_request(), ApiVersionsResponse, version=3)
        supported = {each.name: each.max_version for each in versions.supported_features}
        row["release"] = _release_of(supported.get(METADATA_VERSION, 0))
        directories = client.ask_broker(broker.broker_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    except (Failure, Disconnected) as problem:
        return {**row, "state": "not reached", "problem": str(problem)}
    if not directories.error_code and directories.results:
        sound = [each for each in directories.results if not each.error_code]
        row["used_bytes"] = sum(p.partition_size for each in sound for topic in each.topics for p in topic.partitions)
        usable = [each.usable_bytes for each in sound if each.usable_bytes >= 0]
        row["free_bytes"] = sum(usable) if usable else None
        row["state"] = disk_state(directories.results)
    return row


def disk_state(directories: Sequence[DescribeLogDirsResult]) -> str:
    """Describe in words the state of a broker by its log directories: the number of those that have failed, or else the
    number of those with less than `FREE_SHARE_MIN` of their disk free, or else that the broker serves. An unknown size
    (-1, in versions of DescribeLogDirs before 4) counts as enough.
    """
    failed = sum(each.error_code != 0 for each in directories)
    if failed:
        return f"without {count_with_noun(failed, 'disk')}"
    short = sum(0 <= each.usable_bytes < each.total_bytes * FREE_SHARE_MIN for each in directories)
    return f"short of space on {count_with_noun(short, 'disk')}" if short else "serving"


def _versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)


def _features(client: Client) -> dict[str, int]:
    """The finalized levels of features by name."""
    reply = client.ask(_versions_request(), ApiVersionsResponse, version=3)
    return {each.name: each.max_version_level for each in sorted(reply.finalized_features, key=lambda each: each.name)}


def quorum_state(client: Client) -> tuple[Row | None, list[str]]:
    """The state of the controller quorum: its leader and voters; None if the user may not ask for it, or if no
    controller answers. The second value has the problem in words, if there is one.
    """
    from moldau.protocol.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        PartitionData,
        TopicData,
    )

    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    reply = client.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    if reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return None, []
    code = reply.error_code or reply.topics[0].partitions[0].error_code
    if code:
        return None, [f"the controller quorum does not answer ({error_name(code)})"]
    partition = reply.topics[0].partitions[0]
    ends = [each.log_end_offset for each in partition.current_voters if each.log_end_offset >= 0]
    return {
        "leader": partition.leader_id,
        "epoch": partition.leader_epoch,
        "voters": sorted(each.replica_id for each in partition.current_voters),
        "observers": sorted(each.replica_id for each in partition.observers),
        "lag": max(ends) - min(ends) if ends else None,
    }, []
