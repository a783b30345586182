"""Random producers of a few transactional ids under one coordinator, which is taken over again and again.

A seed draws how the log behaves, how often answers are lost and requests come twice or much later, which protocols the
clients speak, whether transaction.version moves, how late markers and reports about them are. Then all is quiet, and
every transaction ends.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Final, NamedTuple

from moldau.coordinator.runtime.machine import Loaded, RuntimeEvent
from moldau.coordinator.transaction.events import (
    MarkersWritten,
    SendMarkers,
    TopicPartition,
    TransactionConfig,
    TransactionEvent,
    VerifyPartitions,
)
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.transaction import EMPTY, LAST_EPOCH, ONGOING, Transaction
from moldau.protocol.errors import ErrorCode
from tests.simulation.transactions.data import Partition
from tests.simulation.transactions.producer import PROTOCOL_1, PROTOCOL_2, Asked, Phase, Producer, Sent
from tests.simulation.transactions.rules import Rules
from tests.simulation.transactions.shell import Manners, Request, Shell, Stored
from tests.support.drawn_steps import DrawnSwarm, Violation, Weighted

STEPS: Final = 600
TIDS: Final = ("t0", "t1", "t2")
PARTITIONS: Final = ("a", "b", "c")
PRODUCERS_MAX: Final = 6
LATE_MAX: Final = 12
QUIET_ROUNDS: Final = 12
UNHEARD: Final = -1
"""The number of a request whose answer the client does not await."""


class Flight(NamedTuple):
    """A marker on its way to a partition."""

    command: SendMarkers
    partition: str


def confirmed_for(tid: str, producer: tuple[int, int], place: TopicPartition, known: Transaction | None) -> None:
    """Raises `Violation` where a coordinator that knew this transaction must not have confirmed the partition to the
    producer id and epoch: what is open in a log is among the partitions of its coordinator."""
    if known is None or known.state is not ONGOING or (known.producer_id, known.producer_epoch) != producer:
        raise Violation(f"{tid}: {place} is confirmed for {producer}, and the log has {known}")
    if place not in known.partitions:
        raise Violation(f"{tid}: {place} is confirmed, and its transaction has {known.partitions}")


class Swarm(DrawnSwarm):
    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/transactions")
        config = TransactionConfig(
            id_expiration_ms=random.choice((20_000, 10_000_000)),
            id_cleanup_interval_ms=5_000,
            abort_interval_ms=random.choice((500, 2_000)),
            commit_timeout_ms=random.choice((1_000, 5_000)),
        )
        self.rules = Rules({name: Partition(name) for name in PARTITIONS})
        self.shell = self.rules.shell = Shell(random, config, self)
        self.shell.transaction_version = random.choice((2, 2, 2, 1, 0))
        self._manners = Manners(
            random.choice((0.0, 0.0, 0.1)),
            random.choice((1.0, 0.8, 0.3)),
            random.choice((0.0, 0.0, 0.03)),
            random.choice((0.0, 0.1)),
        )
        self._loses = random.choice((0.0, 0.05, 0.2))
        self._repeats = random.choice((0.0, 0.05, 0.2))
        self._is_exhausted = random.random() < 0.3
        self._requests: list[Request] = []
        self._late: list[tuple[Asked, Sent]] = []
        self._flights: list[Flight] = []
        self._reports: list[MarkersWritten] = []
        self._held_until_ms = 0
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
            (self.deliver_late, 15 if self._repeats else 0),
            (self.take_over, random.choice((0, 1, 4))),
            (self.hold, random.choice((0, 1))),
            (self.change_version, random.choice((0, 0, 1))),
        ]

    # The story

    def run(self) -> None:
        self.shell.step(Loaded())
        if self._is_exhausted:
            self._use_up_epochs()
        self.shell.manners = self._manners
        self.go(STEPS)

    def time_ms(self) -> int:
        return self.shell.now_ms

    def wait(self, ms: int) -> None:
        self.shell.wait(ms)

    def _use_up_epochs(self) -> None:
        """Transactional ids of long ago, whose producer ids have few epochs left."""
        for index, tid in enumerate(TIDS):
            epoch = LAST_EPOCH - self.random.randint(0, 4)
            self.shell.store(TransactionChange(tid, Transaction(index + 1, epoch, 60_000, EMPTY, self.shell.wall_ms)))
        self.shell.take_over(is_told=True)

    def end(self) -> None:
        """No client is left, and nothing fails: every transaction ends."""
        shell = self.shell
        shell.manners = Manners()
        shell.commit()
        shell.take_over(is_told=True)
        for _ in range(QUIET_ROUNDS):
            shell.wait(10_000)
            self._deliver_all()
        self.rules.look_at_the_end()
        self._is_answered()

    def _deliver_all(self) -> None:
        while self._flights:
            self._fly(self._flights.pop(0))
        while self._reports:
            self.shell.step(self._reports.pop(0))

    def _is_answered(self) -> None:
        """Every request to this coordinator, once."""
        wrong = [each.event for each in self._requests if each.replies != 1]
        if wrong:
            raise Violation(f"answered never, or more than once: {wrong[:3]}")
        self._requests.clear()

    # Watching

    def appended(self, changes: tuple[TransactionChange, ...], cause: TransactionEvent | RuntimeEvent) -> None:
        self.rules.appended(changes, cause)

    def cut(self, log: list[Stored]) -> None:
        self.rules.cut(log)

    def committed(self, stored: Stored) -> None:
        self.rules.committed(stored)

    def commanded(self, command: SendMarkers) -> None:
        self.rules.commanded(command)
        self._flights += [Flight(command, name) for name, _ in command.partitions]

    def replied(self, request: Request) -> None:
        """The client hears it, unless the answer is lost, or it does not wait for it any more."""
        asked, event = request.owner, request.event
        if not isinstance(asked, Asked) or event is None:
            return
        self.rules.answered(event, request.response)
        if asked.number != asked.client.requests or self.random.random() < self._loses:
            return
        self.rules.told(asked.client, event, request.response)
        asked.client.hear(event, request.response)

    def settled(self) -> None:
        self.rules.settled()

    def replaced(self, *, is_told: bool) -> None:
        if is_told:
            self._is_answered()
        self._requests.clear()

    # Clients

    def start(self) -> None:
        """A process starts. One with the same transactional id may run, and does not know."""
        self.producers = [each for each in self.producers if each.phase is not Phase.STOPPED][1 - PRODUCERS_MAX :]
        has_protocol_2 = self.shell.transaction_version == PROTOCOL_2 and self.random.random() < 0.8
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
        asked = Asked(client, client.requests, client.effort)
        if sent.may_come_late and self.random.random() < self._repeats:
            self._late = [*self._late[1 - LATE_MAX :], (asked, sent)]
        if self.random.random() < self._repeats:
            self._ask(asked._replace(number=UNHEARD), sent)
        if self.random.random() >= self._loses / 2:
            self._ask(asked, sent)

    def _ask(self, asked: Asked, sent: Sent) -> None:
        coordinator_epoch = self.shell.coordinator_epoch
        request = self.shell.ask(asked, sent.make)
        if self.shell.coordinator_epoch == coordinator_epoch:  # else its process has ended over the request
            self._requests.append(request)

    def deliver_late(self) -> None:
        if self._late:
            asked, sent = self._late.pop(self.random.randrange(len(self._late)))
            self._ask(asked._replace(number=UNHEARD), sent)

    def write(self) -> None:
        """A record of a transaction, verified where it is the first in its partition (KIP-890)."""
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
        request = self.shell.ask(None, lambda waiter: VerifyPartitions(waiter, tid, *producer, (place,)))
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
        is_former = flight.command.coordinator_epoch < self.shell.coordinator_epoch
        if is_former and self.random.random() < 0.3:
            return  # the process that sent it is gone
        is_repeatable = flight.command.transaction_version >= PROTOCOL_2
        if is_repeatable and self.random.random() < self._repeats:
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
        if self.random.random() < self._repeats:
            self._reports.append(report)
        self.shell.step(report)

    # The log, time, the coordinator

    def commit_log(self) -> None:
        if self.shell.now_ms >= self._held_until_ms:
            self.shell.manners = self._manners
            self.shell.commit(self.shell.boundary())

    def hold(self) -> None:
        """Nothing is committed for longer than any client waits for that."""
        self._held_until_ms = self.shell.now_ms + 7_000
        self.shell.manners = self._manners._replace(commits=0.0)

    def wait_a_little(self) -> None:
        self.wait(self.random.choice((1, 10, 100)))

    def wait_long(self) -> None:
        self.wait(self.random.randint(1_000, 30_000))

    def take_over(self) -> None:
        self.shell.now_ms += self.random.choice((0, 0, 2_000))
        self.shell.wall_skew_ms = self.random.randint(-2_000, 2_000)
        self.shell.take_over(is_told=self.random.random() < 0.5)
        self._held_until_ms = 0

    def change_version(self) -> None:
        """The operator upgrades or downgrades the feature, with transactions open."""
        self.shell.transaction_version = self.random.choice((0, 1, 2))
