"""The requests and timers of classic groups."""

from __future__ import annotations

from enum import auto
from typing import NamedTuple

from moldau.coordinator.group.group import TimerKind
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest


class Join(NamedTuple):
    waiter: Waiter
    request: JoinGroupRequest
    client_id: str
    client_host: str
    fresh_id: str
    """A random UUID as text, which the coordinator uses if the member needs an id."""

    @property
    def group_id(self) -> str:
        return self.request.group_id


class Sync(NamedTuple):
    waiter: Waiter
    request: SyncGroupRequest

    @property
    def group_id(self) -> str:
        return self.request.group_id


class Heartbeat(NamedTuple):
    waiter: Waiter
    request: HeartbeatRequest

    @property
    def group_id(self) -> str:
        return self.request.group_id


class AnswerHeartbeats(NamedTuple):
    """The command to answer the heartbeats of a group whose answers wait (`SettledHeartbeat.wait_max_ms`), because the
    group is not stable any more."""

    group_id: str
    error: ErrorCode


class Leave(NamedTuple):
    """A LeaveGroup request with a list of members. The broker translates versions 0 to 2, which name one member outside
    of a list, into a list of one member."""

    waiter: Waiter
    request: LeaveGroupRequest

    @property
    def group_id(self) -> str:
        return self.request.group_id


class ClassicTimer(TimerKind):
    SESSION = auto()
    """The session timeout of a member."""
    JOIN = auto()
    """The join phase of a rebalance, or the initial delay of the first rebalance of a group."""
    SYNC = auto()
    """The time within which every member of a new generation must send its SyncGroup request."""
