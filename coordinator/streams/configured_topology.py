"""A topology compared with the topics of the cluster: the size of each internal topic, the tasks, and the missing
topics.

| what is found | status |
|---|---|
| a source topic does not exist | MISSING_SOURCE_TOPICS |
| co-partitioned topics differ in size; an internal topic exists in another size | INCORRECTLY_PARTITIONED_TOPICS |
| an internal topic does not exist: the broker creates it | MISSING_INTERNAL_TOPICS |
| none of these: tasks can be assigned | |

A topology that is invalid on every cluster is an error of the request (`Refusal`). Sizes are decided in this order:
repartition topics from the largest input of the subtopology that writes to them, then again from the topics with which
they are co-partitioned; changelogs from the largest input of their subtopology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.coordinator.group.membership import Refusal
from moldau.coordinator.streams.topology import InternalTopic, Subtopology, Topology
from moldau.protocol.errors import ErrorCode

LISTED_TOPICS_MAX: Final = 3
"""The most topics that the text of a status names."""


class StatusCode(IntEnum):
    """The status codes of a StreamsGroupHeartbeat response."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class GroupStatus(NamedTuple):
    code: StatusCode
    detail: str


INVALID_TOPOLOGY: Final = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
"""The refusal of a topology that is invalid on every cluster. Apache Kafka fails on such a request with this error and
no message."""


class ConfiguredInternalTopic(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    """The replication factor; 0 stands for the default of the cluster."""
    configs: tuple[tuple[str, str], ...]


class ConfiguredSubtopology(NamedTuple):
    tasks_count: int
    source_topics: tuple[str, ...]
    repartition_source_topics: tuple[ConfiguredInternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[ConfiguredInternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.state_changelog_topics)

    @property
    def inputs(self) -> list[str]:
        return sorted({*self.source_topics, *(topic.name for topic in self.repartition_source_topics)})


class ConfiguredTopology(NamedTuple):
    epoch: int
    metadata_hash: int
    """The hash of the topics with which the topology was configured."""
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """The subtopologies by id, in the order of the ids; None if the number of partitions of a topic could not be
    decided."""
    topics_to_create: Mapping[str, ConfiguredInternalTopic]
    problem: GroupStatus | None
    """The reason why tasks cannot be assigned; None if they can."""

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class PartitionCounts:
    """The number of partitions of each topic: the actual number if the topic exists, otherwise the number in
    `decided`."""

    def __init__(self, existing: Callable[[str], int | None]) -> None:
        self.existing = existing
        self.decided: dict[str, int] = {}

    def count_of(self, topic: str) -> int:
        count = self.existing(topic)
        return self.decided[topic] if count is None else count

    def largest_input(self, subtopology: Subtopology) -> int:
        """The largest number of partitions of the subtopology's input topics, which is the number of its tasks."""
        return max(map(self.count_of, subtopology.inputs))


def configure_topology(
    topology: Topology, partition_count: Callable[[str], int | None], metadata_hash: int
) -> ConfiguredTopology | Refusal:
    """Compare a topology with the topics of the cluster, and decide the numbers of partitions of its internal topics.
    `partition_count` returns the number of a topic's partitions, None if the topic does not exist. Returns a refusal if
    the topology is invalid on every cluster."""

    def unready(problem: GroupStatus) -> ConfiguredTopology:
        return ConfiguredTopology(topology.epoch, metadata_hash, None, {}, problem)

    groups = copartition_groups(topology)
    if groups is None:
        return INVALID_TOPOLOGY
    sources = {topic for each in topology.subtopologies.values() for topic in each.source_topics}
    missing = sorted(topic for topic in sources if partition_count(topic) is None)
    if missing:
        return unready(
            GroupStatus(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {topics_text(missing)} are missing.")
        )
    counts = PartitionCounts(partition_count)
    problem = decide_sizes(topology, groups, counts)
    if isinstance(problem, Refusal):
        return problem
    if problem is not None:
        return unready(problem)
    subtopologies: dict[str, ConfiguredSubtopology] = {}
    for subtopology_id, subtopology in sorted(topology.subtopologies.items()):
        configured = configure_subtopology(subtopology, counts)
        if configured is None:
            return INVALID_TOPOLOGY
        subtopologies[subtopology_id] = configured
    topics = missing_topics(topology, subtopologies, partition_count)
    if isinstance(topics, GroupStatus):
        return unready(topics)
    if topics:
        problem = GroupStatus(
            StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {topics_text(sorted(topics))}"
        )
    return ConfiguredTopology(topology.epoch, metadata_hash, subtopologies, topics, problem)


def copartition_groups(topology: Topology) -> list[frozenset[str]] | None:
    """The groups of topics that must have the same number of partitions; None if an index in the topology is outside of
    the list that it refers to."""
    groups = []
    for subtopology in topology.subtopologies.values():
        sources = subtopology.source_topics
        repartitions = [topic.name for topic in subtopology.repartition_source_topics]
        for group in subtopology.copartition_groups:
            if not _are_indexes(group.source_topics, len(sources)):
                return None
            if not _are_indexes(group.repartition_source_topics, len(repartitions)):
                return None
            names = [sources[index] for index in group.source_topics]
            groups.append(frozenset(names + [repartitions[index] for index in group.repartition_source_topics]))
    return groups


def _are_indexes(indexes: Iterable[int], length: int) -> bool:
    return all(0 <= index < length for index in indexes)


def decide_sizes(
    topology: Topology, groups: Iterable[frozenset[str]], counts: PartitionCounts
) -> GroupStatus | Refusal | None:
    """Decide the number of partitions of all internal topics, in `counts`. Returns the reason if a number cannot be
    decided; None if all are decided."""
    refusal = size_repartition_topics(topology, counts)
    if refusal is not None:
        return refusal
    repartitions = [topic for each in topology.subtopologies.values() for topic in each.repartition_source_topics]
    fixed = frozenset(topic.name for topic in repartitions if topic.partitions)
    flexible = frozenset(topic.name for topic in repartitions if not topic.partitions)
    for group in groups:
        problem = enforce_copartitioning(group, fixed, flexible, counts)
        if problem is not None:
            return problem
    for subtopology in topology.subtopologies.values():
        if not subtopology.inputs:
            return Refusal(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"No source topics found for subtopology {subtopology.subtopology_id}",
            )
        size = counts.largest_input(subtopology)
        counts.decided.update((topic.name, size) for topic in subtopology.state_changelog_topics)
    return None


def size_repartition_topics(topology: Topology, counts: PartitionCounts) -> Refusal | None:
    """Decide the number of partitions of repartition topics for which the topology does not set it, in `counts`.
    Returns a refusal if it cannot be decided.

    A repartition topic gets the size of the largest input of the subtopology that writes to it. That input may itself
    be a repartition topic, whose size is known only when another subtopology has been handled, so several rounds may be
    needed.
    """
    subtopologies = topology.subtopologies.values()
    sizes = counts.decided
    sizes.update(
        (topic.name, topic.partitions)
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions
    )
    is_complete = False
    while not is_complete:
        is_complete, has_grown = True, False
        for subtopology in subtopologies:
            for sink in subtopology.repartition_sink_topics:
                if sink in sizes:
                    continue
                size = largest_known_input(subtopology, counts)
                if size is None:
                    is_complete = False
                else:
                    sizes[sink] = size
                    has_grown = True
        if not is_complete and not has_grown:
            return Refusal(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved.",
            )
    if any(topic.name not in sizes for each in subtopologies for topic in each.repartition_source_topics):
        return Refusal(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics, because "
            "a repartition source topic is never used as a sink topic.",
        )
    return None


def largest_known_input(subtopology: Subtopology, counts: PartitionCounts) -> int | None:
    known = [counts.decided.get(topic.name) for topic in subtopology.repartition_source_topics]
    known += [counts.existing(topic) for topic in subtopology.source_topics]
    return max((size for size in known if size is not None), default=None)


def enforce_copartitioning(
    group: frozenset[str], fixed: frozenset[str], flexible: frozenset[str], counts: PartitionCounts
) -> GroupStatus | None:
    """Give all repartition topics of a co-partition group the same number of partitions, in `counts`. The group's
    source topics determine the number. If it has none, the repartition topics whose size the application fixes do; if
    there are none of these, the largest topic does. Returns a status if the sizes contradict each other."""
    repartitions = {topic: counts.count_of(topic) for topic in sorted(group) if topic in fixed or topic in flexible}
    sources = {topic: counts.count_of(topic) for topic in sorted(group) if topic not in repartitions}
    if not group:
        return None
    if sources:
        size = next(iter(sources.values()))
        if any(count != size for count in sources.values()):
            return unequal_counts_status(sources)
    elif fixed:
        # Apache Kafka compares the fixed topics of the whole topology, not only those of this group.
        size = counts.count_of(min(fixed))
        if any(counts.count_of(topic) != size for topic in fixed):
            return unequal_counts_status(repartitions)
    else:
        size = max(repartitions.values())
    for topic, count in repartitions.items():
        if topic in fixed and count != size:
            return GroupStatus(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count}] of repartition topic [{topic}] "
                f"doesn't match number of partitions [{size}] of the source topic.",
            )
    counts.decided.update(dict.fromkeys(repartitions, size))
    return None


def unequal_counts_status(counts: Mapping[str, int]) -> GroupStatus:
    listed = ", ".join(f"{topic}={count}" for topic, count in counts.items())
    return GroupStatus(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        f"Following topics do not have the same number of partitions: [{{{listed}}}]",
    )


def configure_subtopology(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology | None:
    """The subtopology with the numbers of partitions of its internal topics and its number of tasks. Returns None if a
    number is not positive, or a topic or a topic's setting is listed twice."""
    repartitions = configure_topics(subtopology.repartition_source_topics, counts)
    changelogs = configure_topics(subtopology.state_changelog_topics, counts)
    tasks_count = counts.largest_input(subtopology)
    if repartitions is None or changelogs is None or tasks_count < 1:
        return None
    return ConfiguredSubtopology(
        tasks_count, subtopology.source_topics, repartitions, subtopology.repartition_sink_topics, changelogs
    )


def configure_topics(
    topics: Iterable[InternalTopic], counts: PartitionCounts
) -> tuple[ConfiguredInternalTopic, ...] | None:
    configured: dict[str, ConfiguredInternalTopic] = {}
    for topic in topics:
        partitions = topic.partitions or counts.decided[topic.name]
        if topic.name in configured or partitions < 1 or len(dict(topic.configs)) < len(topic.configs):
            return None
        configured[topic.name] = ConfiguredInternalTopic(
            topic.name, partitions, topic.replication_factor, topic.configs
        )
    return tuple(configured.values())


def missing_topics(
    topology: Topology,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    partition_count: Callable[[str], int | None],
) -> dict[str, ConfiguredInternalTopic] | GroupStatus:
    """The internal topics that do not exist, by name. Returns a status instead if an internal topic exists with another
    number of partitions than expected."""
    topics: dict[str, ConfiguredInternalTopic] = {}
    for subtopology in subtopologies.values():
        topics.update((topic.name, topic) for topic in subtopology.repartition_source_topics)
        topics.update((topic.name, topic) for topic in subtopology.state_changelog_topics)
    for name in sorted(topology.required_topics):
        found = partition_count(name)
        expected = topics.pop(name, None) if found is not None else None
        if expected is not None and found != expected.partitions:
            return GroupStatus(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {expected.partitions}, found {found}",
            )
    return topics


def topics_text(topics: list[str]) -> str:
    """A text with the names of at most `LISTED_TOPICS_MAX` topics, and the number of the others. `topics` is not empty.

    DIVERGES: Apache Kafka names those that come first in a hash table; here the order is that of the names.
    """
    others = len(topics) - LISTED_TOPICS_MAX
    return ", ".join(topics[:LISTED_TOPICS_MAX]) + (f" and {others} additional topics" if others > 0 else "")
