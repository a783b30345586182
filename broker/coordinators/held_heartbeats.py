"""Holds the answers to heartbeats in stable classic groups until a rebalance begins, as a fetch waits for records.

A member of a classic group learns of a rebalance from the answer to its next heartbeat, and clients send one every 3 s.
Until the last member has sent its heartbeat, all others wait for it. If its last heartbeat is held, the member learns
of the rebalance at once. A held heartbeat ends once:

    event                                             answer
    the group leaves the state Stable                 REBALANCE_IN_PROGRESS
    a later request of the connection needs an answer NONE
    the longest wait is over                          NONE
    the connection is lost                            none

DIVERGES: Apache Kafka answers each heartbeat at once. Here that of a member of a stable consumer group waits for up to
3 s (`moldau.group.heartbeat.wait.max.ms`) and a fifth of its session, if its client is one of `CLIENTS`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.purgatory.timer_wheel import Timeout, Timeouts
from moldau.broker.runtime.pending import MEMBERS, Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatResponse

if TYPE_CHECKING:
    from moldau.coordinator.classic.events import AnswerHeartbeats

CLIENTS: Final = frozenset(
    {
        "apache-kafka-java",
        "librdkafka",
        "confluent-kafka-dotnet",
        "confluent-kafka-python",
    }
)
"""The clients, by the software names in their ApiVersions requests (KIP-511), that send heartbeats beside their other
work. KafkaJS, for one, handles no message while it waits for the answer to a heartbeat."""
ANSWERS_AT_ONCE: Final = 50
"""The number of held heartbeats that are answered in one iteration of the event loop."""


class HeldHeartbeats:
    """The held heartbeats of all groups of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timeouts = Timeouts(loop)
        self._groups: dict[str, dict[HeldHeartbeat, None]] = {}
        self._to_answer: deque[tuple[HeldHeartbeat, ErrorCode]] = deque()

    def hold(self, group_id: str, wait_max_ms: int) -> Pending[HeartbeatResponse]:
        """Hold a heartbeat whose answer is NONE for up to `wait_max_ms`. Returns its reply."""
        held = self._groups.setdefault(group_id, {})
        heartbeat = HeldHeartbeat(lambda ended: self._end(group_id, held, ended))
        held[heartbeat] = None
        heartbeat.timeout = self._timeouts.call_after(wait_max_ms, heartbeat.answer)
        return heartbeat.reply

    def answer(self, command: AnswerHeartbeats) -> None:
        """Answer the held heartbeats of a group with an error, some in each iteration of the event loop."""
        held = self._groups.pop(command.group_id, None)
        if held:
            if not self._to_answer:
                self._loop.call_soon(self._answer_some)
            self._to_answer.extend((each, command.error) for each in held)

    def _answer_some(self) -> None:
        for _ in range(min(ANSWERS_AT_ONCE, len(self._to_answer))):
            heartbeat, error = self._to_answer.popleft()
            heartbeat.answer(error)
        if self._to_answer:
            self._loop.call_soon(self._answer_some)

    def _end(self, group_id: str, held: dict[HeldHeartbeat, None], ended: HeldHeartbeat) -> None:
        held.pop(ended, None)
        if not held and self._groups.get(group_id) is held:
            del self._groups[group_id]


class HeldHeartbeat:
    """A held heartbeat. Its reply is completed by `answer`, unless its connection is lost first."""

    __slots__ = ("_on_end", "reply", "timeout")

    def __init__(self, on_end: Callable[[HeldHeartbeat], None]) -> None:
        self.reply: Pending[HeartbeatResponse] = Pending(self._end, MEMBERS)
        self.reply.on_next = self.answer
        self.timeout: Timeout | None = None
        self._on_end: Callable[[HeldHeartbeat], None] | None = on_end
        """Called at the end; None afterwards."""

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the heartbeat. No effect if it has ended."""
        if self._on_end is not None:
            self._end()
            self.reply.complete(HeartbeatResponse(error_code=error))

    def _end(self) -> None:
        on_end, self._on_end = self._on_end, None
        if self.timeout is not None:
            self.timeout.cancel()
        if on_end is not None:
            on_end(self)
