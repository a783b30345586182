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

    The shell has checked the rights of the client, and the names of the topics.
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
    """The internal topics that the shell creates if the client has the right to."""


def heartbeat_response(member_id: str, member_epoch: int) -> StreamsGroupHeartbeatResponse:
    """A response without an assignment. There are no warm-up tasks: their fields are 0, as in Apache Kafka 4.3.1, and
    in version 1 `acceptable_recovery_lag` is -1, which means the same.
    """
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
    """A group of a StreamsGroupDescribe. The reply is a `DescribedGroup`."""

    waiter: Waiter
    group_id: str


class StreamsTimer(TimerKind):
    SESSION = auto()
    """The session timeout of a member."""
    REBALANCE = auto()
    """The time that a member has to revoke tasks."""
    INITIAL_REBALANCE = auto()
    """The delay of a group's first assignment. More members may join during the delay."""
    TARGET = auto()
    """The timer runs while a thread computes the target assignment of the group."""
