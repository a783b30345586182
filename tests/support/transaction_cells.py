"""Every cell of the table of transactions, asked of a coordinator: of ours on a stage, and of Apache Kafka's.

`python -m tests.support.transaction_cells PORT` asks a fresh Apache Kafka broker on that port, with transaction.version
2, and prints the answers as the test keeps them. It uses up the epochs of three producers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Final, NamedTuple, Protocol

from moldau.coordinator.transaction.events import ProducerIdAnswer, TopicPartition
from moldau.coordinator.transaction.table import (
    CLAIMS,
    CURRENT,
    FOREIGN,
    INIT_CLAIMS,
    NEWER,
    OLDER,
    PREVIOUS,
    REPLACED,
    TABLE,
    UNNAMED,
    ProducerClaim,
    RequestKind,
    StateAndClaim,
)
from moldau.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED_STATES,
    DEAD,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_COMMIT,
    TransactionState,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.group_conversation import Wire

A: Final = ("a", 0)
B: Final = ("b", 0)
LATE: Final = ("late", 0)
"""A partition whose marker is late. A broker does not hold it back: a cell is asked until the answer came before it."""
TRIES_MAX: Final = 100
TIMEOUT_MS: Final = 60_000
STRANGER: Final = 1_000_000
"""The distance to a producer id that is not the transactional id's."""
UNKNOWN_PRODUCER: Final = (77, 3)
REACHABLE_REPLACED: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""Once partitions are added, or the outcome is prepared, the producer id before this one is forgotten."""


class Seen(NamedTuple):
    """The state that DescribeTransactions reports."""

    state: str
    producer_id: int
    producer_epoch: int


class Coordinator(Protocol):
    """The coordinator that is asked."""

    def init(self, tid: str, producer_id: int = -1, epoch: int = -1) -> ProducerIdAnswer: ...

    def add(self, tid: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode: ...

    def verify(self, tid: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode: ...

    def end(self, tid: str, producer_id: int, epoch: int, *, commits: bool, protocol: int) -> ProducerIdAnswer: ...

    def seen(self, tid: str) -> Seen:
        """Once the markers of the transaction are written, if its partitions take them."""

    def exhaust(self, tid: str) -> int:
        """Give a producer the last epoch of its id. Returns the id."""


class Cells:
    """Asks, and writes down each answer with the state that follows."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._numbers = count()
        self.answers: dict[str, str] = {}

    def ask_all(self) -> dict[str, str]:
        for intent, standing, claim in reachable_cells():
            for _ in range(TRIES_MAX):
                tid = f"{intent.name}-{standing.name}-{claim.name}-{next(self._numbers)}".lower()
                producer = self._reach(standing, tid)
                seen = self._ask(tid, intent, standing, claim, producer)
                if standing not in COMPLETED_STATES or seen.state.startswith("Prepare"):
                    break
        for standing in REACHABLE_REPLACED:
            self._ask_replaced(standing)
        return self.answers

    def _ask_replaced(self, standing: TransactionState) -> None:
        """One producer for all requests that name it after its id is replaced; the last of them may move it."""
        tid = f"replaced-{standing.name}".lower()
        producer_id = self._coordinator.exhaust(tid)
        if standing is EMPTY:
            self._coordinator.init(tid)
        else:
            self._coordinator.add(tid, producer_id, LAST_EPOCH, A)
            commits = standing is COMPLETE_COMMIT
            answer = self._coordinator.end(tid, producer_id, LAST_EPOCH, commits=commits, protocol=2)
            self._note(f"REPLACES {standing.name}", self._told(answer, (producer_id, LAST_EPOCH)), tid, producer_id)
        for intent in (*(each for each in RequestKind if each is not RequestKind.INIT), RequestKind.INIT):
            self._ask(tid, intent, standing, REPLACED, (producer_id, LAST_EPOCH))

    def _reach(self, standing: TransactionState, tid: str) -> tuple[int, int]:
        """Bring a new transactional id into a state. Returns its producer id and epoch."""
        if standing is DEAD:
            return UNKNOWN_PRODUCER
        for _ in range(3):
            answer = self._coordinator.init(tid)
        _, producer_id, epoch = self._coordinator.init(tid, answer.producer_id, answer.producer_epoch)
        if standing is EMPTY:
            return producer_id, epoch
        partition = LATE if standing in COMPLETED_STATES else A
        error = self._coordinator.add(tid, producer_id, epoch, partition)
        assert error is ErrorCode.NONE, error
        if standing is not ONGOING:
            commits = standing in (PREPARE_COMMIT, COMPLETE_COMMIT)
            error, _, epoch = self._coordinator.end(tid, producer_id, epoch, commits=commits, protocol=2)
            assert error is ErrorCode.NONE, error
            if standing not in COMPLETED_STATES:
                self._coordinator.seen(tid)
        return producer_id, epoch

    def _ask(
        self, tid: str, intent: RequestKind, standing: TransactionState, claim: ProducerClaim, producer: tuple[int, int]
    ) -> Seen:
        told = self._answer_to(tid, intent, *claimed(claim, *producer), producer)
        return self._note(cell_name(intent, standing, claim), told, tid, producer[0], producer[1])

    def _answer_to(self, tid: str, intent: RequestKind, producer_id: int, epoch: int, producer: tuple[int, int]) -> str:
        ask = self._coordinator
        match intent:
            case RequestKind.INIT:
                return self._told(ask.init(tid, producer_id, epoch), producer)
            case RequestKind.ADD:
                return ask.add(tid, producer_id, epoch, B).name
            case RequestKind.VERIFY:
                within, outside = (ask.verify(tid, producer_id, epoch, partition) for partition in (A, B))
                return f"{within.name} {outside.name}"
            case _:
                commits, protocol = intent.name.startswith("COMMIT"), int(intent.name[-1])
                return self._told(ask.end(tid, producer_id, epoch, commits=commits, protocol=protocol), producer)

    def _told(self, answer: ProducerIdAnswer, producer: tuple[int, int]) -> str:
        if answer.producer_id == -1:
            return answer.error.name
        return f"{answer.error.name} {relative(answer.producer_id, answer.producer_epoch, *producer)}"

    def _note(self, cell: str, told: str, tid: str, producer_id: int, epoch: int = LAST_EPOCH) -> Seen:
        seen = self._coordinator.seen(tid)
        after = f"{seen.state} {relative(seen.producer_id, seen.producer_epoch, producer_id, epoch)}"
        self.answers[cell] = f"{told} -> {'Dead' if seen.state == 'Dead' else after}"
        return seen


def reachable_cells() -> Iterator[tuple[RequestKind, TransactionState, ProducerClaim]]:
    """The cells that one broker can be brought to: a record that stays pending takes more."""
    for intent, rows in TABLE.items():
        for standing in rows:
            for claim in INIT_CLAIMS if intent is RequestKind.INIT else CLAIMS:
                if isinstance(standing, TransactionState) and claim is not REPLACED:
                    yield intent, standing, claim


def cell_name(intent: RequestKind, standing: StateAndClaim, claim: ProducerClaim) -> str:
    return f"{intent.name} {standing.name} {claim.name}"


def claimed(claim: ProducerClaim, producer_id: int, epoch: int) -> tuple[int, int]:
    """The producer id and epoch of a request with this claim."""
    return {
        UNNAMED: (-1, -1),
        CURRENT: (producer_id, epoch),
        PREVIOUS: (producer_id, epoch - 1),
        REPLACED: (producer_id, epoch),
        OLDER: (producer_id, epoch - 2),
        NEWER: (producer_id, epoch + 1),
        FOREIGN: (producer_id + STRANGER, epoch),
    }[claim]


def relative(producer_id: int, epoch: int, than_producer_id: int, than_epoch: int) -> str:
    """A producer id and epoch as differences from a given pair."""
    return f"{epoch - than_epoch:+}" if producer_id == than_producer_id else f"new/{epoch}"


class Apache:
    """An Apache Kafka broker on this machine."""

    def __init__(self, port: int) -> None:
        self._wire = Wire(port)
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name, _ in (A, B, LATE)]
        created = self._wire.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        assert isinstance(created, CreateTopicsResponse), created

    def init(self, tid: str, producer_id: int = -1, epoch: int = -1) -> ProducerIdAnswer:
        """Asked again if the broker is not ready, and if the answer says so and the transaction goes on."""
        request = InitProducerIdRequest(
            transactional_id=tid, transaction_timeout_ms=TIMEOUT_MS, producer_id=producer_id, producer_epoch=epoch
        )
        while True:
            response = self._wire.call(request, 5)
            assert isinstance(response, InitProducerIdResponse)
            if response.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                return ProducerIdAnswer(ErrorCode(response.error_code), response.producer_id, response.producer_epoch)
            self._find(tid)

    def _find(self, tid: str) -> None:
        found = self._wire.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[tid]), 6)
        assert isinstance(found, FindCoordinatorResponse)
        time.sleep(0.1)

    def add(self, tid: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        return self._partitions(tid, producer_id, epoch, partition, verifies=False)

    def verify(self, tid: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        return self._partitions(tid, producer_id, epoch, partition, verifies=True)

    def _partitions(
        self, tid: str, producer_id: int, epoch: int, partition: TopicPartition, *, verifies: bool
    ) -> ErrorCode:
        topic = AddPartitionsToTxnTopic(name=partition[0], partitions=[partition[1]])
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=tid,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verifies,
            topics=[topic],
        )
        response = self._wire.call(AddPartitionsToTxnRequest(transactions=[transaction]), 5)
        assert isinstance(response, AddPartitionsToTxnResponse)
        result = response.results_by_transaction[0].topic_results[0].results_by_partition[0]
        return ErrorCode(result.partition_error_code)

    def end(self, tid: str, producer_id: int, epoch: int, *, commits: bool, protocol: int) -> ProducerIdAnswer:
        request = EndTxnRequest(transactional_id=tid, producer_id=producer_id, producer_epoch=epoch, committed=commits)
        response = self._wire.call(request, 5 if protocol == 2 else 4)
        assert isinstance(response, EndTxnResponse)
        return ProducerIdAnswer(ErrorCode(response.error_code), response.producer_id, response.producer_epoch)

    def seen(self, tid: str) -> Seen:
        for _ in range(1_000):
            response = self._wire.call(DescribeTransactionsRequest(transactional_ids=[tid]), 0)
            assert isinstance(response, DescribeTransactionsResponse)
            (state,) = response.transaction_states
            if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return Seen("Dead", -1, -1)
            assert state.error_code == ErrorCode.NONE
            is_late = any(topic.topic == LATE[0] for topic in state.topics)
            if is_late or not state.transaction_state.startswith("Prepare"):
                return Seen(state.transaction_state, state.producer_id, state.producer_epoch)
            time.sleep(0.002)
        raise AssertionError(f"{tid} stays prepared")

    def exhaust(self, tid: str) -> int:
        while (answer := self.init(tid)).producer_epoch < LAST_EPOCH:
            assert answer.error is ErrorCode.NONE, answer
        return answer.producer_id


def main(port: int) -> None:
    for cell, answer in Cells(Apache(port)).ask_all().items():
        print(f"{cell}: {answer}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
