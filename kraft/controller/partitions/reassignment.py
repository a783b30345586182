"""Reassignment of replicas: AlterPartitionReassignments begins or cancels it, AlterPartition completes it.

    replicas R ── begin, target T ──▶ T, then R without T; adding T without R, removing R without T
       ▲                                   │
       └──── cancel: without adding        └── all of adding in sync, and a replica not in removing ──▶ replicas T

A reassignment that only removes replicas, or only changes their order, ends at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.controller.partitions.leadership import rules_of
from moldau.kraft.controller.partitions.partition_change import Election, RequestedChange, change_of
from moldau.kraft.controller.topics.new_partitions import refusal_of_assignment
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.topics import PartitionRegistration, Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import list_partition_reassignments as listing
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from moldau.protocol.records.metadata import PartitionChangeRecord


def alter_reassignments(context: DecisionContext, request: AlterPartitionReassignmentsRequest) -> Decision:
    if not request.topics:
        return Decision([], AlterPartitionReassignmentsResponse(error_message=""))  # As in Apache Kafka.
    view = context.view
    records: list[object] = []
    responses = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            made = reassign_partition(
                view, topic.name, asked, may_change_factor=request.allow_replication_factor_change
            )
            answer = ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)
            if isinstance(made, ApiError):
                answer.error_code, answer.error_message = made
            elif made is not None:
                records.append(made)
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    reply = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return Decision(records, reply)


def reassign_partition(
    view: ControllerView, topic_name: str, asked: ReassignablePartition, *, may_change_factor: bool
) -> PartitionChangeRecord | ApiError | None:
    topic = view.image.topics.by_name(topic_name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic_name}.")
    partition = topic.partitions.get(asked.partition_index)
    if partition is None:
        message = f"Unable to find partition {topic_name}:{asked.partition_index}."
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if asked.replicas is None:
        wanted = cancel_reassignment(view, topic, asked.partition_index, partition)
    else:
        wanted = begin_reassignment(view, partition, asked.replicas, may_change_factor=may_change_factor)
    if isinstance(wanted, ApiError):
        return wanted
    rules = rules_of(view, topic, view.eligibility_of(partition))
    return change_of(topic.id, asked.partition_index, partition, wanted, rules)


def begin_reassignment(
    view: ControllerView, partition: PartitionRegistration, target: Sequence[int], *, may_change_factor: bool
) -> RequestedChange | ApiError:
    """The change that begins a reassignment to the replicas of `target`, or the error that refuses it. If an unfinished
    reassignment is replaced, the new one starts from all current replicas. A replica that the unfinished one was adding
    is removed if it is not in `target`; a replica that it was removing stays if it is in `target`.

    DIVERGES: in Apache Kafka, if the second target itself adds (or removes) nothing, the additions (or removals) of the
    first remain. A replica may then be both added and removed, so that the reassignment never ends, or a wanted replica
    is removed.
    """
    refusal = refusal_of_assignment(view, target, None)
    if refusal is not None:
        return refusal
    factor = len(set(partition.replicas) - set(partition.removing_replicas))
    if not may_change_factor and factor != len(target):
        message = f"The replication factor is changed from {factor} to {len(target)}"
        return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    removing = [replica for replica in partition.replicas if replica not in target]
    present = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    adding = [replica for replica in target if replica not in present]
    return RequestedChange(replicas=[*target, *removing], removing=removing, adding=adding)


def cancel_reassignment(
    view: ControllerView, topic: Topic, index: int, partition: PartitionRegistration
) -> RequestedChange | ApiError:
    """The change that cancels a reassignment: it removes the added replicas.

    If no remaining replica is in sync, the change asks for an unclean election. Returns an error if no reassignment is
    in progress, or if unclean elections would be needed and are not allowed.
    """
    if not is_under_way(partition):
        return ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    isr = [replica for replica in partition.isr if replica not in partition.adding_replicas]
    replicas = [replica for replica in partition.replicas if replica not in partition.adding_replicas]
    election = Election.ONLINE
    if not replicas:
        message = "Invalid replica assignment: addingReplicas contains all replicas."
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if not isr:
        if not view.allows_unclean(topic.name):
            return ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean"
                " leader election.",
            )
        isr, election = replicas[:1], Election.UNCLEAN
    return RequestedChange(isr=isr, replicas=replicas, removing=[], adding=[], election=election)


def is_under_way(partition: PartitionRegistration) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


# Listing


def list_reassignments(context: DecisionContext, request: listing.ListPartitionReassignmentsRequest) -> Decision:
    view = context.view
    asked = all_reassignments(view) if request.topics is None else named_reassignments(view, request.topics)
    topics: dict[str, listing.OngoingTopicReassignment] = {}
    for topic, index, partition in asked:
        if is_under_way(partition):
            ongoing = topics.setdefault(topic.name, listing.OngoingTopicReassignment(name=topic.name))
            ongoing.partitions.append(
                listing.OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
            )
    reply = listing.ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
    return Decision((), reply)


def all_reassignments(view: ControllerView) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    return view.partitions(view.by_broker.reassigned)


def named_reassignments(
    view: ControllerView, topics: Iterable[listing.ListPartitionReassignmentsTopics]
) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    """Yield the partitions that the request names, with their topic and index. A partition that does not exist is left
    out."""
    for asked in topics:
        topic = view.image.topics.by_name(asked.name)
        for index in asked.partition_indexes if topic is not None else ():
            partition = topic.partitions.get(index) if topic is not None else None
            if topic is not None and partition is not None:
                yield topic, index, partition
