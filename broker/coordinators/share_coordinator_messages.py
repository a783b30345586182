"""Converts requests about share state into messages to share coordinators on other brokers, and the responses into
answers.

A message holds requests of one kind about one group, each share partition once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

from moldau.coordinator.share_coordinator.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadStateSummary,
    StateAnswer,
    StateRequest,
    WriteState,
)
from moldau.coordinator.share_coordinator.state import StateBatch
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import delete_share_group_state as delete
from moldau.protocol.messages import initialize_share_group_state as initialize
from moldau.protocol.messages import read_share_group_state as read
from moldau.protocol.messages import read_share_group_state_summary as summary
from moldau.protocol.messages import write_share_group_state as write

RequestT = TypeVar("RequestT", bound=StateRequest)
Answers: TypeAlias = Mapping[tuple[bytes, int], StateAnswer]
"""The answers by topic id and partition."""


def message_of(requests: Sequence[StateRequest]) -> object:
    """Make the message for requests that are of one kind and about one group."""
    group_id = requests[0].key.group_id
    match requests[0]:
        case InitializeState():
            begun = [
                initialize.InitializeStateData(
                    topic_id=topic_id, partitions=[initialize_entry(each) for each in of_topic]
                )
                for topic_id, of_topic in grouped_by_topic(requests, InitializeState).items()
            ]
            return initialize.InitializeShareGroupStateRequest(group_id=group_id, topics=begun)
        case ReadState():
            wanted = [
                read.ReadStateData(
                    topic_id=topic_id,
                    partitions=[
                        read.PartitionData(partition=each.key.partition, leader_epoch=each.leader_epoch)
                        for each in of_topic
                    ],
                )
                for topic_id, of_topic in grouped_by_topic(requests, ReadState).items()
            ]
            return read.ReadShareGroupStateRequest(group_id=group_id, topics=wanted)
        case ReadStateSummary():
            summed = [
                summary.ReadStateSummaryData(
                    topic_id=topic_id,
                    partitions=[
                        summary.PartitionData(partition=each.key.partition, leader_epoch=-1) for each in of_topic
                    ],
                )
                for topic_id, of_topic in grouped_by_topic(requests, ReadStateSummary).items()
            ]
            return summary.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=summed)
        case DeleteState():
            deleted = [
                delete.DeleteStateData(
                    topic_id=topic_id,
                    partitions=[delete.PartitionData(partition=each.key.partition) for each in of_topic],
                )
                for topic_id, of_topic in grouped_by_topic(requests, DeleteState).items()
            ]
            return delete.DeleteShareGroupStateRequest(group_id=group_id, topics=deleted)
        case WriteState():
            written = [
                write.WriteStateData(topic_id=topic_id, partitions=[write_entry(each) for each in of_topic])
                for topic_id, of_topic in grouped_by_topic(requests, WriteState).items()
            ]
            return write.WriteShareGroupStateRequest(group_id=group_id, topics=written)


def grouped_by_topic(requests: Sequence[StateRequest], kind: type[RequestT]) -> dict[bytes, list[RequestT]]:
    topics: dict[bytes, list[RequestT]] = {}
    for request in requests:
        assert isinstance(request, kind)
        topics.setdefault(request.key.topic_id, []).append(request)
    return topics


def initialize_entry(request: InitializeState) -> initialize.PartitionData:
    return initialize.PartitionData(
        partition=request.key.partition, state_epoch=request.state_epoch, start_offset=request.start_offset
    )


def write_entry(request: WriteState) -> write.PartitionData:
    return write.PartitionData(
        partition=request.key.partition,
        state_epoch=request.state_epoch,
        leader_epoch=request.leader_epoch,
        start_offset=request.start_offset,
        delivery_complete_count=request.delivery_complete_count,
        state_batches=[
            write.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in request.batches
        ],
    )


def answers_of(response: object) -> Answers:
    """The answers in a response of a share coordinator."""
    match response:
        case read.ReadShareGroupStateResponse():
            return {
                (topic.topic_id, each.partition): read_answer(each)
                for topic in response.results
                for each in topic.partitions
            }
        case summary.ReadShareGroupStateSummaryResponse():
            return {
                (topic.topic_id, each.partition): summary_answer(each)
                for topic in response.results
                for each in topic.partitions
            }
    assert isinstance(
        response,
        initialize.InitializeShareGroupStateResponse
        | write.WriteShareGroupStateResponse
        | delete.DeleteShareGroupStateResponse,
    )
    return {
        (topic.topic_id, each.partition): StateAnswer(ErrorCode(each.error_code), each.error_message)
        for topic in response.results
        for each in topic.partitions
    }


def read_answer(result: read.PartitionResult) -> StateAnswer:
    return StateAnswer(
        ErrorCode(result.error_code),
        result.error_message,
        state_epoch=result.state_epoch,
        start_offset=result.start_offset,
        batches=tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in result.state_batches
        ),
    )


def summary_answer(result: summary.PartitionResult) -> StateAnswer:
    return StateAnswer(
        ErrorCode(result.error_code),
        result.error_message,
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        result.delivery_complete_count,
    )
