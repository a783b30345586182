"""CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from collections import Counter

from moldau.kraft.controller.context import THROTTLING_ERROR, DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.controller.topics.new_partitions import (
    NEW_PARTITIONS_MAX,
    TOO_MANY_PARTITIONS,
    automatic_assignments,
    partition_records,
    refusal_of_assignment,
)
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(context: DecisionContext, request: CreatePartitionsRequest) -> Decision:
    view = context.view
    counts = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if counts[topic.name] == 1]
    # DIVERGES: Apache Kafka bounds CreateTopics alone; here it fails with UNKNOWN_SERVER_ERROR after it created some of
    # the partitions.
    is_too_much = sum(additional_count(view.image, topic) for topic in once) > NEW_PARTITIONS_MAX
    records: list[object] = []
    results = []
    for topic in once:
        made = TOO_MANY_PARTITIONS if is_too_much else new_partition_records(view, topic)
        if not isinstance(made, ApiError) and not context.mutations.spend(additional_count(view.image, topic)):
            made = THROTTLING_ERROR
        if isinstance(made, ApiError):
            results.append(refused(topic.name, made))
            continue
        if not request.validate_only:
            records.extend(made)
        results.append(CreatePartitionsTopicResult(name=topic.name))
    repeated = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results.extend(refused(name, repeated) for name, count in counts.items() if count > 1)
    return Decision(records, CreatePartitionsResponse(results=results))


def additional_count(image: MetadataImage, topic: CreatePartitionsTopic) -> int:
    existing = image.topics.by_name(topic.name)
    return 0 if existing is None else max(0, topic.count - len(existing.partitions))


def refused(name: str, refusal: ApiError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=refusal.error, error_message=refusal.message)


def new_partition_records(view: ControllerView, wanted: CreatePartitionsTopic) -> list[object] | ApiError:
    topic = view.image.topics.by_name(wanted.name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    count = len(topic.partitions)
    if wanted.count == count:
        return ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wanted.count < count:
        return ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {count} partition(s); {wanted.count} would not be an increase.",
        )
    assignments = assignments_of(view, topic, wanted)
    if isinstance(assignments, ApiError):
        return assignments
    records = partition_records(view, topic.id, count, assignments)
    return records if isinstance(records, ApiError) else [*records]


def assignments_of(view: ControllerView, topic: Topic, wanted: CreatePartitionsTopic) -> list[list[int]] | ApiError:
    additional = wanted.count - len(topic.partitions)
    replication_factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return automatic_assignments(view, additional, replication_factor)
    if len(wanted.assignments) != additional:
        return ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)}"
            " assignment(s) were specified.",
        )
    for assignment in wanted.assignments:
        refusal = refusal_of_assignment(view, assignment.broker_ids, replication_factor)
        if refusal is not None:
            return refusal
    return [assignment.broker_ids for assignment in wanted.assignments]
