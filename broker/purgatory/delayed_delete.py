"""A DeleteRecords that waits: answered when no replica that is alive has the records any more, at the latest when its
time is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.runtime.pending import Pending
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsResponse
from replication.partition import Partition

if TYPE_CHECKING:
    from broker.node.node import Node as Broker

NO_LOW_WATERMARK: Final = -1


class Wait(NamedTuple):
    """A partition, the offset before which nothing is to be left, and the answer that says so by now."""

    partition: Partition
    offset: int
    answer: DeleteRecordsPartitionResult


class DelayedDelete:
    """A follower hears of the deletion with an answer to its fetch, and says with the next one that it has followed."""

    def __init__(self, broker: Broker, timeout_ms: int, response: DeleteRecordsResponse, waits: Sequence[Wait]) -> None:
        self.reply: Pending[DeleteRecordsResponse] = Pending(self._give_up)
        self._broker = broker
        self._response = response
        self._open = list(waits)
        self._timeout = broker.timeouts.after(max(0, timeout_ms), self._time_is_up)
        for each in waits:
            each.partition.wait(self._look)

    def _look(self) -> None:
        """One of the partitions moved."""
        self._open = [each for each in self._open if not self._is_settled(each)]
        if not self._open:
            self._complete()

    def _is_settled(self, wait: Wait) -> bool:
        if settle(self._broker, wait):
            wait.partition.forget(self._look)
            return True
        return False

    def _time_is_up(self) -> None:
        for each in self._open:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._complete()

    def _complete(self) -> None:
        self._give_up()
        self.reply.complete(self._response)

    def _give_up(self) -> None:
        """Wait no longer."""
        self._timeout.cancel()
        for each in self._open:
            each.partition.forget(self._look)


def settle(broker: Broker, wait: Wait) -> bool:
    """Put into the answer how far the records are gone; False where some are left, and may go."""
    partition, answer = wait.partition, wait.answer
    if partition not in broker.replicas:
        refuse(answer, broker.replicas.why_not(partition.topic, partition.index))
        return True
    if not partition.is_leader:
        refuse(answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return True
    answer.low_watermark = partition.low_watermark(broker.is_alive)
    return answer.low_watermark >= wait.offset


def refuse(answer: DeleteRecordsPartitionResult, error: ErrorCode) -> None:
    answer.error_code = error
    answer.low_watermark = NO_LOW_WATERMARK
