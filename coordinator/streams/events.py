"""The requests and timers of streams groups."""

from __future__ import annotations

from collections.abc import Mapping
from enum import auto
from typing import NamedTuple

from moldau.coordinator.group.group import TimerKind
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.streams.configured_topology import ConfiguredInternalTopic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


class StreamsHeartbeat(NamedTuple):
    """A StreamsGroupHeartbeat: a member joins, stays, or leaves. The reply is a `HeartbeatReply`.

    The broker has authorized the request, and has checked the names of the topics.
    """

    waiter: Waiter
    request: StreamsGroupHeartbeatRequest
    client_id: str
    client_host: str

    @property
    def group_id(self) -> str:
        return self.request.group_id


class HeartbeatReply(NamedTuple):
    response: StreamsGroupHeartbeatResponse
    topics_to_create: Mapping[str, ConfiguredInternalTopic]
    """The missing internal topics, by name. The broker creates them if the client is authorized."""


def heartbeat_response(member_id: str, member_epoch: int) -> StreamsGroupHeartbeatResponse:
    """A StreamsGroupHeartbeat response without an assignment. The fields for warm-up tasks are 0, because there are
    none, as in Apache Kafka 4.3.1; in version 1 `acceptable_recovery_lag` is -1, which also means that there are
    none."""
    return StreamsGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=member_epoch,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        endpoint_information_epoch=0,
    )


def refusal_response(error: ErrorCode, message: str | None = None) -> StreamsGroupHeartbeatResponse:
    response = heartbeat_response("", 0)
    response.error_code, response.error_message = error, message
    return response


class DescribeStreamsGroup(NamedTuple):
    """One group of a StreamsGroupDescribe. The reply is a `DescribedGroup`."""

    waiter: Waiter
    group_id: str


class StreamsTimer(TimerKind):
    SESSION = auto()
    """The session timeout of a member."""
    REBALANCE = auto()
    """The time within which a member must revoke tasks."""
    INITIAL_REBALANCE = auto()
    """The delay of a group's first assignment, in which more members may join."""
    TARGET = auto()
    """The timer runs while a thread computes the target assignment of the group."""
