"""Each cell of the table, driven through the machine, and held against what Apache Kafka 4.3.1 answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.coordinator.transaction.events import ProducerIdAnswer, TopicPartition
from moldau.coordinator.transaction.table import (
    CLAIMS,
    INIT_CLAIMS,
    NEXT_STATE,
    PENDING,
    REPLACED,
    TABLE,
    Decision,
    ProducerClaim,
    RequestKind,
    StateAndClaim,
    TransactionMove,
)
from moldau.coordinator.transaction.transaction import (
    COMPLETED_STATES,
    DEAD,
    EMPTY,
    FORMER_STATES,
    LAST_EPOCH,
    NAMES,
    ONGOING,
    PREPARE_EPOCH_FENCE,
    Transaction,
    TransactionState,
)
from moldau.protocol.errors import ErrorCode
from tests.support.transaction_cells import (
    LATE,
    REACHABLE_REPLACED,
    TIMEOUT_MS,
    Cells,
    Seen,
    cell_name,
    claimed,
    reachable_cells,
)
from tests.support.transaction_stage import TID, A, TransactionStage

APACHE = Path(__file__).with_name("kafka_4_3_1_cells.txt")


class Staged:
    """Our coordinator, as one that is asked."""

    def __init__(self) -> None:
        self.stage = TransactionStage()

    def init(self, tid: str, producer_id: int = -1, epoch: int = -1) -> ProducerIdAnswer:
        answer = self.stage.init(producer_id, epoch, tid=tid)
        assert answer is not None
        return answer

    def add(self, tid: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        answer = self.stage.add(producer_id, epoch, partition, tid=tid)
        assert answer is not None
        return answer

    def verify(self, tid: str, producer_id: int, epoch: int, partition: TopicPartition) -> ErrorCode:
        return self.stage.verify(producer_id, epoch, partition, tid=tid)[partition]

    def end(self, tid: str, producer_id: int, epoch: int, *, commits: bool, protocol: int) -> ProducerIdAnswer:
        answer = self.stage.end(producer_id, epoch, commits=commits, tid=tid, protocol=protocol)
        assert answer is not None
        return answer

    def seen(self, tid: str) -> Seen:
        for command in [each for each in self.stage.commands if LATE not in each.partitions]:
            self.stage.commands.remove(command)
            self.stage.written(command)
        if isinstance(self.stage.shard.describe(tid), ErrorCode):
            return Seen("Dead", -1, -1)
        described = self.stage.describe(tid)
        return Seen(described.state, described.producer_id, described.producer_epoch)

    def exhaust(self, tid: str) -> int:
        first = self.init(tid)
        self.stage.load({tid: Transaction(first.producer_id, LAST_EPOCH, TIMEOUT_MS, EMPTY, self.stage.wall_ms)})
        return first.producer_id


def test_apache_kafka_answers_each_cell_alike() -> None:
    theirs = dict(line.split(": ", 1) for line in APACHE.read_text().splitlines()[1:])
    assert Cells(Staged()).ask_all() == theirs


def test_the_answers_of_apache_kafka_are_those_of_the_table() -> None:
    """Not only of the machine: each decision that is an error stands in its cell."""
    theirs = dict(line.split(": ", 1) for line in APACHE.read_text().splitlines()[1:])
    for intent, standing, claim in reachable_cells():
        answer, _, after = theirs[cell_name(intent, standing, claim)].partition(" -> ")
        decision = TABLE[intent][standing][claim]
        if isinstance(decision, ErrorCode):
            assert answer.split()[0] == decision.name
            assert after.split()[0] == NAMES[standing]
        else:
            expected = ErrorCode.CONCURRENT_TRANSACTIONS if decision is TransactionMove.FENCE else ErrorCode.NONE
            assert answer.split()[0] == expected.name or decision is TransactionMove.CHECK
            following = NEXT_STATE[decision] or standing
            assert after.split()[0] == NAMES[COMPLETED_STATES.get(following, following)]


PENDING_CELLS = [(intent, claim) for intent, rows in TABLE.items() if PENDING in rows for claim in rows[PENDING]]


@pytest.mark.parametrize(("intent", "claim"), PENDING_CELLS, ids=lambda each: each.name)
def test_a_pending_record_is_waited_for(intent: RequestKind, claim: ProducerClaim) -> None:
    """Every request but a verification meets the record of the request before it."""
    stage = TransactionStage()
    for _ in range(4):
        stage.init()
    stage.is_held = True
    assert stage.add(1_000, 3, A) is None
    assert answer_to(stage, intent, *claimed(claim, 1_000, 3)) is decision_of(intent, PENDING, claim)
    assert len(stage.log) == 5
    stage.release()
    assert stage.state() == "Ongoing"


def decision_of(intent: RequestKind, standing: StateAndClaim, claim: ProducerClaim) -> Decision:
    if claim is REPLACED:
        return TABLE[intent][standing][ProducerClaim.CURRENT]  # the previous producer id is the current one here
    return TABLE[intent][standing][claim]


def answer_to(stage: TransactionStage, intent: RequestKind, producer_id: int, epoch: int) -> ErrorCode:
    answer: ProducerIdAnswer | ErrorCode | None
    match intent:
        case RequestKind.INIT:
            answer = stage.init(producer_id, epoch)
        case RequestKind.ADD:
            answer = stage.add(producer_id, epoch, A)
        case _:
            commits, protocol = intent.name.startswith("COMMIT"), int(intent.name[-1])
            answer = stage.end(producer_id, epoch, commits=commits, protocol=protocol)
    assert answer is not None
    return answer.error if isinstance(answer, ProducerIdAnswer) else answer


@pytest.mark.parametrize("intent", [each for each in RequestKind if each not in (RequestKind.INIT, RequestKind.VERIFY)])
def test_a_replaced_producer_meets_a_pending_record(intent: RequestKind) -> None:
    stage = TransactionStage()
    stage.load({TID: Transaction(7, LAST_EPOCH, TIMEOUT_MS, EMPTY, stage.wall_ms)})
    assert stage.init() == ProducerIdAnswer(ErrorCode.NONE, 1_000, 0)
    stage.is_held = True
    assert stage.add(1_000, 0, A) is None
    assert answer_to(stage, intent, 7, LAST_EPOCH) is TABLE[intent][PENDING][REPLACED]


def test_the_table_is_complete() -> None:
    """Every request, every state that a transactional id can have, every claim."""
    assert list(TABLE) == list(RequestKind)
    states = [state for state in TransactionState if state is not PREPARE_EPOCH_FENCE]
    for intent, rows in TABLE.items():
        assert set(rows) == {*states, *([PENDING] if intent is not RequestKind.VERIFY else [])}
        assert all(tuple(row) == (INIT_CLAIMS if intent is RequestKind.INIT else CLAIMS) for row in rows.values())
    assert set(NEXT_STATE) == set(TransactionMove)


def test_every_move_is_a_transition() -> None:
    for intent, rows in TABLE.items():
        for standing, row in rows.items():
            for claim, decision in row.items():
                following = None if isinstance(decision, ErrorCode) else NEXT_STATE[decision]
                if following is not None:
                    assert standing in FORMER_STATES[following], (intent, standing, claim)


def test_after_the_next_record_the_former_producer_id_is_foreign() -> None:
    """Why the cells of a replaced producer are reached from Empty and the complete states only."""
    stage = TransactionStage()
    stage.load({TID: Transaction(7, LAST_EPOCH, TIMEOUT_MS, EMPTY, stage.wall_ms)})
    stage.init()
    assert stage.end(7, LAST_EPOCH, commits=True) == ProducerIdAnswer(ErrorCode.PRODUCER_FENCED)
    stage.add(1_000, 0, A)
    assert ONGOING not in REACHABLE_REPLACED and DEAD not in REACHABLE_REPLACED
    assert stage.end(7, LAST_EPOCH, commits=True) == ProducerIdAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert stage.state(TID) == "Ongoing"
