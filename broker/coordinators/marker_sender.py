"""Sends the markers of ended transactions to the leaders of their partitions, for the transaction coordinators on this
broker.

    command ──▶ by leader ──▶ one WriteTxnMarkers under way for each broker ──▶ per partition:
                   ▲               (meanwhile further markers gather)             written, or gone    reported
                   └────────────────── after RETRY_MS ◀─────────────────────────  no leader, refused  again
                                                                                  fenced              given up

Markers of many transactions to one broker share a request. The markers for this broker itself are written without a
request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.broker.coordinators.definition import CommandReports
from moldau.broker.coordinators.marker_writer import Marker, MarkerAnswers, MarkerWriter
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.coordinator.runtime.machine import TransactionEnd
from moldau.coordinator.transaction.events import MarkersWritten, SendMarkers, TopicPartition, TransactionEvent
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger("moldau.transactions")

PURPOSE: Final = "transaction markers"
RETRY_MS: Final = 50
MARKERS_AT_ONCE: Final = 1_000
"""The most partitions of one WriteTxnMarkers request: the broker that receives it appends to all of them in one
iteration of its event loop.
"""
LOCAL_AT_ONCE: Final = 50
"""The most partitions of this broker to which one iteration of the event loop appends."""
FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The errors after which a marker is not sent again. With these errors the partition already has a marker with a later
producer epoch, or of a later coordinator, which ends the transaction.
"""


class PendingMarkers:
    """The partitions that have no marker yet, of one ended transaction."""

    __slots__ = ("command", "marker", "partitions", "reports")

    def __init__(
        self,
        command: SendMarkers,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        reports: CommandReports[TransactionEvent],
    ) -> None:
        self.command = command
        self.marker = marker
        self.partitions = partitions
        self.reports = reports

    def of_partitions(self, partitions: Sequence[TopicPartition]) -> PendingMarkers:
        """The markers of the same transaction, for some of its partitions."""
        return PendingMarkers(self.command, self.marker, partitions, self.reports)


class MarkerQueue:
    """The markers that wait for one broker, and whether a request to it is in progress."""

    def __init__(self) -> None:
        self.waiting: list[PendingMarkers] = []
        self.is_busy = False

    def take_markers(self, partitions_max: int) -> list[PendingMarkers]:
        """Remove and return the markers of the next request, for at most `partitions_max` partitions. A request has
        each producer at most once, because the response identifies a marker by its producer alone.
        """
        taken: dict[int, PendingMarkers] = {}
        left: list[PendingMarkers] = []
        room = partitions_max
        for pending in self.waiting:
            producer_id = pending.command.producer_id
            if not room or producer_id in taken:
                left.append(pending)
                continue
            now, later = pending, pending.partitions[room:]
            if later:
                now = pending.of_partitions(pending.partitions[:room])
                left.append(pending.of_partitions(later))
            taken[producer_id] = now
            room -= len(now.partitions)
        self.waiting = left
        return list(taken.values())


class MarkerSender:
    """Sends the markers of this broker's transaction coordinators until every partition has its marker."""

    def __init__(
        self,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        cluster: ClusterView,
        brokers: OtherBrokers,
        writer: MarkerWriter,
    ) -> None:
        self._node_id = node_id
        self._loop = loop
        self._cluster = cluster
        self._brokers = brokers
        self._writer = writer
        self._destinations: defaultdict[int, MarkerQueue] = defaultdict(MarkerQueue)

    def perform(self, command: object, reports: CommandReports[TransactionEvent]) -> None:
        """Send the markers of an ended transaction until every partition has one. `command` is a `SendMarkers` of the
        transaction coordinator's state machine.
        """
        assert isinstance(command, SendMarkers)
        end = TransactionEnd(command.is_commit, command.coordinator_epoch, command.transaction_version)
        marker = Marker(command.producer_id, command.producer_epoch, end)
        self._dispatch(PendingMarkers(command, marker, command.partitions, reports))

    def _dispatch(self, pending: PendingMarkers) -> None:
        """Queue the partitions of a transaction for the brokers that lead them now. Partitions without a leader are
        tried again later.
        """
        if not pending.reports.is_open:
            return  # The next leader of the coordinator's partition sends the markers again.
        topics = self._cluster.image.topics
        gone: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for name, index in pending.partitions:
            partition = topics.partition(name, index)
            if partition is None:
                gone.append((name, index))
            elif partition.leader < 0:
                leaderless.append((name, index))
            else:
                by_leader[partition.leader].append((name, index))
        for leader_id, partitions in by_leader.items():
            destination = self._destinations[leader_id]
            destination.waiting.append(pending.of_partitions(partitions))
            if not destination.is_busy:
                destination.is_busy = True
                self._loop.call_soon(self._send, leader_id)
        if leaderless:
            self._retry(pending.of_partitions(leaderless))
        if gone:
            report_written(pending, gone)

    def _retry(self, pending: PendingMarkers) -> None:
        self._loop.call_later(RETRY_MS / 1000, self._dispatch, pending)

    def _send(self, leader_id: int) -> None:
        destination = self._destinations[leader_id]
        destination.waiting = [pending for pending in destination.waiting if pending.reports.is_open]
        is_local = leader_id == self._node_id
        batch = destination.take_markers(LOCAL_AT_ONCE if is_local else MARKERS_AT_ONCE)
        if not batch:
            destination.is_busy = False
        elif is_local:
            self._write(batch)
            # The markers of all partitions wait for their commits at the same time.
            if destination.waiting:
                self._loop.call_soon(self._send, leader_id)
            else:
                destination.is_busy = False
        else:
            self._ask(leader_id, batch)

    def _write(self, batch: list[PendingMarkers]) -> None:
        answers = MarkerAnswers(lambda errors: self._answered(batch, errors))
        for pending in batch:
            for topic, index in pending.partitions:
                written = answers.expect(pending.command.producer_id, topic, index)
                self._writer.write(pending.marker, topic, index, written)
        answers.note_all_asked()

    def _ask(self, leader_id: int, batch: list[PendingMarkers]) -> None:
        request = WriteTxnMarkersRequest(markers=[marker_entry(pending) for pending in batch])

        def replied(response: object) -> None:
            errors: dict[tuple[int, str, int], ErrorCode] = {}
            try:
                if isinstance(response, NoResponseReason):
                    log.debug(
                        "markers of %d transactions to broker %d: no response, %s", len(batch), leader_id, response
                    )
                else:
                    assert isinstance(response, WriteTxnMarkersResponse)
                    errors = errors_of(response)
                self._answered(batch, errors)
            finally:  # A bug in one report must not hold up the markers that wait for the leader.
                self._send(leader_id)

        self._brokers.ask(leader_id, PURPOSE, request, replied)

    def _answered(self, batch: list[PendingMarkers], errors: Mapping[tuple[int, str, int], ErrorCode]) -> None:
        """Report the partitions whose markers are written, and send the other markers again.

        `errors` has the error by producer id, topic and partition. It is empty if there was no response: then all
        markers are sent again.
        """
        for pending in batch:
            written: list[TopicPartition] = []
            refused: list[TopicPartition] = []
            for name, index in pending.partitions:
                error = errors.get((pending.command.producer_id, name, index), ErrorCode.REQUEST_TIMED_OUT)
                if error is ErrorCode.NONE:
                    written.append((name, index))
                elif error in FENCED:
                    log.warning(
                        "a marker of transactional id %r, producer %d epoch %d, is refused by %s-%d with %s: a later"
                        " producer or coordinator has taken over",
                        pending.command.transactional_id,
                        pending.command.producer_id,
                        pending.command.producer_epoch,
                        name,
                        index,
                        error.name,
                    )
                else:
                    refused.append((name, index))
            if refused:
                self._retry(pending.of_partitions(refused))
            if written:
                report_written(pending, written)


def report_written(pending: PendingMarkers, partitions: list[TopicPartition]) -> None:
    pending.reports.report(MarkersWritten(pending.command, frozenset(partitions)))


def marker_entry(pending: PendingMarkers) -> WritableTxnMarker:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for name, index in pending.partitions:
        by_topic[name].append(index)
    return WritableTxnMarker(
        producer_id=pending.marker.producer_id,
        producer_epoch=pending.marker.producer_epoch,
        transaction_result=pending.marker.end.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
        coordinator_epoch=pending.marker.end.coordinator_epoch,
        transaction_version=pending.marker.end.transaction_version,
    )


def errors_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
