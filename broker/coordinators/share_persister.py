"""Passes requests about share state to the share coordinator, on this broker or another.

request ──▶ leader of the key's partition ──▶ here: an event of the machine        ──▶ answered
                                          └▶ another broker: a request to it       ──▶ answered
no topic, no leader, not the coordinator any more, loading: again after a pause, `ATTEMPTS` times
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from moldau.broker.coordinators.share_state import ShareCoordinator
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.peer_channel import NoResponse, PeerChannels
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.share_state.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadStateSummary,
    StateAnswer,
    StateRequest,
    WriteState,
)
from moldau.coordinator.share_state.state import StateBatch
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import delete_share_group_state as delete
from moldau.protocol.messages import initialize_share_group_state as initialize
from moldau.protocol.messages import read_share_group_state as read
from moldau.protocol.messages import read_share_group_state_summary as summary
from moldau.protocol.messages import write_share_group_state as write

Answered: TypeAlias = Callable[[StateAnswer], None]

PURPOSE: Final = "share state"
ATTEMPTS: Final = 8
FIRST_RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1_000
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
NOBODY: Final = Waiter(None, 0)
"""The waiter of a request that is not passed to a machine yet."""


class AnswerToken(NamedTuple):
    """The token by which the coordinator of this broker answers."""

    answered: Answered

    def complete(self, response: object) -> None:
        assert isinstance(response, StateAnswer)
        self.answered(response)


class ShareStatePersister:
    """`listener_name`: the listener between brokers; `timeout_ms`: the timeout of a request to one of them."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        cluster: ClusterView,
        channels: PeerChannels,
        topics: TopicCreation,
        coordinator: ShareCoordinator,
        listener_name: str,
        timeout_ms: int,
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._cluster = cluster
        self._channels = channels
        self._topics = topics
        self._coordinator = coordinator
        self._listener_name = listener_name
        self._timeout_ms = timeout_ms

    def ask(self, request: StateRequest, answered: Answered) -> None:
        """Ask the coordinator of the request's key. `answered` is called once, at once or later, on the loop."""
        self._attempt(request, answered, 1)

    def _attempt(self, request: StateRequest, answered: Answered, number: int) -> None:
        def ended(answer: StateAnswer) -> None:
            if answer.error in RETRIABLE and number < ATTEMPTS:
                pause_ms = min(FIRST_RETRY_MS << (number - 1), RETRY_MS_MAX)
                self._loop.call_later(pause_ms / 1000, self._attempt, request, answered, number + 1)
            else:
                answered(answer)

        topic = self._coordinator.shards.topic
        index = self._coordinator.partition_of(request.key)
        partition = self._cluster.image.topics.partition(topic.name, index)
        if partition is None:
            self._topics.create_internal(topic)
            ended(StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif partition.leader == self._node_id:
            self._ask_here(request, ended)
        else:
            self._ask_broker(partition.leader, request, ended)

    def _ask_here(self, request: StateRequest, ended: Answered) -> None:
        runner = self._coordinator.runner_of(request.key)
        if isinstance(runner, ErrorCode):
            ended(StateAnswer(runner))
        else:
            runner.submit(request._replace(waiter=Waiter(AnswerToken(ended), 0)))

    def _ask_broker(self, broker_id: int, request: StateRequest, ended: Answered) -> None:
        broker = self._cluster.image.cluster.brokers.get(broker_id)
        endpoint = broker.endpoints.get(self._listener_name) if broker is not None else None
        if endpoint is None:
            ended(StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        channel = self._channels.to(PURPOSE, endpoint.host, endpoint.port)
        channel.ask(message_of(request), partial(_replied, ended), self._timeout_ms)


def _replied(ended: Answered, response: object) -> None:
    ended(StateAnswer(ErrorCode.NETWORK_EXCEPTION) if isinstance(response, NoResponse) else answer_of(response))


def message_of(request: StateRequest) -> object:
    """The request to another broker."""
    group_id, topic_id, partition = request.key
    match request:
        case InitializeState():
            first = initialize.PartitionData(
                partition=partition, state_epoch=request.state_epoch, start_offset=request.start_offset
            )
            begun = initialize.InitializeStateData(topic_id=topic_id, partitions=[first])
            return initialize.InitializeShareGroupStateRequest(group_id=group_id, topics=[begun])
        case ReadState():
            wanted = read.PartitionData(partition=partition, leader_epoch=request.leader_epoch)
            topic = read.ReadStateData(topic_id=topic_id, partitions=[wanted])
            return read.ReadShareGroupStateRequest(group_id=group_id, topics=[topic])
        case ReadStateSummary():
            one = summary.PartitionData(partition=partition, leader_epoch=-1)
            summed = summary.ReadStateSummaryData(topic_id=topic_id, partitions=[one])
            return summary.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=[summed])
        case DeleteState():
            deleted = delete.DeleteStateData(topic_id=topic_id, partitions=[delete.PartitionData(partition=partition)])
            return delete.DeleteShareGroupStateRequest(group_id=group_id, topics=[deleted])
        case WriteState():
            return write_message(request)


def write_message(request: WriteState) -> write.WriteShareGroupStateRequest:
    data = write.PartitionData(
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
    topic = write.WriteStateData(topic_id=request.key.topic_id, partitions=[data])
    return write.WriteShareGroupStateRequest(group_id=request.key.group_id, topics=[topic])


def answer_of(response: object) -> StateAnswer:
    """The answer in the response of another broker, which has one partition."""
    match response:
        case read.ReadShareGroupStateResponse():
            state = response.results[0].partitions[0]
            return StateAnswer(
                ErrorCode(state.error_code),
                state.error_message,
                state_epoch=state.state_epoch,
                start_offset=state.start_offset,
                batches=tuple(
                    StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                    for each in state.state_batches
                ),
            )
        case summary.ReadShareGroupStateSummaryResponse():
            sums = response.results[0].partitions[0]
            return StateAnswer(
                ErrorCode(sums.error_code),
                sums.error_message,
                sums.state_epoch,
                sums.leader_epoch,
                sums.start_offset,
                sums.delivery_complete_count,
            )
    assert isinstance(
        response,
        initialize.InitializeShareGroupStateResponse
        | write.WriteShareGroupStateResponse
        | delete.DeleteShareGroupStateResponse,
    )
    result = response.results[0].partitions[0]
    return StateAnswer(ErrorCode(result.error_code), result.error_message)
