"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary (API keys 83 to 87; KIP-932): other brokers ask the share coordinator of this one.

Each share partition of a request is an event of its own shard; the response comes when all of them are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.lists import one_pass
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import cut
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share_coordinator.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadStateSummary,
    StateAnswer,
    StateRequest,
    WriteState,
)
from moldau.coordinator.share_coordinator.state import ShareKey, StateBatch
from moldau.protocol.errors import ERROR_TEXTS, ErrorCode
from moldau.protocol.messages import (
    delete_share_group_state as delete,
)
from moldau.protocol.messages import (
    initialize_share_group_state as initialize,
)
from moldau.protocol.messages import (
    read_share_group_state as read,
)
from moldau.protocol.messages import (
    read_share_group_state_summary as summary,
)
from moldau.protocol.messages import (
    write_share_group_state as write,
)
from moldau.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from moldau.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from moldau.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from moldau.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from moldau.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

Request: TypeAlias = (
    initialize.InitializeShareGroupStateRequest
    | read.ReadShareGroupStateRequest
    | write.WriteShareGroupStateRequest
    | delete.DeleteShareGroupStateRequest
    | summary.ReadShareGroupStateSummaryRequest
)
Response: TypeAlias = (
    initialize.InitializeShareGroupStateResponse
    | read.ReadShareGroupStateResponse
    | write.WriteShareGroupStateResponse
    | delete.DeleteShareGroupStateResponse
    | summary.ReadShareGroupStateSummaryResponse
)
BATCHES_MAX: Final = 10_000
"""The most batches of a share partition in a write. DIVERGES: Apache Kafka has no such limit; a share group has at most
as many records in flight as `group.share.max.partition.max.record.locks` says.
"""


def handle(services: Services, context: RequestContext, request: Request) -> Pending[Response]:
    """The answers for all share partitions of the request. A request without any has an empty response."""
    answers: list[StateAnswer | Pending[StateAnswer]] = []
    for key, data in partitions_of(request):
        if isinstance(data, write.PartitionData) and len(data.state_batches) > BATCHES_MAX:
            answers.append(StateAnswer(ErrorCode.INVALID_REQUEST))
            continue
        event = partial(event_of, data, key)
        answers.append(submit_event(services.share_coordinator.runner_of(key), context.version, event, StateAnswer))
    return join_answers(answers, partial(response_of, request))


def partitions_of(request: Request) -> Iterator[tuple[ShareKey, object]]:
    """The keys of a request with their entries; none if a part of the request is empty."""
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return
    for topic in request.topics:
        for each in topic.partitions:
            yield ShareKey(request.group_id, topic.topic_id, each.partition), each


def event_of(data: object, key: ShareKey, waiter: Waiter) -> StateRequest:
    """The event for one entry of a request."""
    match data:
        case initialize.PartitionData():
            return InitializeState(waiter, key, data.state_epoch, data.start_offset)
        case read.PartitionData():
            return ReadState(waiter, key, data.leader_epoch)
        case summary.PartitionData():
            return ReadStateSummary(waiter, key)
        case delete.PartitionData():
            return DeleteState(waiter, key)
    assert isinstance(data, write.PartitionData)
    return WriteState(
        waiter,
        key,
        data.state_epoch,
        data.leader_epoch,
        data.start_offset,
        data.delivery_complete_count,
        tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in data.state_batches
        ),
    )


def message_of(answer: StateAnswer) -> str | None:
    return answer.message or ERROR_TEXTS.get(answer.error)


def response_of(request: Request, answers: Sequence[StateAnswer]) -> Response:
    by_topic: dict[bytes, list[tuple[int, StateAnswer]]] = {}
    for (key, _), answer in zip(partitions_of(request), answers, strict=True):
        by_topic.setdefault(key.topic_id, []).append((key.partition, answer))
    response, result, partition_result = RESULTS[type(request)]
    return response(
        results=[
            result(topic_id=topic_id, partitions=[partition_result(*entry) for entry in entries])
            for topic_id, entries in by_topic.items()
        ]
    )


def outcome(make: Callable[..., object], partition: int, answer: StateAnswer) -> object:
    """The result of an API that answers only whether it succeeded."""
    return make(partition=partition, error_code=answer.error, error_message=message_of(answer))


def read_result(partition: int, answer: StateAnswer) -> read.PartitionResult:
    is_error = answer.error is not ErrorCode.NONE
    return read.PartitionResult(
        partition=partition,
        error_code=answer.error,
        error_message=message_of(answer),
        state_epoch=answer.state_epoch,
        start_offset=0 if is_error else answer.start_offset,
        state_batches=[
            read.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in answer.batches
        ],
    )


def summary_result(partition: int, answer: StateAnswer) -> summary.PartitionResult:
    is_error = answer.error is not ErrorCode.NONE
    return summary.PartitionResult(
        partition=partition,
        error_code=answer.error,
        error_message=message_of(answer),
        state_epoch=answer.state_epoch,
        leader_epoch=answer.leader_epoch,
        start_offset=0 if is_error else answer.start_offset,
        delivery_complete_count=answer.delivery_complete_count,
    )


RESULTS: Final[Mapping[type, tuple[Callable[..., Response], Callable[..., object], Callable[..., object]]]] = {
    initialize.InitializeShareGroupStateRequest: (
        initialize.InitializeShareGroupStateResponse,
        initialize.InitializeStateResult,
        partial(outcome, initialize.PartitionResult),
    ),
    write.WriteShareGroupStateRequest: (
        write.WriteShareGroupStateResponse,
        write.WriteStateResult,
        partial(outcome, write.PartitionResult),
    ),
    delete.DeleteShareGroupStateRequest: (
        delete.DeleteShareGroupStateResponse,
        delete.DeleteStateResult,
        partial(outcome, delete.PartitionResult),
    ),
    read.ReadShareGroupStateRequest: (read.ReadShareGroupStateResponse, read.ReadStateResult, read_result),
    summary.ReadShareGroupStateSummaryRequest: (
        summary.ReadShareGroupStateSummaryResponse,
        summary.ReadStateSummaryResult,
        summary_result,
    ),
}
"""By request: the response, the result of a topic, and what makes the result of a partition."""


STATES_SIZE: Final = 256
"""Share partitions of a part: their records are that many batches at most."""

APIS: Final = (
    Api(
        InitializeShareGroupStateRequest,
        broker=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[cut("topics.partitions", "results.partitions", size=STATES_SIZE)],
    ),
    Api(
        ReadShareGroupStateRequest,
        broker=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[cut("topics.partitions", "results.partitions", size=STATES_SIZE)],
    ),
    Api(
        WriteShareGroupStateRequest,
        broker=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[
            cut("topics.partitions", "results.partitions", size=STATES_SIZE),
            one_pass("the handler refuses a share partition with more than 10,000", "topics.partitions.state_batches"),
        ],
    ),
    Api(
        DeleteShareGroupStateRequest,
        broker=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[cut("topics.partitions", "results.partitions", size=STATES_SIZE)],
    ),
    Api(
        ReadShareGroupStateSummaryRequest,
        broker=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[cut("topics.partitions", "results.partitions")],
    ),
)
