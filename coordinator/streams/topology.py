"""The topology of a Kafka Streams application, which its members send when they join, and which the group's record
stores.

A topology is divided into subtopologies, and a subtopology into tasks, one for each partition of its input. `Topology`
has the same fields as the request and the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, Protocol

FIRST_TABLE_SIZE: Final = 16
LOAD_FACTOR: Final = 0.75


class KeyValueFields(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...


class TopicInfoFields(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def replication_factor(self) -> int: ...
    @property
    def topic_configs(self) -> Sequence[KeyValueFields]: ...


class CopartitionGroupFields(Protocol):
    @property
    def source_topics(self) -> Sequence[int]: ...
    @property
    def source_topic_regex(self) -> Sequence[int]: ...
    @property
    def repartition_source_topics(self) -> Sequence[int]: ...


class SubtopologyFields(Protocol):
    """The fields of a subtopology, in the request and in the record."""

    @property
    def subtopology_id(self) -> str: ...
    @property
    def source_topics(self) -> Sequence[str]: ...
    @property
    def source_topic_regex(self) -> Sequence[str]: ...
    @property
    def state_changelog_topics(self) -> Sequence[TopicInfoFields]: ...
    @property
    def repartition_sink_topics(self) -> Sequence[str]: ...
    @property
    def repartition_source_topics(self) -> Sequence[TopicInfoFields]: ...
    @property
    def copartition_groups(self) -> Sequence[CopartitionGroupFields]: ...


class InternalTopic(NamedTuple):
    """A topic that only the application uses: a repartition topic, or the changelog topic of a state store."""

    name: str
    partitions: int
    """The number of partitions; 0 if the coordinator computes it."""
    replication_factor: int
    """The replication factor; 0 stands for the default of the cluster."""
    configs: tuple[tuple[str, str], ...]


class CopartitionGroup(NamedTuple):
    """Topics of a subtopology that must have the same number of partitions, as indexes into its lists of topics."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


class Subtopology(NamedTuple):
    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    state_changelog_topics: tuple[InternalTopic, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    @property
    def inputs(self) -> list[str]:
        """The topics that the subtopology reads: its source topics and its repartition source topics."""
        return [*self.source_topics, *(topic.name for topic in self.repartition_source_topics)]


class Topology:
    """An immutable topology. Two topologies are equal if all their fields are equal."""

    def __init__(self, epoch: int, subtopologies: Mapping[str, Subtopology]) -> None:
        self.epoch = epoch
        self.subtopologies = subtopologies
        """The subtopologies by id, in the order in which Apache Kafka iterates over them (`hash_map_order`)."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """The names of the topics that must exist before tasks can be assigned."""
        topics: set[str] = set()
        for subtopology in self.subtopologies.values():
            topics.update(subtopology.inputs)
            topics.update(topic.name for topic in subtopology.state_changelog_topics)
        return frozenset(topics)

    @cached_property
    def subtopology_of_input(self) -> Mapping[str, str]:
        """The id of the subtopology that reads an input topic, by the topic's name."""
        return {topic: key for key, subtopology in self.subtopologies.items() for topic in subtopology.inputs}


def topology_of(epoch: int, subtopologies: Iterable[SubtopologyFields]) -> Topology | None:
    """The topology that a request or a record describes; None if two subtopologies have the same id."""
    by_id: dict[str, Subtopology] = {}
    for fields in subtopologies:
        if fields.subtopology_id in by_id:
            return None
        by_id[fields.subtopology_id] = Subtopology(
            fields.subtopology_id,
            tuple(fields.source_topics),
            tuple(fields.source_topic_regex),
            tuple(map(internal_topic, fields.state_changelog_topics)),
            tuple(fields.repartition_sink_topics),
            tuple(map(internal_topic, fields.repartition_source_topics)),
            tuple(map(copartition_group, fields.copartition_groups)),
        )
    return Topology(epoch, {key: by_id[key] for key in hash_map_order(list(by_id))})


def internal_topic(fields: TopicInfoFields) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in fields.topic_configs)
    return InternalTopic(fields.name, fields.partitions, fields.replication_factor, configs)


def copartition_group(fields: CopartitionGroupFields) -> CopartitionGroup:
    return CopartitionGroup(
        tuple(fields.source_topics), tuple(fields.source_topic_regex), tuple(fields.repartition_source_topics)
    )


def hash_map_order(keys: Sequence[str]) -> list[str]:
    """The keys in the order in which a Java HashMap iterates over them if they were added in the given order. The keys
    are distinct.

    Apache Kafka sizes repartition topics in this order, and the result depends on it if a subtopology has an input of
    known and one of unknown size. A group that moves from Apache Kafka to this broker must get the sizes of the topics
    that exist already.
    """
    size = FIRST_TABLE_SIZE
    while len(keys) > size * LOAD_FACTOR:
        size *= 2
    return sorted(keys, key=lambda key: hash_map_bucket(key, size))


def hash_map_bucket(key: str, table_size: int) -> int:
    """The index of the bucket for a key in a Java HashMap with a table of this size, a power of two."""
    units = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return (code ^ code >> 16) & (table_size - 1)
