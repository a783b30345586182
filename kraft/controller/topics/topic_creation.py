"""CreateTopics: each topic is created or refused on its own. All records of a topic are in one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from moldau.kraft.controller.context import THROTTLING_ERROR, DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.controller.topics.new_partitions import (
    NEW_PARTITIONS_MAX,
    TOO_MANY_PARTITIONS,
    automatic_assignments,
    partition_records,
    refusal_of_assignment,
)
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.configs import NO_SETTINGS, ConfigResource, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.topic_names import CLUSTER_METADATA_TOPIC, metric_name, refusal_of_name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.records.metadata import ConfigRecord, TopicRecord

RESERVED_IDS_COUNT = 100
"""Topic ids below this number are reserved; the id of the metadata topic is one of them."""
PARTITIONS_AT_ONCE: Final = 16
"""The number of new partitions after which the event loop does other work. A topic of one partition takes about 100 µs,
each further partition 20 µs. A broker creates a similar number of logs in one call of an executor thread
(`broker/replicas/partition_work.py`).
"""
DEFAULT = -1
"""The number of partitions or the replication factor in a request that leaves the value to the broker's settings."""


class NewTopic(NamedTuple):
    """A topic to create: it exists once its records are committed."""

    name: str
    topic_id: bytes
    records: list[object]
    partitions_count: int
    replication_factor: int
    settings: dict[str, str]


class TopicChecks:
    """The checks of one CreateTopics request: the names that are accepted so far, and the settings that were checked
    already. Most topics of a request have the same settings.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self.metric_names: dict[str, str] = {}
        """The names of the accepted topics by metric name."""
        self._rules = settings.config_rules
        self._described: dict[tuple[tuple[str, str], ...], Sequence[CreatableTopicConfigs]] = {}
        """The descriptions of all settings of a topic, by overrides that were accepted."""

    def refusal_of_configs(self, name: str, overrides: Mapping[str, str | None]) -> ApiError | None:
        nulls = [key for key, value in overrides.items() if value is None]
        if nulls:
            return ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        values = {key: value for key, value in overrides.items() if value is not None}
        if tuple(values.items()) in self._described:
            return None
        return self._rules.refusal(ConfigResource(ResourceType.TOPIC, name), values, NO_SETTINGS)

    def described(self, values: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        """The descriptions of all settings of a topic with these overrides."""
        key = tuple(values.items())
        if key not in self._described:
            self._described[key] = self._rules.describe_topic(values)
        return self._described[key]


def create_topics(context: DecisionContext, request: CreateTopicsRequest) -> Decision:
    results: list[CreatableTopicResult] = []
    return Decision.of_batches(new_topics(context, request, results), CreateTopicsResponse(topics=results))


def new_topics(
    context: DecisionContext, request: CreateTopicsRequest, results: list[CreatableTopicResult]
) -> Iterator[Sequence[object]]:
    """Yield the records of the new topics; all records of a topic are in one batch. The result of each topic is
    appended to `results`."""
    view = context.view
    settings = view.settings
    counts = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if counts[topic.name] == 1]
    is_too_much = sum(new_partitions_count(topic, settings) for topic in once) > NEW_PARTITIONS_MAX
    seen = TopicChecks(settings)
    records: list[object] = []
    looked_at = 0
    for topic in once:
        if looked_at >= PARTITIONS_AT_ONCE:
            yield records
            records, looked_at = [], 0
        made = TOO_MANY_PARTITIONS if is_too_much else create_topic(view, topic, seen)
        if isinstance(made, NewTopic) and not context.mutations.spend(made.partitions_count):
            made = THROTTLING_ERROR
        if isinstance(made, ApiError):
            looked_at += 1
            results.append(refused(topic.name, made))
            continue
        looked_at += made.partitions_count
        seen.metric_names[metric_name(made.name)] = made.name
        if not request.validate_only:
            records.extend(made.records)
        results.append(created_result(made, seen))
    repeated = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results.extend(refused(name, repeated) for name, count in counts.items() if count > 1)
    yield records


def new_partitions_count(topic: CreatableTopic, settings: ControllerSettings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.num_partitions if topic.num_partitions == DEFAULT else max(0, topic.num_partitions)


def refused(name: str, refusal: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refusal.error, error_message=refusal.message)


def created_result(topic: NewTopic, seen: TopicChecks) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.partitions_count,
        replication_factor=topic.replication_factor,
        configs=list(seen.described(topic.settings)),
    )


def create_topic(view: ControllerView, topic: CreatableTopic, seen: TopicChecks) -> NewTopic | ApiError:
    """The topic with its records, or the error that refuses it."""
    image, settings = view.image, view.settings
    overrides = {config.name: config.value for config in topic.configs}
    refusal = (
        refusal_of_topic(image, topic.name, seen.metric_names)
        or seen.refusal_of_configs(topic.name, overrides)
        or refusal_of_counts(topic)
        or refusal_of_assignments(view, topic)
    )
    if refusal is not None:
        return refusal
    assignments = assignments_of(view, topic)
    if isinstance(assignments, ApiError):
        return assignments
    topic_id = new_topic_id(image, settings)
    partitions = partition_records(view, topic_id, 0, assignments)
    if isinstance(partitions, ApiError):
        return partitions
    values = {name: value for name, value in overrides.items() if value is not None}
    configs = [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in values.items()
    ]
    records = [TopicRecord(name=topic.name, topic_id=topic_id), *configs, *partitions]
    return NewTopic(topic.name, topic_id, records, len(partitions), len(assignments[0]), values)


def new_topic_id(image: MetadataImage, settings: ControllerSettings) -> bytes:
    """A new topic id. Its text does not begin with a dash, because a command line would parse the text as an option."""
    while True:
        topic_id = settings.new_uuid()
        starts_with_dash = topic_id[0] >> 2 == 62
        is_reserved = int.from_bytes(topic_id, "big") < RESERVED_IDS_COUNT
        if not starts_with_dash and not is_reserved and topic_id not in image.topics.by_id:
            return topic_id


def refusal_of_topic(image: MetadataImage, name: str, metric_names: dict[str, str]) -> ApiError | None:
    if name == CLUSTER_METADATA_TOPIC:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    message = refusal_of_name(name)
    if message is not None:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    if name in image.topics.ids:
        return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    # DIVERGES: Apache Kafka compares only with the topics that there were before the request, and creates both.
    holder = image.topics.metric_names.get(metric_name(name)) or metric_names.get(metric_name(name))
    if holder is not None:
        message = f"Topic '{name}' collides with existing topic: {holder}"
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    return None


def refusal_of_counts(topic: CreatableTopic) -> ApiError | None:
    if topic.assignments:
        prefix = "A manual partition assignment was specified, but"
        if topic.replication_factor != DEFAULT:
            return ApiError(ErrorCode.INVALID_REQUEST, f"{prefix} replication factor was not set to -1.")
        if topic.num_partitions != DEFAULT:
            return ApiError(ErrorCode.INVALID_REQUEST, f"{prefix} numPartitions was not set to -1.")
        return None
    if topic.replication_factor < 1 and topic.replication_factor != DEFAULT:
        return ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < 1 and topic.num_partitions != DEFAULT:
        return ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    return None


def refusal_of_assignments(view: ControllerView, topic: CreatableTopic) -> ApiError | None:
    seen: set[int] = set()
    replication_factor: int | None = None
    for assignment in topic.assignments:
        partition_id = assignment.partition_index
        if partition_id in seen:
            message = f"Found multiple manual partition assignments for partition {partition_id}"
            return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        seen.add(partition_id)
        refusal = refusal_of_assignment(view, assignment.broker_ids, replication_factor)
        if refusal is not None:
            return refusal
        replication_factor = len(assignment.broker_ids)
    if seen and seen != set(range(len(seen))):
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return None


def assignments_of(view: ControllerView, topic: CreatableTopic) -> Sequence[Sequence[int]] | ApiError:
    if topic.assignments:
        return [one.broker_ids for one in sorted(topic.assignments, key=lambda one: one.partition_index)]
    is_default = topic.replication_factor == DEFAULT
    factor = view.settings.default_replication_factor if is_default else topic.replication_factor
    return automatic_assignments(view, new_partitions_count(topic, view.settings), factor)
