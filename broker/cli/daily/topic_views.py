"""The actions of `moldau topic` that print the topics of a cluster, or the partitions of some topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.daily.client import EARLIEST, LATEST, Client, Partition
from moldau.broker.cli.daily.failures import Failure, raise_if_error, unknown_failure
from moldau.broker.cli.daily.output import size_text
from moldau.broker.cli.daily.session import Session
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import ZERO_UUID
from moldau.tables.client.cluster import TransientError
from moldau.tables.client.connection import Disconnected

if TYPE_CHECKING:
    from moldau.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

LISTED: Final = ("topic", "partitions", "replicas", "under_replicated", "offline")
DESCRIBED: Final = ("partition", "leader", "replicas", "in_sync", "start", "end", "records", "size_bytes")
WILDCARDS: Final = frozenset("*?[")


def list_topics(session: Session) -> int:
    """Print the topics by name (`topic list`)."""
    given = session.arguments
    topics = session.client.topics(None)
    for name in given.names:
        if not any(fnmatchcase(each, name) for each in topics):
            if not WILDCARDS & set(name):
                session.client.known_topics([name])
            raise unknown_failure("topic", name, topics)
    rows = [
        _row(topic) for name, topic in sorted(topics.items()) if _is_wanted(topic, name, given.names, given.internal)
    ]
    if given.under_replicated:
        rows = [row for row in rows if row["under_replicated"] or row["offline"]]
    told = f"there are no topics{session.that_are_seen}: 'moldau topic create NAME'"
    if given.under_replicated:
        told = "every replica is in sync"
    session.output.rows(rows, LISTED, empty=told)
    return 0


def _is_wanted(topic: MetadataResponseTopic, name: str, patterns: Sequence[str], internal: bool) -> bool:
    if patterns:
        return any(fnmatchcase(name, each) for each in patterns)
    return internal or not topic.is_internal


def _row(topic: MetadataResponseTopic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": id_text(bytes(topic.topic_id)),
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replica_nodes) for each in topic.partitions), default=0),
        "under_replicated": sum(is_under_replicated(each) for each in topic.partitions),
        "offline": sum(each.leader_id < 0 for each in topic.partitions),
    }


def is_under_replicated(partition: MetadataResponsePartition) -> bool:
    """Whether a replica of the partition is not in sync."""
    return len(partition.isr_nodes) < len(partition.replica_nodes)


def id_text(topic_id: bytes) -> str | None:
    """Format a topic id as Kafka does, in base64. None if the id is zero, which means that the cluster does not tell
    it.
    """
    from base64 import urlsafe_b64encode

    return None if topic_id == ZERO_UUID else urlsafe_b64encode(topic_id).decode().rstrip("=")


def describe(session: Session) -> int:
    """Show the partitions and the settings of topics (`topic describe`)."""
    client, output = session.client, session.output
    topics = client.known_topics(session.arguments.names)
    keys = [(name, each.partition_index) for name, topic in topics.items() for each in topic.partitions]
    led = [key for key, each in zip(keys, partitions_of(topics.values()), strict=True) if each.leader_id >= 0]
    starts, ends = (client.offsets(dict.fromkeys(led, which)) for which in (EARLIEST, LATEST))
    sizes = sizes_of(client, set(keys))
    settings = settings_of(client, topics)
    for number, (name, topic) in enumerate(sorted(topics.items())):
        rows = []
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            key = name, each.partition_index
            start, end = starts.get(key), ends.get(key)
            rows.append(
                {
                    "partition": each.partition_index,
                    "leader": each.leader_id if each.leader_id >= 0 else "none",
                    "replicas": list(each.replica_nodes),
                    "in_sync": list(each.isr_nodes),
                    "offline": list(each.offline_replicas),
                    "start": start,
                    "end": end,
                    "records": None if start is None or end is None else end - start,
                    "size_bytes": None if sizes is None else sizes.get(key),
                }
            )
        size = None if sizes is None else sum(sizes.get(key, 0) for key in keys if key[0] == name)
        if output.is_json:
            partitions = [{**row, "leader": None if row["leader"] == "none" else row["leader"]} for row in rows]
            output.object({**_row(topic), "size_bytes": size, "settings": settings[name], "partition_list": partitions})
            continue
        if number:
            output.say("")
        output.say(name, "bold")
        output.pairs(_summary(topic, settings[name], size))
        output.say("")
        output.rows(rows, DESCRIBED)
    return 0


def _summary(
    topic: MetadataResponseTopic, settings: dict[str, str | None], size: int | None
) -> Iterable[tuple[str, str]]:
    row = _row(topic)
    replicas = max((len(each.replica_nodes) for each in topic.partitions), default=0)
    yield "id", str(row["topic_id"])
    yield "partitions", f"{len(topic.partitions):,}, {count_with_noun(replicas, 'replica')} each"
    if row["under_replicated"] or row["offline"]:
        yield "state", f"{row['under_replicated']} under-replicated, {row['offline']} offline"
    if size is not None:
        yield "size", f"{size_text(size)} at the leaders"
    yield "settings", ", ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "the defaults"


def partitions_of(topics: Iterable[MetadataResponseTopic]) -> list[MetadataResponsePartition]:
    """The partitions of topics, in the order of the metadata."""
    return [each for topic in topics for each in topic.partitions]


def sizes_of(client: Client, keys: set[Partition]) -> dict[Partition, int] | None:
    """The size in bytes of each partition at its leader. None if the user may not ask for it (DESCRIBE on the cluster),
    or if a leader is missing.
    """
    from moldau.protocol.messages.describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    found: dict[Partition, int] = {}
    try:
        leaders = client.grouped_by_leader(keys)
    except TransientError:
        return None
    for leader, led in leaders.items():
        topics: dict[str, list[int]] = {}
        for topic, partition in led:
            topics.setdefault(topic, []).append(partition)
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=each) for name, each in topics.items()]
        )
        try:
            reply = client.ask_broker(leader, request, DescribeLogDirsResponse)
        except (Failure, Disconnected):
            return None
        if reply.error_code:
            return None
        for directory in reply.results:
            for answer in directory.topics:
                for each in answer.partitions:
                    if not each.is_future_key:
                        found[answer.name, each.partition_index] = each.partition_size
    return found


def settings_of(client: Client, topics: Iterable[str]) -> dict[str, dict[str, str | None]]:
    """The settings that are set for the topics themselves, by topic. A topic whose settings the user may not describe
    has none. Raises `Failure`.
    """
    from moldau.broker.cli.daily.configs.access import OWN_TOPIC, TOPIC, describe_configs

    found: dict[str, dict[str, str | None]] = {}
    for result in describe_configs(client, [(TOPIC, name) for name in topics]):
        if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            found[result.resource_name] = {}
            continue
        raise_if_error(result.error_code, result.error_message, f"topic {result.resource_name}")
        found[result.resource_name] = {
            each.name: each.value for each in result.configs if each.config_source == OWN_TOPIC
        }
    return found
