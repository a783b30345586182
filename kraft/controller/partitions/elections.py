"""ElectLeaders, and the periodic elections that give leadership back to preferred leaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.controller.partitions.leadership import rules_of
from moldau.kraft.controller.partitions.partition_change import Election, RequestedChange, change_of
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.topics import NO_LEADER, PartitionRegistration, Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from moldau.protocol.records.metadata import PartitionChangeRecord

TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
NOT_NEEDED: Final = ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
NOT_AVAILABLE: Final = {
    Election.PREFERRED: ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    Election.UNCLEAN: ApiError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
    ),
}


def elect_leaders(context: DecisionContext, request: ElectLeadersRequest) -> Decision:
    view = context.view
    election = TYPES.get(request.election_type)
    if election is None:
        return Decision((), refused(request))
    response = ElectLeadersResponse(replica_election_results=[])
    is_for_all = request.topic_partitions is None
    asked = all_partitions(view) if request.topic_partitions is None else request.topic_partitions
    elected = _elected(view, asked, election, response.replica_election_results, is_for_all=is_for_all)
    return Decision.in_slices(elected if is_for_all else [*elected], response)


def _elected(
    view: ControllerView,
    asked: Iterable[TopicPartitions],
    election: Election,
    results: list[ReplicaElectionResult],
    *,
    is_for_all: bool,
) -> Iterator[PartitionChangeRecord | None]:
    """Yield the record of each partition that gets another leader, and None for each other one. The results are added
    to `results`; if `is_for_all`, without the partitions that need no election."""
    for topic in asked:
        answers: list[PartitionResult] = []
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=answers))
        for partition_id in topic.partitions:
            made = elect_partition_leader(view, topic.topic, partition_id, election)
            error, message = made if isinstance(made, ApiError) else (ErrorCode.NONE, None)
            if made is not NOT_NEEDED or not is_for_all:
                answers.append(PartitionResult(partition_id=partition_id, error_code=error, error_message=message))
            yield None if isinstance(made, ApiError) else made


def all_partitions(view: ControllerView) -> Iterator[TopicPartitions]:
    for topic in view.image.topics.by_id.values():
        yield TopicPartitions(topic=topic.name, partitions=sorted(topic.partitions))


def refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    message = f"Unknown election type {request.election_type}"
    error = ErrorCode.INVALID_REQUEST
    return ElectLeadersResponse(
        error_code=error,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=partition_id, error_code=error, error_message=message)
                    for partition_id in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def elect_partition_leader(
    view: ControllerView, topic_name: str, partition_id: int, election: Election
) -> PartitionChangeRecord | ApiError:
    topic = view.image.topics.by_name(topic_name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
    partition = topic.partitions.get(partition_id)
    if partition is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{partition_id}")
    is_preferred = partition.leader == partition.replicas[0]
    is_led = partition.leader != NO_LEADER
    if is_preferred if election is Election.PREFERRED else is_led:
        return NOT_NEEDED
    record = election_record(view, topic, partition_id, partition, election)
    return NOT_AVAILABLE[election] if record is None else record


def election_record(
    view: ControllerView, topic: Topic, partition_id: int, partition: PartitionRegistration, election: Election
) -> PartitionChangeRecord | None:
    rules = rules_of(view, topic, view.eligibility_of(partition))
    return change_of(topic.id, partition_id, partition, RequestedChange(election=election), rules)


# Periodic elections


def preferred_elections(view: ControllerView, count_max: int) -> list[PartitionChangeRecord]:
    """The records of elections of preferred leaders, at most `count_max`. There is one for each partition that another
    replica leads, if its preferred leader may lead.
    """
    return list(islice(_preferred(view), count_max))


def _preferred(view: ControllerView) -> Iterator[PartitionChangeRecord]:
    for topic, partition_id, partition in view.partitions(view.by_broker.imbalanced):
        record = election_record(view, topic, partition_id, partition, Election.PREFERRED)
        if record is not None:
            yield record
