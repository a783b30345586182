"""A Produce under acks=all that waits in the purgatory until all of its records are committed, or until its timeout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.broker.purgatory.purgatory import CommitWait, Purgatory, WatchingOperation
from moldau.broker.runtime.pending import REPLICAS, Pending
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from moldau.replication.partition import Partition


class AppendedRecords(CommitWait):
    """The records of a request in one partition, and the answer that waits until they are committed, or durable. It is
    not a NamedTuple: a compiled NamedTuple crashes at its definition if it names a compiled class of a module that
    is not imported yet.
    """

    __slots__ = ("answer", "operation", "partition")

    def __init__(self, partition: Partition, end_offset: int, answer: PartitionProduceResponse) -> None:
        super().__init__(end_offset)
        self.partition = partition
        self.answer = answer
        self.operation: DelayedProduce | None = None

    def settled(self, error: ErrorCode) -> None:
        operation, self.operation = self.operation, None
        if operation is not None:
            operation.settled(self, error)


class DelayedProduce(WatchingOperation):
    """The wait of one request. An answer becomes an error where its records are not known to be committed."""

    __slots__ = ("_add_leaders", "_has_failed", "_open", "_open_count", "_response", "reply")

    def __init__(
        self,
        purgatory: Purgatory,
        timeout_ms: int,
        response: ProduceResponse,
        appended: Sequence[AppendedRecords],
        add_leaders: Callable[[], None],
        *,
        has_failed: bool,
    ) -> None:
        """`add_leaders` names the current leaders in a response with errors.

        `has_failed`: whether the response has an error already.
        """
        super().__init__(purgatory, "Produce", timeout_ms)
        self.reply: Pending[ProduceResponse] = Pending(self.end, REPLICAS)
        self._response = response
        self._add_leaders = add_leaders
        self._has_failed = has_failed
        self._open = list(appended)
        """The records of the request; those that are settled have no operation any more."""
        self._open_count = len(appended)
        for each in appended:
            each.operation = self
            purgatory.await_commit(each.partition, each)

    def settled(self, records: AppendedRecords, error: ErrorCode) -> None:
        """The records of one partition are committed, or it is certain that this broker will not learn that
        they are.
        """
        self._open_count -= 1
        if error is not ErrorCode.NONE:
            refuse(records.answer, error)
            self._has_failed = True
        if not self._open_count:
            self.try_complete()

    def try_complete(self) -> None:
        if not self._open_count and not self.is_over:
            self._complete()

    def expire(self) -> None:
        for each in self._open:
            if each.operation is not None:
                refuse(each.answer, ErrorCode.REQUEST_TIMED_OUT)
        self._complete()

    def _complete(self) -> None:
        self.end()
        if self._has_failed:
            self._add_leaders()
        self.reply.complete(self._response)

    def end(self) -> None:
        super().end()
        waiting, self._open = self._open, []
        for each in waiting:
            if each.operation is not None:
                each.cancel()
                each.operation = None


def refuse(answer: PartitionProduceResponse, error: ErrorCode) -> None:
    """Set the error of records that may be in the log, and are not known to be committed."""
    answer.error_code = error
    answer.base_offset = answer.log_append_time_ms = -1
