"""Random producers of a few transactional ids under one coordinator, which is taken over again and again.

A seed draws how the log behaves, how often answers are lost and requests come twice or much later, which protocols the
clients speak, whether transaction.version moves, how late markers and reports about them are. Then all is quiet, and
every transaction ends.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Final, NamedTuple

from moldau.coordinator.transaction.events import (
    MarkersWritten,
    SendMarkers,
    TopicPartition,
    TransactionConfig,
    VerifyPartitions,
)
from moldau.coordinator.transaction.records import TransactionChange, record_of
from moldau.coordinator.transaction.transaction import EMPTY, LAST_EPOCH, ONGOING, Transaction
from moldau.protocol.errors import ErrorCode
from tests.simulation.transactions.data import Partition
from tests.simulation.transactions.producer import PROTOCOL_1, PROTOCOL_2, Phase, Producer, Sender, Sent
from tests.simulation.transactions.rules import Rules
from tests.simulation.transactions.stage import DrawnTransactionStage
from tests.support.coordinator_swarm import CoordinatorSwarm
from tests.support.drawn_stage import Asked, Manners
from tests.support.drawn_steps import Violation, Weighted

TIDS: Final = ("t0", "t1", "t2")
PARTITIONS: Final = ("a", "b", "c")
PRODUCERS_MAX: Final = 6
QUIET_ROUNDS: Final = 12
UNHEARD: Final = -1
"""The number of a request whose answer the client does not await."""


class Flight(NamedTuple):
    """A marker on its way to a partition."""

    command: SendMarkers
    partition: str


def confirmed_for(tid: str, producer: tuple[int, int], place: TopicPartition, known: Transaction | None) -> None:
    """Raises `Violation` if a coordinator that knew this transaction must not have confirmed the partition to the
    producer id and epoch: what is open in a log is among the partitions of its coordinator."""
    if known is None or known.state is not ONGOING or (known.producer_id, known.producer_epoch) != producer:
        raise Violation(f"{tid}: {place} is confirmed for {producer}, and the log has {known}")
    if place not in known.partitions:
        raise Violation(f"{tid}: {place} is confirmed, and its transaction has {known.partitions}")


class Swarm(CoordinatorSwarm):
    STEPS = 600
    LATE_MAX = 12
    WAITS_MS = (1, 10, 100)
    LONG_WAIT_MS = (1_000, 30_000)
    stage: DrawnTransactionStage

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/transactions")
        super().__init__(random)
        config = TransactionConfig(
            id_expiration_ms=random.choice((20_000, 10_000_000)),
            id_cleanup_interval_ms=5_000,
            abort_interval_ms=random.choice((500, 2_000)),
            commit_timeout_ms=random.choice((1_000, 5_000)),
        )
        self.rules = Rules({name: Partition(name) for name in PARTITIONS})
        self.watchers = (self.rules,)
        version = random.choice((2, 2, 2, 1, 0))
        self.stage = self.rules.stage = DrawnTransactionStage(random, self, config, version)
        self.manners = Manners(
            random.choice((0.0, 0.0, 0.1)),
            random.choice((1.0, 0.8, 0.3)),
            random.choice((0.0, 0.0, 0.03)),
        )
        self._lacks_ids = random.choice((0.0, 0.1))
        self.draw_losses()
        self._is_exhausted = random.random() < 0.3
        self._flights: list[Flight] = []
        self._reports: list[MarkersWritten] = []
        self._names = count(1)
        self.producers: list[Producer] = []
        self.steps: Weighted = [
            (self.act, 120),
            (self.write, 60),
            (self.write_late, 15),
            (self.deliver_marker, random.choice((20, 60, 120))),
            (self.report, random.choice((20, 60, 120))),
            (self.commit_log, 20),
            (self.wait_a_little, 30),
            (self.wait_long, random.choice((0, 2, 6))),
            (self.start, 5),
            (self.deliver_late, 15 if self.repeats else 0),
            (self.take_over, random.choice((0, 1, 4))),
            (self.hold, random.choice((0, 1))),
            (self.change_version, random.choice((0, 0, 1))),
        ]

    # The story

    def begin(self) -> None:
        if self._is_exhausted:
            self._use_up_epochs()
        self.stage.lacks_ids = self._lacks_ids

    def _use_up_epochs(self) -> None:
        """Transactional ids of long ago, whose producer ids have few epochs left."""
        for index, tid in enumerate(TIDS):
            epoch = LAST_EPOCH - self.random.randint(0, 4)
            change = TransactionChange(tid, Transaction(index + 1, epoch, 60_000, EMPTY, self.stage.wall_ms))
            self.stage.store(record_of(change, self.stage.transaction_version, self.stage.wall_ms))
        self.stage.take_over(is_told=True)

    def end(self) -> None:
        """No client is left, and nothing fails: every transaction ends."""
        self.stage.manners, self.stage.lacks_ids = Manners(), 0.0
        self.stage.commit_log()
        self.stage.take_over()
        for _ in range(QUIET_ROUNDS):
            self.stage.wait(10_000)
            self._deliver_all()
        self.rules.look_at_the_end()
        self.check_answers()

    def _deliver_all(self) -> None:
        while self._flights:
            self._fly(self._flights.pop(0))
        while self._reports:
            self.stage.step(self._reports.pop(0))

    def is_answered(self, asked: Asked) -> bool:
        """Every request to a coordinator is answered once."""
        return asked.replies == 1

    def commanded(self, command: SendMarkers) -> None:
        super().commanded(command)
        self._flights += [Flight(command, name) for name, _ in command.partitions]

    def answer(self, asked: Asked, response: object) -> None:
        """The client hears it, unless the answer is lost, or it does not wait for it any more."""
        sender, event = asked.owner, asked.event
        if not isinstance(sender, Sender):
            return
        self.rules.answered(event, response)
        if sender.number != sender.client.requests or self.random.random() < self.loses:
            return
        self.rules.told(sender.client, event, response)
        sender.client.hear(event, response)

    # Clients

    def start(self) -> None:
        """A process starts. One with the same transactional id may run, and does not know."""
        self.producers = [each for each in self.producers if each.phase is not Phase.STOPPED][1 - PRODUCERS_MAX :]
        has_protocol_2 = self.stage.transaction_version == PROTOCOL_2 and self.random.random() < 0.8
        protocol = PROTOCOL_2 if has_protocol_2 else PROTOCOL_1
        name, tid = f"p{next(self._names)}", self.random.choice(TIDS)
        self.producers.append(Producer(name, tid, protocol, self.random, list(PARTITIONS)))

    def act(self) -> None:
        if not self.producers:
            return
        client = self.random.choice(self.producers)
        if client.is_waiting and self.random.random() < 0.9:
            return  # else it has lost its patience
        sent = client.request()
        if sent is not None:
            self._send(client, sent)

    def _send(self, client: Producer, sent: Sent) -> None:
        """It may get lost, come twice, or come again much later."""
        client.requests += 1
        client.is_waiting = True
        sender = Sender(client, client.requests, client.effort)
        if sent.may_come_late and self.random.random() < self.repeats:
            self.keep_late((sender, sent))
        if self.random.random() < self.repeats:
            self._ask(sender._replace(number=UNHEARD), sent)
        if self.random.random() >= self.loses / 2:
            self._ask(sender, sent)

    def _ask(self, sender: Sender, sent: Sent) -> None:
        epoch = self.stage.epoch
        asked = self.stage.send(sender, 0, sent.make)
        if self.stage.epoch == epoch:  # else its process has ended over the request
            self.asked.append(asked)

    def ask_late(self, sent: tuple[Sender, Sent]) -> None:
        sender, request = sent
        self._ask(sender._replace(number=UNHEARD), request)

    def write(self) -> None:
        """A record of a transaction, verified if it is the first in its partition (KIP-890)."""
        clients = [each for each in self.producers if each.phase is Phase.OPEN and each.added]
        if not clients:
            return
        client = self.random.choice(clients)
        effort = client.effort
        assert effort is not None
        name = self.random.choice(client.added)
        partition = self.rules.partitions[name]
        if effort not in partition.open.get(effort.producer_id, ()):
            error = self._verified(client, name)
            if error is ErrorCode.CONCURRENT_TRANSACTIONS:
                return
            if error is not ErrorCode.NONE:
                client.fail()
                return
        if partition.write(effort):
            self.rules.efforts.append(effort)
        else:
            client.fail()

    def write_late(self) -> None:
        """A record of any transaction that a client ever had, in any partition: a leader asks about it."""
        client = self.random.choice(self.producers) if self.producers else None
        if client is not None and client.producer_id >= 0:
            self._verified(client, self.random.choice(PARTITIONS))

    def _verified(self, client: Producer, name: str) -> ErrorCode:
        place, tid, producer = (name, 0), client.tid, (client.producer_id, client.epoch)
        known = self.rules.committed_log.get(tid)
        request = self.stage.send(None, 0, lambda waiter: VerifyPartitions(waiter, tid, *producer, (place,)))
        assert isinstance(request.response, dict)
        error = request.response[place]
        assert isinstance(error, ErrorCode)
        if error is ErrorCode.NONE:
            confirmed_for(tid, producer, place, known)
        return error

    # Markers

    def deliver_marker(self) -> None:
        if not self._flights:
            return
        flight = self._flights.pop(self.random.randrange(len(self._flights)))
        is_former = flight.command.coordinator_epoch < self.stage.epoch
        if is_former and self.random.random() < 0.3:
            return  # the process that sent it is gone
        is_repeatable = flight.command.transaction_version >= PROTOCOL_2
        if is_repeatable and self.random.random() < self.repeats:
            self._flights.append(flight)
        self._fly(flight)

    def _fly(self, flight: Flight) -> None:
        command, name = flight
        if self.rules.mark(command, name):
            self._reports.append(MarkersWritten(command, frozenset({(name, 0)})))

    def report(self) -> None:
        """Reports come to the coordinator of the moment, also those about markers of a former one."""
        if not self._reports:
            return
        report = self._reports.pop(self.random.randrange(len(self._reports)))
        if self.random.random() < self.repeats:
            self._reports.append(report)
        self.stage.step(report)

    # The coordinator

    def take_over(self) -> None:
        self.stage.now_ms += self.random.choice((0, 0, 2_000))
        self.stage.wall_skew_ms = self.random.randint(-2_000, 2_000)
        self.stage.take_over(is_told=self.random.random() < 0.5)
        self.held_until_ms = 0

    def change_version(self) -> None:
        """The operator upgrades or downgrades the feature, with transactions open."""
        self.stage.transaction_version = self.random.choice((0, 1, 2))
