"""The APIs by which brokers ask the share coordinator on this broker for the state of share partitions (KIP-932).

InitializeShareGroupState (API key 83, version 0; KIP-932): a share partition begins at an offset. ReadShareGroupState
(API key 84, version 0; KIP-932): the start offset and the batches in flight. WriteShareGroupState (API key 85, versions
0-1; KIP-932, KIP-1226): what has changed of them.
1: the number of records whose delivery is complete (KIP-1226).
DeleteShareGroupState (API key 86, version 0; KIP-932): forgets a share partition.
ReadShareGroupStateSummary (API key 87, versions 0-1; KIP-932, KIP-1226): the start offset alone.
1: the number of records whose delivery is complete (KIP-1226).

Each share partition of a request is an event of the shard that stores its state. The response is sent when all are
answered. It has the last answer for a share partition that is named twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.coordinator import join_answers, submit_event
from moldau.broker.apis.lists import OnePass, one_pass
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import SIZE, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Pending, Reply
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
from moldau.protocol.messages import read_share_group_state as read
from moldau.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from moldau.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from moldau.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from moldau.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from moldau.protocol.schema import fields_of, response_class_of, struct_of
from moldau.security.access import AclOperation

BATCHES_MAX: Final = 10_000
"""The most batches of a share partition in a write. DIVERGES: Apache Kafka has no such limit; a share group has at most
as many records in flight as `group.share.max.partition.max.record.locks` says.
"""


def handle(services: Services, context: RequestContext, request: Any) -> Pending[object]:
    """Submit an event for each share partition of a request. A request without share partitions gets an empty
    response."""
    answers: list[Reply[StateAnswer]] = []
    event_of = EVENTS[type(request)]
    for key, data in partitions_of(request):
        if isinstance(request, WriteShareGroupStateRequest) and len(data.state_batches) > BATCHES_MAX:
            answers.append(StateAnswer(ErrorCode.INVALID_REQUEST))
            continue
        event = partial(event_of, data, key)
        answers.append(submit_event(services.share_coordinator.runner_of(key), context.version, event, StateAnswer))
    return join_answers(answers, partial(response_of, request))


def partitions_of(request: Any) -> Iterator[tuple[ShareKey, Any]]:
    """The keys of a request's share partitions, with their elements. Empty if the group id or the partitions of a topic
    are missing."""
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return
    for topic in request.topics:
        for each in topic.partitions:
            yield ShareKey(request.group_id, topic.topic_id, each.partition), each


def write_event(data: Any, key: ShareKey, waiter: Waiter) -> WriteState:
    epochs = data.state_epoch, data.leader_epoch
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in data.state_batches
    )
    return WriteState(waiter, key, *epochs, data.start_offset, data.delivery_complete_count, batches)


EVENTS: Final[Mapping[type, Callable[[Any, ShareKey, Waiter], StateRequest]]] = {
    InitializeShareGroupStateRequest: lambda data, key, waiter: InitializeState(
        waiter, key, data.state_epoch, data.start_offset
    ),
    read.ReadShareGroupStateRequest: lambda data, key, waiter: ReadState(waiter, key, data.leader_epoch),
    WriteShareGroupStateRequest: write_event,
    DeleteShareGroupStateRequest: lambda data, key, waiter: DeleteState(waiter, key),
    ReadShareGroupStateSummaryRequest: lambda data, key, waiter: ReadStateSummary(waiter, key),
}
"""The function that makes the event for one entry of a request, by the class of the request."""


def response_of(request: object, answers: Sequence[StateAnswer]) -> object:
    response: Any = response_class_of(type(request))()
    topic_class: Any = struct_of(type(response), "results")
    result = partial(partition_result, struct_of(topic_class, "partitions"))
    by_topic: dict[bytes, dict[int, StateAnswer]] = {}
    for (key, _), answer in zip(partitions_of(request), answers, strict=True):
        by_topic.setdefault(key.topic_id, {})[key.partition] = answer
    for topic_id, found in by_topic.items():
        response.results.append(topic_class(topic_id=topic_id, partitions=[*map(result, found, found.values())]))
    return response


def partition_result(result_class: type[Any], partition: int, answer: StateAnswer) -> object:
    """Make the result of a share partition, with those fields of `answer` that `result_class` has."""
    is_error = answer.error is not ErrorCode.NONE
    known = {
        "partition": partition,
        "error_code": answer.error,
        "error_message": answer.message or ERROR_TEXTS.get(answer.error),
        "state_epoch": answer.state_epoch,
        "leader_epoch": answer.leader_epoch,
        "start_offset": 0 if is_error else answer.start_offset,
        "delivery_complete_count": answer.delivery_complete_count,
        "state_batches": [
            read.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in answer.batches
        ],
    }
    return result_class(**{field.name: known[field.name] for field in fields_of(result_class)})


STATES_SIZE: Final = 256
"""The most share partitions in a part of a request. Their records are at most as many batches."""


def state_api(request: type[Any], *further: OnePass, size: int = STATES_SIZE) -> Api[Any]:
    needed = needs_cluster(AclOperation.CLUSTER_ACTION)
    states = in_parts("topics.partitions", "results.partitions", size=size)
    return Api(request, broker=handle, needs=needed, lists=[states, *further])


APIS: Final = (
    state_api(InitializeShareGroupStateRequest),
    state_api(read.ReadShareGroupStateRequest),
    state_api(
        WriteShareGroupStateRequest,
        one_pass("the handler refuses a share partition with more than 10,000", "topics.partitions.state_batches"),
    ),
    state_api(DeleteShareGroupStateRequest),
    state_api(ReadShareGroupStateSummaryRequest, size=SIZE),
)
