"""The requests and timers of streams groups."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.streams.configured_topology import ConfiguredInternalTopic
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


class DescribeStreamsGroup(NamedTuple):
    """A group of a StreamsGroupDescribe. The reply is a `DescribedGroup`."""

    waiter: Waiter
    group_id: str


class StreamsTimer(Enum):
    SESSION = auto()
    """The session timeout of a member."""
    REBALANCE = auto()
    """The time that a member has to revoke tasks."""
    INITIAL_REBALANCE = auto()
    """The delay of a group's first assignment, in which more members may join."""
