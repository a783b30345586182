"""The sender of markers: it gathers them, sends again what is refused, and reports what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.coordinators.marker_sender import MARKERS_AT_ONCE, RETRY_MS, MarkerSender
from moldau.broker.coordinators.marker_writer import Marker, Written
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.coordinator.transaction.events import MarkersWritten, SendMarkers
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.other_brokers import brokers_behind

HERE = 1
THERE = 2
COORDINATOR_EPOCH = 7
NONE = ErrorCode.NONE


class Reports:
    """The machine that gave the command."""

    def __init__(self) -> None:
        self.is_open = True
        self.written: list[tuple[str, list[tuple[str, int]]]] = []
        self.partition_log: Any = None

    def report(self, event: Any) -> None:
        assert isinstance(event, MarkersWritten)
        self.written.append((event.command.transactional_id, sorted(event.partitions)))


class Stage:
    """A cluster of two brokers, as far as the sender sees it. Partitions are led by broker 2 unless told otherwise."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], int] = {}
        self.asked: list[tuple[WriteTxnMarkersRequest, Callable[[object], None]]] = []
        self.local: list[tuple[int, str, int]] = []
        self.local_error = NONE
        self.reports = Reports()
        endpoint = SimpleNamespace(host="there", port=9092)
        image = SimpleNamespace(
            topics=SimpleNamespace(partition=self._partition),
            cluster=SimpleNamespace(brokers={THERE: SimpleNamespace(endpoints={"PLAINTEXT": endpoint})}),
        )
        cluster = cast("Any", SimpleNamespace(image=image))
        self.sender = MarkerSender(
            HERE,
            asyncio.get_running_loop(),
            cluster,
            brokers_behind(cluster, self._ask),
            cast("Any", SimpleNamespace(write=self._write)),
        )

    def _partition(self, topic: str, index: int) -> SimpleNamespace | None:
        if topic == "gone":
            return None
        return SimpleNamespace(leader=self.leaders.get((topic, index), THERE))

    def _ask(self, request: WriteTxnMarkersRequest, reply: Callable[[object], None]) -> None:
        self.asked.append((request, reply))

    def _write(self, marker: Marker, topic: str, index: int, written: Written) -> None:
        self.local.append((marker.producer_id, topic, index))
        written(self.local_error)

    def command(self, producer_id: int, *partitions: tuple[str, int], is_commit: bool = True) -> None:
        command = SendMarkers(f"id-{producer_id}", producer_id, 3, COORDINATOR_EPOCH, is_commit, partitions, 2, 0)
        self.sender.perform(command, self.reports)

    def answer(self, *errors: ErrorCode) -> None:
        """Answer the oldest request: an error for each of its partitions in turn, NONE for the rest."""
        request, reply = self.asked.pop(0)
        left = list(errors)
        reply(
            WriteTxnMarkersResponse(
                markers=[
                    WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=[
                            WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=[
                                    WritableTxnMarkerPartitionResult(
                                        partition_index=index, error_code=left.pop(0) if left else NONE
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )

    @property
    def producers_asked(self) -> list[list[int]]:
        return [[marker.producer_id for marker in request.markers] for request, _ in self.asked]


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def played() -> None:
        await story(Stage())

    asyncio.run(played())


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def until_retry() -> None:
    await asyncio.sleep(RETRY_MS / 1000 + 0.02)


def test_a_marker_says_what_the_machine_decided() -> None:
    async def story(stage: Stage) -> None:
        stage.command(5, ("t", 0), ("t", 1), ("u", 0))
        await turn()
        ((request, _),) = stage.asked
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (5, 3, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (COORDINATOR_EPOCH, 2)
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [0, 1]), ("u", [0])]
        stage.answer()
        assert stage.reports.written == [("id-5", [("t", 0), ("t", 1), ("u", 0)])]

    play(story)


def test_markers_of_many_transactions_share_a_request_while_one_is_under_way() -> None:
    async def story(stage: Stage) -> None:
        stage.command(1, ("t", 0))
        await turn()
        stage.command(2, ("t", 0))
        stage.command(3, ("t", 0), is_commit=False)
        await turn()
        assert stage.producers_asked == [[1]], "one request to a broker at a time"
        stage.answer()
        assert stage.producers_asked == [[2, 3]]
        stage.answer()
        assert [name for name, _ in stage.reports.written] == ["id-1", "id-2", "id-3"]

    play(story)


def test_a_bug_in_a_report_does_not_hold_up_the_markers_after_it() -> None:
    async def story(stage: Stage) -> None:
        stage.command(1, ("t", 0))
        await turn()
        stage.command(2, ("t", 0))
        _, reply = stage.asked.pop(0)
        with suppress(AssertionError):
            reply("no WriteTxnMarkersResponse")
        assert stage.producers_asked == [[2]]

    play(story)


def test_answers_name_the_producer_alone_so_a_request_holds_each_once() -> None:
    async def story(stage: Stage) -> None:
        stage.command(1, ("t", 0))
        stage.command(1, ("t", 1))
        await turn()
        assert stage.producers_asked == [[1]]
        stage.answer()
        assert stage.producers_asked == [[1]]
        stage.answer()
        assert stage.reports.written == [("id-1", [("t", 0)]), ("id-1", [("t", 1)])]

    play(story)


def test_a_request_has_a_limited_size() -> None:
    async def story(stage: Stage) -> None:
        stage.command(1, *(("t", index) for index in range(MARKERS_AT_ONCE + 1)))
        await turn()
        stage.answer()
        ((request, _),) = stage.asked
        assert request.markers[0].topics[0].partition_indexes == [MARKERS_AT_ONCE]
        stage.answer()
        assert sum(len(partitions) for _, partitions in stage.reports.written) == MARKERS_AT_ONCE + 1

    play(story)


def test_what_is_refused_or_not_answered_is_sent_again() -> None:
    async def story(stage: Stage) -> None:
        stage.command(1, ("t", 0), ("t", 1))
        await turn()
        stage.answer(NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert stage.reports.written == [("id-1", [("t", 0)])]
        assert stage.asked == []
        await until_retry()
        _, reply = stage.asked.pop()
        reply(NoResponseReason.DISCONNECTED)
        await until_retry()
        stage.answer()
        assert stage.reports.written == [("id-1", [("t", 0)]), ("id-1", [("t", 1)])]

    play(story)


def test_a_partition_without_leader_waits_and_one_that_is_gone_counts_as_written() -> None:
    async def story(stage: Stage) -> None:
        stage.leaders["t", 0] = -1
        stage.command(1, ("t", 0), ("gone", 0))
        assert stage.reports.written == [("id-1", [("gone", 0)])]
        await turn()
        assert stage.asked == []
        stage.leaders["t", 0] = THERE
        await until_retry()
        stage.answer()
        assert stage.reports.written[1:] == [("id-1", [("t", 0)])]

    play(story)


def test_a_fenced_marker_is_given_up() -> None:
    async def story(stage: Stage) -> None:
        stage.command(1, ("t", 0), ("t", 1))
        await turn()
        stage.answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        await until_retry()
        assert stage.asked == [] and stage.reports.written == []

    play(story)


def test_partitions_of_this_broker_take_no_request() -> None:
    async def story(stage: Stage) -> None:
        stage.leaders["t", 0] = stage.leaders["t", 1] = HERE
        stage.command(4, ("t", 0), ("t", 1), ("t", 2))
        await turn()
        assert stage.local == [(4, "t", 0), (4, "t", 1)]
        assert stage.reports.written == [("id-4", [("t", 0), ("t", 1)])]
        stage.answer()
        assert stage.reports.written[1:] == [("id-4", [("t", 2)])]

    play(story)


def test_nothing_is_sent_for_a_machine_that_has_lost_its_partition() -> None:
    async def story(stage: Stage) -> None:
        stage.leaders["t", 0] = -1
        stage.command(1, ("t", 0))
        stage.command(2, ("t", 1))
        stage.reports.is_open = False
        await turn()
        stage.leaders["t", 0] = THERE
        await until_retry()
        assert stage.asked == []

    play(story)
