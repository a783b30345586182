"""A produce under acks=all that waits: answered when all of it is committed, at the latest when its time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from broker.purgatory.timer_wheel import Timeouts
from broker.runtime.pending import Pending
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from replication.partition import Partition


class Wait(Protocol):
    """A partition, the end offset that is to be committed, and the answer that says so by now."""

    partition: Partition
    end_offset: int
    answer: PartitionProduceResponse


class DelayedProduce:
    """Each answer turns into a refusal where its records are not known to be committed."""

    def __init__(
        self,
        timeouts: Timeouts,
        timeout_ms: int,
        response: ProduceResponse,
        waits: Sequence[Wait],
        hint: Callable[[], None],
        *,
        has_failed: bool,
    ) -> None:
        """`hint` says in a response with refusals who leads instead."""
        self.reply: Pending[ProduceResponse] = Pending()
        self._response = response
        self._hint = hint
        self._has_failed = has_failed
        self._open = [each.answer for each in waits]
        self._timeout = timeouts.after(max(0, timeout_ms), self._time_is_up)
        for each in waits:
            each.partition.when_committed(each.end_offset, partial(self._settled, each.answer))

    def _settled(self, answer: PartitionProduceResponse, error: ErrorCode) -> None:
        if self.reply.is_complete:
            return  # the time was up
        self._open = [each for each in self._open if each is not answer]
        if error is not ErrorCode.NONE:
            refuse(answer, error)
            self._has_failed = True
        if not self._open:
            self._timeout.cancel()
            if self._has_failed:
                self._hint()
            self.reply.complete(self._response)

    def _time_is_up(self) -> None:
        for answer in self._open:
            refuse(answer, ErrorCode.REQUEST_TIMED_OUT)
        if self._has_failed:
            self._hint()
        self.reply.complete(self._response)


def refuse(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    answer.error_code = error
    answer.base_offset = answer.log_append_time_ms = -1
