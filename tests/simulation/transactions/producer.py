"""A transactional producer as clients are: it starts, adds partitions, writes, ends, recovers, is fenced and stops."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from random import Random
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.transaction.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdAnswer,
    TransactionEvent,
)
from moldau.protocol.errors import ErrorCode
from tests.simulation.transactions.data import Effort

Make: TypeAlias = Callable[[Waiter], TransactionEvent]


class Sent(NamedTuple):
    """A request, as often as it arrives."""

    make: Make
    may_come_late: bool = True
    """Whether it may arrive after later requests of its client. An EndTxn of protocol 1 may not: it would end the next
    transaction (KAFKA-17754), which is why there is a protocol 2."""


AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""After these errors the client asks the same again."""
RECOVERS: Final = 0.03
"""How often a client asks for another epoch (KIP-360), if it might do something else."""
ENDS_NOTHING: Final = 0.05
PROTOCOL_1: Final = 0
PROTOCOL_2: Final = 2
"""As requests and records name them."""
FATAL: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})


class Sender(NamedTuple):
    """Which client awaits an answer, and what the request was about."""

    client: Producer
    number: int
    """The client hears the answer to its last request only."""
    effort: Effort | None


class Phase(Enum):
    STARTING = auto()
    IDLE = auto()
    OPEN = auto()
    ENDING = auto()
    STOPPED = auto()


class Producer:
    """One process with a transactional id; others may have the same."""

    def __init__(self, name: str, tid: str, protocol: int, random: Random, partitions: list[str]) -> None:
        self.name = name
        self.tid = tid
        self.protocol = protocol
        self.effort: Effort | None = None
        """The transaction under way, or the last one."""
        self.is_waiting = False
        self.requests = 0
        """The number of its last request."""
        self.phase = Phase.STARTING
        self.producer_id = self.epoch = -1
        self.added: list[str] = []
        """Partitions of the transaction that it may write to."""
        self.timeout_ms = random.choice((1_000, 5_000, 60_000))
        self._random = random
        self._partitions = partitions
        self._efforts = 0
        self._adding: list[str] = []
        self._commits = False

    # What it asks

    def request(self) -> Sent | None:
        """The request that it makes next, or repeats; None if it has none."""
        match self.phase:
            case Phase.STARTING:
                return self._init()
            case Phase.IDLE:
                return self._start_transaction()
            case Phase.OPEN if self._adding:
                return self._add()
            case Phase.OPEN:
                return self._choose()
            case Phase.ENDING:
                return self._end()
            case _:
                return None

    def _start_transaction(self) -> Sent:
        """Begin one, now and then without a partition, or have another epoch first."""
        if self._random.random() < RECOVERS:
            self.phase = Phase.STARTING
            return self._init()
        self._efforts += 1
        self.effort = Effort(f"{self.name}.{self._efforts}", self.producer_id, self.epoch)
        self.added = []
        if self._random.random() < ENDS_NOTHING:
            return self._choose_end()
        self.phase = Phase.OPEN
        self._adding = self._random.sample(self._partitions, self._random.choice((1, 1, 2)))
        return self._add()

    def _choose_end(self) -> Sent:
        self._commits = self._random.random() < 0.7
        self.phase = Phase.ENDING
        return self._end()

    def _choose(self) -> Sent | None:
        """Add another partition, end the transaction, recover from an error, or do nothing of the kind for now."""
        drawn = self._random.random()
        if drawn < 0.2:
            self._adding = [self._random.choice(self._partitions)]
            return self._add()
        if drawn < 0.7:
            return self._choose_end()
        if drawn < 0.7 + RECOVERS:
            self.phase = Phase.STARTING
            return self._init()
        return None

    def _init(self) -> Sent:
        event = (self.tid, self.timeout_ms, self.producer_id, self.epoch, 2)
        return Sent(lambda waiter: InitProducerId(waiter, *event))

    def _add(self) -> Sent:
        partitions = tuple((each, 0) for each in self._adding)
        event = (self.tid, self.producer_id, self.epoch, partitions, self.protocol)
        return Sent(lambda waiter: AddPartitions(waiter, *event))

    def _end(self) -> Sent:
        assert self.effort is not None
        if self._commits:
            self.effort.asks_commit = True
        else:
            self.effort.asks_abort = True
        event = (self.tid, self.producer_id, self.epoch, self._commits, self.protocol)
        return Sent(lambda waiter: EndTransaction(waiter, *event), self.protocol == PROTOCOL_2)

    # What it hears

    def hear(self, event: TransactionEvent, answer: object) -> None:
        """The answer to its last request."""
        self.is_waiting = False
        error = answer.error if isinstance(answer, ProducerIdAnswer) else answer
        if error in AGAIN:
            return
        if error in FATAL:
            self.phase = Phase.STOPPED
        elif error is not ErrorCode.NONE:
            self.fail()
        else:
            self._hear_success(event, answer)

    def _hear_success(self, event: TransactionEvent, answer: object) -> None:
        match event:
            case InitProducerId():
                assert isinstance(answer, ProducerIdAnswer)
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.phase = Phase.IDLE
            case AddPartitions():
                self.added += self._adding
                self._adding = []
            case EndTransaction():
                assert isinstance(answer, ProducerIdAnswer) and self.effort is not None
                self.effort.told = event.is_commit
                if event.client_version:
                    self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
                self.phase = Phase.IDLE

    def fail(self) -> None:
        """The transaction cannot be committed any more: abort it, recover (KIP-360), or stop."""
        drawn = self._random.random()
        if drawn < 0.4 and self.phase is Phase.OPEN:
            self._commits, self.phase = False, Phase.ENDING
        elif drawn < 0.5 and self.phase is Phase.ENDING and self._commits:
            self._commits = False
        elif drawn < 0.9:
            self.phase = Phase.STARTING
        else:
            self.phase = Phase.STOPPED
