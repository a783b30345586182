"""Writes transaction markers into the partitions that this broker leads, for its own coordinator and for others."""

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
"""Called once: with NONE when the marker is committed, otherwise with an error, after which it is not known whether the
marker is committed.
"""
NOT_HERE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""The errors of a group shard while this broker does not lead its partition, or is loading it."""


class Marker(NamedTuple):
    """The end of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    end: TransactionEnd


class MarkerToken:
    """The token by which a group shard reports that a marker is committed."""

    def __init__(self, written: Written) -> None:
        self._written = written

    def complete(self, response: object) -> None:
        assert isinstance(response, ErrorCode)
        self._written(ErrorCode.NOT_LEADER_OR_FOLLOWER if response in NOT_HERE else response)


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
        """Append the marker to one partition, if this broker leads it."""
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
        """Let the group shard write the marker: from then on the offsets of the transaction are committed or
        dropped.
        """
        runner = self._groups.shards.runner_at(index)
        if isinstance(runner, ErrorCode):
            written(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        from moldau.coordinator.group.events import EndOffsetsTransaction

        waiter = Waiter(MarkerToken(written), 0)
        runner.submit(EndOffsetsTransaction(waiter, marker.producer_id, marker.producer_epoch, marker.end))


class MarkerAnswers:
    """Collects the results of several writes, and calls back once with all of them."""

    def __init__(self, done: Callable[[dict[tuple[int, str, int], ErrorCode]], None]) -> None:
        self._done = done
        self._unanswered = 1
        self.errors: dict[tuple[int, str, int], ErrorCode] = {}
        """The errors by producer id, topic and partition."""

    def of(self, producer_id: int, topic: str, index: int) -> Written:
        """The callback for the result of one write."""
        self._unanswered += 1
        return partial(self._answered, (producer_id, topic, index))

    def all_asked(self) -> None:
        """Note that no further write follows, so that the last result completes the answer."""
        self._count_down()

    def _answered(self, key: tuple[int, str, int], error: ErrorCode) -> None:
        self.errors[key] = error
        self._count_down()

    def _count_down(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._done(self.errors)
