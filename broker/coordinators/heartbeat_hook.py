"""The heartbeat hook of a connection: answers a heartbeat without decoding it if its frame repeats the previous
heartbeat.

Nearly all heartbeats of a member differ only in the correlation id, and only prolong the session. When such a heartbeat
was decoded (`SettledHeartbeat`), the hook keeps its frame and its reply. An equal frame gets this reply, as long as
nothing has changed on which the coordinator's decision was based, and the client may still read the group. Any other
frame is decoded and handled as usual.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.coordinators.held_heartbeats import CLIENTS
from moldau.broker.network.route import ClientConnection, FrameAnswer, FrameHook, RequestContext, Route
from moldau.broker.runtime.environment import Environment
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.coordinators.groups import GroupRunner, Groups
    from moldau.coordinator.group.group import RequestOfGroup, SettledHeartbeat

BODY_POSITION: Final = 8
"""The position in a frame after the API key, the version and the correlation id."""
FRAME_SIZE_MAX: Final = 1024
"""The largest frame (bytes) that is kept. A client chooses the size of its ids and of unknown tagged fields."""
REPLY_SIZE: Final = struct.Struct(">i").pack
HEAD: Final = struct.Struct(">hhi").unpack_from


class HeartbeatHook(FrameHook):
    """The hook of one connection, for the heartbeats of one kind of group. Every member has one, so it keeps little."""

    def __init__(
        self,
        route: Route,
        groups: Groups,
        environment: Environment,
        event_of: Callable[[RequestContext, object], RequestOfGroup | None],
    ) -> None:
        """`event_of` makes the event of a request for the state machine. It returns None for a request that this hook
        must not answer.
        """
        super().__init__(route)
        self._groups = groups
        self._environment = environment
        self._event_of = event_of
        self._heartbeat: SettledHeartbeat | None = None
        """The last decoded heartbeat; None if the next one must be decoded. The five below belong to it."""
        self._version = 0
        self._body = b""
        """Its frame after the correlation id."""
        self._reply_tail = b""
        """The reply after the correlation id."""
        self._wait_max_ms = 0
        """How long (ms) its answer may wait for a rebalance; 0 if it must not wait."""
        self._runner: GroupRunner | None = None
        self._access: Access | None = None
        """The access of the client by which the heartbeat was allowed, while the access has this stamp."""
        self._stamp = 0

    def answer(self, connection: ClientConnection, frame: memoryview) -> FrameAnswer | None:
        heartbeat, body = self._heartbeat, self._body
        if heartbeat is None or len(frame) != BODY_POSITION + len(body):
            return None
        key, version, _ = HEAD(frame)
        if key != self.route.key or version != self._version or bytes(frame[BODY_POSITION:]) != body:
            return None
        runner = self._runner
        if (
            runner is None
            or not self._is_allowed(connection.access, heartbeat)
            or not runner.is_idle
            or not runner.shard.prolong_session(heartbeat, self._environment.monotonic_ms())
        ):
            self._forget()
            return None
        if self._wait_max_ms:
            held = self._groups.held_heartbeats.hold(heartbeat.timer.group_id, self._wait_max_ms)
            return self.context_of(connection, frame), held
        tail = self._reply_tail
        return b"".join((REPLY_SIZE(4 + len(tail)), frame[4:BODY_POSITION], tail))

    def context_of(self, connection: ClientConnection, frame: memoryview) -> RequestContext:
        _, version, correlation_id = HEAD(frame)
        return RequestContext(connection, self.route, version, correlation_id, self.client_id)

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        self.client_id = context.client_id
        self._forget()
        event = self._event_of(context, request) if len(frame) <= FRAME_SIZE_MAX else None
        if event is None:
            return False
        runner = self._groups.runner_of(event.group_id)
        if isinstance(runner, ErrorCode) or not runner.is_idle:
            return False
        heartbeat = runner.shard.settled_heartbeat(event)
        if heartbeat is None:
            return False
        tail = encode(heartbeat.response, context.version)
        self._reply_tail = b"\0" + tail if context.version >= self.route.reply_flexible_from else tail
        self._body = bytes(frame[BODY_POSITION:])
        self._version = context.version
        self._wait_max_ms = heartbeat.wait_max_ms if context.connection.software[0] in CLIENTS else 0
        self._runner = runner
        self._heartbeat = heartbeat._replace(response=None)
        return True

    def _forget(self) -> None:
        self._heartbeat = self._runner = self._access = None
        self._body = self._reply_tail = b""

    def _is_allowed(self, access: Access, heartbeat: SettledHeartbeat) -> bool:
        """Whether the client may read the group. A decision is used again until it may have changed."""
        stamp = access.stamp
        if access is not self._access or stamp != self._stamp:
            group_id = heartbeat.timer.group_id
            if not access.allows(AclOperation.READ, ResourceKind.GROUP, group_id, logs_denied=False):
                return False  # The rule of the API refuses the frame, and logs that.
            self._access, self._stamp = access, stamp
        return True
