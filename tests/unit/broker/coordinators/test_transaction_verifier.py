"""Questions about transactions: where they go, how they are gathered, what is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.coordinators.transaction_verifier import Answer, TransactionQuestion, TransactionVerifier
from moldau.broker.network.peer_channel import NoResponseReason
from moldau.coordinator.transaction.events import AddPartitions, VerifyPartitions
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from moldau.testing.simulation.world import World
from tests.support.other_brokers import brokers_behind

HERE = 1
THERE = 2
NOWHERE = -1
NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
RETRY_MS = 20
PATIENCE_MS = 100


class Stage:
    """Two brokers; the coordinator of every transactional id is on `leader`."""

    def __init__(self, leader: int = THERE) -> None:
        self.leader = leader
        self.has_endpoint = True
        self.asked: list[tuple[AddPartitionsToTxnRequest, Callable[[object], None]]] = []
        self.submitted: list[AddPartitions | VerifyPartitions] = []
        self.runner: Any = SimpleNamespace(submit=self.submitted.append)
        self.answers: dict[str, Answer] = {}
        endpoint = SimpleNamespace(host="there", port=9092)
        image = SimpleNamespace(
            topics=SimpleNamespace(partition=self._partition),
            cluster=SimpleNamespace(
                brokers=SimpleNamespace(
                    get=lambda _: SimpleNamespace(endpoints={"PLAINTEXT": endpoint} if self.has_endpoint else {})
                )
            ),
        )
        topic = SimpleNamespace(name="__transaction_state")
        shards = SimpleNamespace(topic=topic, partition_of=lambda _: 0, runner_at=lambda _: self.runner)
        cluster = cast("Any", SimpleNamespace(image=image))
        self.verifier = TransactionVerifier(
            HERE,
            asyncio.get_running_loop(),
            cluster,
            brokers_behind(cluster, self._ask),
            cast("Any", shards),
            retry_ms=RETRY_MS,
            retry_ms_max=PATIENCE_MS,
        )

    def _partition(self, topic: str, index: int) -> SimpleNamespace | None:
        assert (topic, index) == ("__transaction_state", 0)
        return None if self.leader == NOWHERE else SimpleNamespace(leader=self.leader)

    def _ask(self, request: AddPartitionsToTxnRequest, reply: Callable[[object], None]) -> None:
        self.asked.append((request, reply))

    async def ask(self, transactional_id: str, *partitions: int, adds: bool = False) -> None:
        def answered(answer: Answer) -> None:
            assert transactional_id not in self.answers, "answered twice"
            self.answers[transactional_id] = answer

        wanted = tuple(("t", index) for index in partitions)
        self.verifier.ask(TransactionQuestion(transactional_id, 7, 3, wanted, adds, answered))
        for _ in range(
            2
        ):  # a request leaves in the next turn of the loop, and fails without an address in the one after
            await asyncio.sleep(0)

    def answer(self, errors: dict[str, list[tuple[int, ErrorCode]]], error: ErrorCode = NONE) -> None:
        """Answer the oldest request: by transactional id, the error of each partition."""
        _, reply = self.asked.pop(0)
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name="t",
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=each)
                            for index, each in partitions
                        ],
                    )
                ],
            )
            for transactional_id, partitions in errors.items()
        ]
        reply(AddPartitionsToTxnResponse(error_code=error, results_by_transaction=results))

    @property
    def ids_asked(self) -> list[list[tuple[str, bool]]]:
        """Of each request that waits: its transactional ids, and whether they are only verified."""
        return [
            [(each.transactional_id, each.verify_only) for each in request.transactions] for request, _ in self.asked
        ]


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """In virtual time."""
    with World(1) as world:
        world.run(story(), limit_s=60)


def test_the_leader_of_the_coordinators_partition_is_asked_and_each_partition_has_its_answer() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.ask("a", 0, 1)
        assert stage.ids_asked == [[("a", True)]]
        stage.answer({"a": [(0, NONE), (1, ErrorCode.TRANSACTION_ABORTABLE)]})
        assert stage.answers == {"a": {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}}

    play(story)


def test_an_error_of_a_later_release_is_an_unknown_one() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.ask("a", 0)
        stage.answer({"a": [(0, cast("Any", 999))]})
        assert stage.answers == {"a": {("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}}

    play(story)


def test_a_bug_in_an_answer_does_not_hold_up_the_questions_after_it() -> None:
    async def story() -> None:
        stage = Stage()
        stage.answers["a"] = {}  # The stage refuses a second answer.
        await stage.ask("a", 0)
        await stage.ask("b", 0)
        with suppress(AssertionError):
            stage.answer({"a": [(0, NONE)]})
        assert stage.ids_asked == [[("b", True)]]

    play(story)


def test_questions_gather_while_a_request_is_under_way_and_an_id_is_asked_about_once_in_each() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.ask("a", 0)
        await stage.ask("b", 0)
        await stage.ask("c", 0, adds=True)
        assert stage.ids_asked == [[("a", True)]]
        stage.answer({"a": [(0, NONE)]})
        assert stage.ids_asked == [[("b", True), ("c", False)]]
        await stage.ask("a", 1)  # answered before: a new question
        del stage.answers["a"]
        stage.answer({"b": [(0, NONE)], "c": [(0, NONE)]})
        assert stage.ids_asked == [[("a", True)]]
        assert stage.answers == {"b": {("t", 0): NONE}, "c": {("t", 0): NONE}}

    play(story)


def test_two_questions_about_one_id_take_two_requests() -> None:
    async def story() -> None:
        stage = Stage()
        first: list[Answer] = []
        second: list[Answer] = []
        await stage.ask("other", 0)
        stage.verifier.ask(TransactionQuestion("a", 7, 3, (("t", 0),), False, first.append))
        stage.verifier.ask(TransactionQuestion("a", 8, 0, (("t", 0),), False, second.append))
        stage.answer({"other": [(0, NONE)]})
        assert stage.ids_asked == [[("a", True)]]
        stage.answer({"a": [(0, NONE)]})
        assert first == [{("t", 0): NONE}] and not second
        stage.answer({"a": [(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]})
        assert second == [{("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}]

    play(story)


def test_what_is_not_answered_is_an_error_and_the_next_question_goes_out() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.ask("lost", 0)
        await stage.ask("refused", 0)
        _, reply = stage.asked.pop(0)
        reply(NoResponseReason.DISCONNECTED)
        assert stage.answers == {"lost": {("t", 0): ErrorCode.NETWORK_EXCEPTION}}
        stage.answer({}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert stage.answers["refused"] == {("t", 0): ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        await stage.ask("forgotten", 0)
        stage.answer({})
        assert stage.answers["forgotten"] == {("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR}

    play(story)


def test_without_a_coordinator_the_answer_comes_at_once() -> None:
    async def story() -> None:
        for leader, has_endpoint in ((NOWHERE, True), (THERE, False)):
            stage = Stage(leader)
            stage.has_endpoint = has_endpoint
            await stage.ask("a", 0)
            assert stage.answers == {"a": {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}}
            stage.has_endpoint, stage.leader = True, THERE
            await stage.ask("b", 0)
            assert stage.ids_asked == [[("b", True)]]

    play(story)


def test_the_coordinator_of_this_broker_is_asked_without_a_request() -> None:
    async def story() -> None:
        stage = Stage(HERE)
        await stage.ask("a", 0)
        await stage.ask("b", 1, adds=True)
        verify, add = stage.submitted
        assert isinstance(verify, VerifyPartitions) and isinstance(add, AddPartitions) and not stage.asked
        cast("Any", verify.waiter.token).complete({("t", 0): NONE})
        cast("Any", add.waiter.token).complete(ErrorCode.PRODUCER_FENCED)
        assert stage.answers == {"a": {("t", 0): NONE}, "b": {("t", 1): ErrorCode.PRODUCER_FENCED}}
        stage.runner = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await stage.ask("c", 0)
        assert stage.answers["c"] == {("t", 0): ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

    play(story)


def test_a_question_that_adds_waits_for_the_end_of_the_transaction_before() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.ask("a", 0, adds=True)
        stage.answer({"a": [(0, BUSY)]})
        assert not stage.answers and not stage.asked
        await asyncio.sleep(1.5 * RETRY_MS / 1000)
        stage.answer({"a": [(0, NONE)]})
        assert stage.answers == {"a": {("t", 0): NONE}}
        await stage.ask("b", 0, adds=True)
        while "b" not in stage.answers:
            if stage.asked:
                stage.answer({"b": [(0, BUSY)]})
            await asyncio.sleep(0.001)
        assert stage.answers["b"] == {("t", 0): BUSY}  # its patience has ended
        await stage.ask("c", 0)
        stage.answer({"c": [(0, BUSY)]})
        assert stage.answers["c"] == {("t", 0): BUSY}  # the older protocol's producer asks again itself

    play(story)


def test_the_pauses_between_questions_double_up_to_the_setting() -> None:
    async def story() -> None:
        stage = Stage()
        loop = asyncio.get_running_loop()
        await stage.ask("a", 0, adds=True)
        asked_ms = [loop.time() * 1000]
        while "a" not in stage.answers:
            stage.answer({"a": [(0, BUSY)]})
            while not stage.asked and "a" not in stage.answers:
                await asyncio.sleep(0.000_1)
            asked_ms.append(loop.time() * 1000)
        pauses = [round(after - before) for before, after in pairwise(asked_ms)]
        assert pauses[:-1] == [1, 2, 4, 8, 16, 20, 20, 20, 20]

    play(story)
