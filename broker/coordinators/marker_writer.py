"""Writes transaction markers into the partitions that this broker leads, for transaction coordinators on this and on
other brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.coordinators.groups import Groups
from moldau.broker.purgatory.purgatory import CommitCallback, Purgatory
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.coordinator.runtime.machine import TransactionEnd, Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple

Written = Callable[[ErrorCode], None]
"""Called once: with NONE when the marker is committed, otherwise with an error. After an error it is not known whether
the marker is committed.
"""
NOT_LEADING_ERRORS: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""The errors while this broker does not lead a partition of `__consumer_offsets`, or is still loading it."""


class Marker(NamedTuple):
    """The outcome of one producer's transaction, commit or abort."""

    producer_id: int
    producer_epoch: int
    end: TransactionEnd


class MarkerToken:
    """Passes the result of a marker that the group coordinator writes to the callback `written`. It takes the place of
    a client's token in the `Waiter` of the event.
    """

    def __init__(self, written: Written) -> None:
        self._written = written

    def complete(self, response: object) -> None:
        assert isinstance(response, ErrorCode)
        self._written(ErrorCode.NOT_LEADER_OR_FOLLOWER if response in NOT_LEADING_ERRORS else response)


class MarkerWriter:
    def __init__(
        self, environment: Environment, replicas: Replicas, flusher: Flusher, purgatory: Purgatory, groups: Groups
    ) -> None:
        self._environment = environment
        self._replicas = replicas
        self._flusher = flusher
        self._purgatory = purgatory
        self._groups = groups

    def write(self, marker: Marker, topic: str, index: int, written: Written) -> None:
        """Append a transaction marker to one partition, if this broker leads it. `written` gets the result."""
        if topic == GROUP_METADATA_TOPIC:
            self._end_offsets(marker, index, written)
            return
        partition = self._replicas.get(topic, index)
        if partition is None:
            written(self._replicas.error_of(topic, index))
            return
        result = partition.end_transaction(
            marker.producer_id,
            marker.producer_epoch,
            is_commit=marker.end.is_commit,
            coordinator_epoch=marker.end.coordinator_epoch,
            now_ms=self._environment.wall_ms(),
            transaction_version=marker.end.transaction_version,
        )
        if result.error is not ErrorCode.NONE:
            written(result.error)
            return
        if partition.awaits_flush:
            self._flusher.flush(partition.log)
        self._purgatory.await_commit(partition, CommitCallback(partition.log.end_offset, written))

    def _end_offsets(self, marker: Marker, index: int, written: Written) -> None:
        """Write a transaction marker into a partition of `__consumer_offsets`. The group coordinator writes it, because
        the marker commits or drops the offsets of the transaction.
        """
        runner = self._groups.runner_at(index)
        if isinstance(runner, ErrorCode):
            written(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        from moldau.coordinator.group.events import EndOffsetsTransaction

        waiter = Waiter(MarkerToken(written), 0)
        runner.submit(EndOffsetsTransaction(waiter, marker.producer_id, marker.producer_epoch, marker.end))


class MarkerAnswers:
    """Collects the results of several marker writes, and calls `done` once with all of them."""

    def __init__(self, done: Callable[[dict[tuple[int, str, int], ErrorCode]], None]) -> None:
        self._done = done
        self._unanswered = 1
        self.errors: dict[tuple[int, str, int], ErrorCode] = {}
        """The errors by producer id, topic and partition."""

    def expect(self, producer_id: int, topic: str, index: int) -> Written:
        """Expect the result of one more write, and return the callback that takes it."""
        self._unanswered += 1
        return partial(self._answered, (producer_id, topic, index))

    def note_all_asked(self) -> None:
        """Note that no further write follows: `done` is called when all results are known."""
        self._count_down()

    def _answered(self, key: tuple[int, str, int], error: ErrorCode) -> None:
        self.errors[key] = error
        self._count_down()

    def _count_down(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._done(self.errors)
