"""The queue of replies: each is sent after the replies to earlier requests of its connection.

(no reply waits)  ──put──▶ the output, at once
queue             ──put──▶ ready, behind those that are not
parked            ──complete──▶ the output, and the ready ones behind it; or ready, where one before it still waits
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from moldau.broker.network.output import Output
from moldau.broker.network.reply import QueuedReply
from moldau.broker.network.reply_memory import ReplyMemory, held_size
from moldau.protocol.primitives import Chunk

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext

WAITING_REPLIES_MAX: Final = 256
"""The most waiting replies; at this number the connection is not read until some are sent."""
WAITING_SIZE_MAX: Final = 1 << 26
"""The most bytes of ready replies that wait for an earlier reply; at this size the connection is not read either."""


class ReplyQueue:
    """The replies of one connection, sent in the order of its requests."""

    __slots__ = ("_memory", "_output", "_ready_size", "waiting")

    def __init__(self, output: Output, memory: ReplyMemory) -> None:
        self._output = output
        self._memory = memory
        self.waiting: deque[QueuedReply] = deque()
        """The waiting replies in the order of their requests; the first one is never ready."""
        self._ready_size = 0
        """The bytes of the ready replies that wait for an earlier one."""

    def put(self, context: RequestContext, pieces: list[Chunk], size: int) -> bool:
        """Add a ready reply after the earlier ones. Returns whether it has to wait for them."""
        if self.waiting:
            reply = QueuedReply(context)
            self._make_ready(reply, pieces, size)
            self.waiting.append(reply)
            return True
        self._output.add(context, pieces, size)
        return False

    def complete(self, reply: QueuedReply, pieces: list[Chunk], size: int) -> bool:
        """A parked reply is ready. Returns whether it, and the ready replies after it, can be sent."""
        waiting = self.waiting
        if waiting[0] is not reply:
            self._make_ready(reply, pieces, size)
            return False
        waiting.popleft()
        self._output.add(reply.context, pieces, size)
        if waiting:
            self._take_ready()
        return True

    def is_ahead(self) -> bool:
        """Whether too many replies wait for the first one. It is checked again as each reply is sent."""
        size = self._ready_size
        return (
            len(self.waiting) >= WAITING_REPLIES_MAX
            or size > WAITING_SIZE_MAX
            or (size > 0 and self._memory.room() == 0)
        )

    def parked_apis(self) -> list[str]:
        """The APIs of the parked requests."""
        return [reply.context.route.name for reply in self.waiting if reply.parked is not None]

    def abandon(self) -> None:
        """Abandon all waiting requests: the client is gone."""
        waiting, self.waiting = self.waiting, deque()
        self._ready_size = 0
        for reply in waiting:
            if reply.parked is not None:
                self._output.abandoned(reply.context, reply.parked.waits_for)
                reply.parked.abandon()

    def _make_ready(self, reply: QueuedReply, pieces: list[Chunk], size: int) -> None:
        reply.pieces = pieces
        reply.parked = None
        reply.held_size = held_size(pieces)
        self._ready_size += size
        self._output.held_size += reply.held_size
        self._output.tell_held()

    def _take_ready(self) -> None:
        """Move the ready replies at the head of the queue to the output."""
        waiting, output = self.waiting, self._output
        while waiting and (pieces := waiting[0].pieces) is not None:
            reply = waiting.popleft()
            output.ready_held_size += reply.held_size
            size = sum(map(len, pieces))
            self._ready_size -= size
            output.add(reply.context, pieces, size)
