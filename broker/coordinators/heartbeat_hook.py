"""The hook of heartbeats: answers a heartbeat that repeats the previous one of its connection, without decoding it.

Nearly all heartbeats of a member are equal up to the correlation id, and only prolong its session. The hook learns from
a decoded heartbeat of this kind (`SettledHeartbeat`): it keeps its frame and its reply. An equal frame is answered as
long as nothing has changed by which the coordinator decided, and the client may still read the group. Any other frame
is decoded and handled as usual.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.network.route import ClientConnection, FrameAnswer, FrameHook, RequestContext, Route
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.coordinators.groups import GroupRunner, Groups
    from moldau.coordinator.group.group import AboutGroup, SettledHeartbeat

BODY_POSITION: Final = 8
"""The position in a frame after the API key, the version and the correlation id."""
FRAME_SIZE_MAX: Final = 1024
"""The largest frame (bytes) that is kept. A client chooses the size of its ids and of unknown tagged fields."""
REPLY_SIZE: Final = struct.Struct(">i").pack
HEAD: Final = struct.Struct(">hhi").unpack_from


class RepeatedHeartbeat:
    """The frame of a settled heartbeat, its reply, and the state machine of its group."""

    __slots__ = ("body", "head", "heartbeat", "reply_size", "reply_tail", "runner", "size")

    def __init__(self, frame: memoryview, reply_tail: bytes, runner: GroupRunner, heartbeat: SettledHeartbeat) -> None:
        """`reply_tail` is the reply after its correlation id."""
        self.size = len(frame)
        self.head = bytes(frame[:4])
        self.body = bytes(frame[BODY_POSITION:])
        self.reply_size = REPLY_SIZE(4 + len(reply_tail))
        self.reply_tail = reply_tail
        self.runner = runner
        self.heartbeat = heartbeat


class HeartbeatHook(FrameHook):
    """The hook of one connection, for the heartbeats of one kind of group."""

    def __init__(
        self,
        route: Route,
        groups: Groups,
        monotonic_ms: Callable[[], int],
        event_of: Callable[[RequestContext, object], AboutGroup | None],
    ) -> None:
        """`event_of` makes the event of a request for the state machine; None if the request must not be answered
        here."""
        super().__init__(route)
        self._groups = groups
        self._monotonic_ms = monotonic_ms
        self._event_of = event_of
        self._repeated: RepeatedHeartbeat | None = None
        """The last decoded heartbeat; None if the next one must be decoded."""
        self._access: Access | None = None
        """The access of the client by which `_repeated` was allowed, while the access has this stamp."""
        self._stamp = 0

    def answer(self, connection: ClientConnection, frame: memoryview) -> FrameAnswer | None:
        repeated = self._repeated
        if (
            repeated is None
            or len(frame) != repeated.size
            or bytes(frame[:4]) != repeated.head
            or bytes(frame[BODY_POSITION:]) != repeated.body
        ):
            return None
        if (
            not self._is_allowed(connection.access, repeated)
            or not repeated.runner.is_idle
            or not repeated.runner.shard.prolong_session(repeated.heartbeat, self._monotonic_ms())
        ):
            self._repeated = None
            return None
        return b"".join((repeated.reply_size, frame[4:BODY_POSITION], repeated.reply_tail))

    def context_of(self, connection: ClientConnection, frame: memoryview) -> RequestContext:
        _, version, correlation_id = HEAD(frame)
        return RequestContext(connection, self.route, version, correlation_id, self.client_id)

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        self.client_id = context.client_id
        self._repeated = self._learned(context, frame, request)
        self._access = None
        return self._repeated is not None

    def _learned(self, context: RequestContext, frame: memoryview, request: object) -> RepeatedHeartbeat | None:
        event = self._event_of(context, request) if len(frame) <= FRAME_SIZE_MAX else None
        if event is None:
            return None
        runner = self._groups.runner_of(event.group_id)
        if isinstance(runner, ErrorCode) or not runner.is_idle:
            return None
        heartbeat = runner.shard.settled_heartbeat(event)
        if heartbeat is None:
            return None
        tail = encode(heartbeat.response, context.version)
        if context.version >= self.route.reply_flexible_from:
            tail = b"\0" + tail
        return RepeatedHeartbeat(frame, tail, runner, heartbeat._replace(response=None))

    def _is_allowed(self, access: Access, repeated: RepeatedHeartbeat) -> bool:
        """Whether the client may read the group. A decision is used again until it may have changed."""
        stamp = access.stamp
        if access is not self._access or stamp != self._stamp:
            group_id = repeated.heartbeat.timer.group_id
            if not access.allows(AclOperation.READ, ResourceKind.GROUP, group_id, logs_denied=False):
                return False  # The rule of the API refuses the frame, and logs that.
            self._access, self._stamp = access, stamp
        return True
