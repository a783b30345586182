"""What a log of transactions may hold, which markers may leave, how transactions may end."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.transaction.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdAnswer,
    SendMarkers,
    TopicPartition,
    TransactionEvent,
)
from moldau.coordinator.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED_STATES,
    DEAD,
    EMPTY,
    EPOCH_MAX,
    FORMER_STATES,
    LAST_EPOCH,
    NAMES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
)
from moldau.protocol.errors import ErrorCode
from tests.simulation.transactions.data import Effort, Partition
from tests.simulation.transactions.producer import Producer, Sender
from tests.simulation.transactions.stage import DrawnTransactionStage
from tests.support.drawn_stage import Asked, Watcher
from tests.support.drawn_steps import Violation
from tests.support.machine_stage import Batch

ASKED: Final = (InitProducerId, AddPartitions, EndTransaction)
COMPLETE: Final = (COMPLETE_COMMIT, COMPLETE_ABORT)
COMMITTED: Final = (PREPARE_COMMIT, COMPLETE_COMMIT)
ABORTED: Final = (PREPARE_ABORT, COMPLETE_ABORT)


class Rules(Watcher):
    """Reads the log by the book, and holds what the coordinator does against it."""

    def __init__(self, partitions: dict[str, Partition]) -> None:
        self.stage: DrawnTransactionStage
        self.partitions = partitions
        self.latest: dict[str, Transaction] = {}
        """By transactional id, what the last record says."""
        self.committed_log: dict[str, Transaction] = {}
        self.marked: dict[str, set[TopicPartition]] = {}
        """By transactional id in a prepared state: the partitions that have its marker."""
        self.efforts: list[Effort] = []
        """That have records, and may have no end yet."""
        self._owners: dict[tuple[int, int], Producer] = {}
        """Which client was given a producer id and epoch."""
        self._producer_ids: dict[int, str] = {}
        """The transactional id of each producer id."""
        self.endings = 0

    # The log

    def appended(self, batch: Batch, cause: object) -> None:
        for tid, after in batch.changes:
            before = self.latest.get(tid)
            self._is_allowed(tid, before, after)
            if after is not None and after.state in COMPLETED_STATES:
                if isinstance(cause, EndTransaction):
                    self._ends_what_was_meant(cause)
                elif before is not None and before.producer_epoch == after.producer_epoch != EPOCH_MAX:
                    raise Violation(f"{tid} is ended by {type(cause).__name__}, and its producer is not fenced")
            if after is None:
                self.latest.pop(tid, None)
            else:
                self.latest[tid] = after

    def _is_allowed(self, tid: str, before: Transaction | None, after: Transaction | None) -> None:
        if self.committed_log.get(tid) != before:
            raise Violation(f"{tid}: a record follows one that is not committed")
        state_before, state_after = (DEAD if each is None else each.state for each in (before, after))
        if state_before not in FORMER_STATES[state_after]:
            raise Violation(f"{tid} goes from {NAMES[state_before]} to {NAMES[state_after]}")
        if after is None:
            return
        if self._producer_ids.setdefault(after.producer_id, tid) != tid:
            raise Violation(f"{tid} has the producer id of {self._producer_ids[after.producer_id]}")
        if before is None:
            return
        if before.producer_id == after.producer_id and after.producer_epoch < before.producer_epoch:
            raise Violation(f"{tid}: the epoch goes back from {before.producer_epoch} to {after.producer_epoch}")
        if before.producer_id > after.producer_id:
            raise Violation(f"{tid}: the producer id goes back")
        if after.state is ONGOING and before.state is ONGOING and not before.partitions <= after.partitions:
            raise Violation(f"{tid}: partitions are forgotten")
        if after.state in COMPLETE and before.partitions - self.marked.get(tid, set()):
            raise Violation(f"{tid} is complete without the markers of all partitions")

    def _ends_what_was_meant(self, cause: EndTransaction) -> None:
        """The client's request is about the transaction that is under way, and about no later one."""
        assert isinstance(cause.waiter.token, Asked)
        sender = cause.waiter.token.owner
        assert isinstance(sender, Sender)
        for partition in self.partitions.values():
            for other in partition.open.get(cause.producer_id, ()):
                if other is not sender.effort:
                    raise Violation(f"an EndTxn of {sender.effort} ends {other}")

    def cut(self) -> None:
        self.latest = {}
        for batch in self.stage.log:
            for tid, value in batch.changes:
                if value is None:
                    self.latest.pop(tid, None)
                else:
                    self.latest[tid] = value

    def committed(self, batch: Batch) -> None:
        for tid, value in batch.changes:
            self.marked.pop(tid, None)
            if value is None:
                self.committed_log.pop(tid, None)
                continue
            self.committed_log[tid] = value
            if value.state in COMPLETED_STATES:
                self.marked[tid] = set()
                self.endings += 1

    # Markers

    def commanded(self, command: SendMarkers) -> None:
        """A marker says what a committed record says."""
        tid = command.transactional_id
        transaction = self.committed_log.get(tid)
        if transaction is None or transaction.state not in COMPLETED_STATES:
            raise Violation(f"{tid}: markers leave before its outcome is committed")
        said = (command.producer_id, command.producer_epoch, command.is_commit, frozenset(command.partitions))
        is_commit = transaction.state is PREPARE_COMMIT
        stored = (transaction.producer_id, transaction.producer_epoch, is_commit, transaction.partitions)
        if said != stored:
            raise Violation(f"{tid}: markers say {said}, and the log {stored}")
        if command.coordinator_epoch != self.stage.epoch:
            raise Violation(f"{tid}: markers of coordinator {command.coordinator_epoch}")

    def mark(self, command: SendMarkers, name: str) -> bool:
        """A marker arrives at a partition; whether it is written. That of the coordinator and the outcome of the
        moment always is."""
        ended = self.partitions[name].mark(command)
        if ended is None:
            if self._is_current(command) and command.coordinator_epoch == self.stage.epoch:
                raise Violation(f"{name} refuses the marker of {command}")
            return False
        for effort in ended:
            self._ended(effort, name, is_commit=command.is_commit)
        if self._is_current(command):
            self.marked[command.transactional_id].add((name, 0))
        return True

    def _is_current(self, command: SendMarkers) -> bool:
        """Whether the log says the same now. What a former coordinator sends for the same outcome counts, too."""
        current = self.committed_log.get(command.transactional_id)
        if current is None or current.state not in COMPLETED_STATES:
            return False
        producer = (current.producer_id, current.producer_epoch, current.state is PREPARE_COMMIT)
        return producer == (command.producer_id, command.producer_epoch, command.is_commit)

    def _ended(self, effort: Effort, name: str, *, is_commit: bool) -> None:
        outcome = "commit" if is_commit else "abort"
        if effort.ends.setdefault(name, is_commit) is not is_commit:
            raise Violation(f"{effort} has both outcomes in {name}")
        if is_commit and not effort.asks_commit:
            raise Violation(f"{effort} is committed, and its client has not asked for that")
        if effort.told is not None and effort.told is not is_commit:
            raise Violation(f"{effort}: its client was told otherwise than {outcome}")
        if any(each is not is_commit for each in effort.ends.values()):
            raise Violation(f"{effort} has several outcomes: {effort.ends}")

    # Clients

    def answered(self, event: TransactionEvent, answer: object) -> None:
        """Whether a client hears it or not: a success stands in the committed log."""
        error, *producer = answer if isinstance(answer, ProducerIdAnswer) else [answer]
        if error is not ErrorCode.NONE or not isinstance(event, ASKED):
            return
        transaction = self.committed_log.get(event.transactional_id)
        if transaction is None:
            raise Violation(f"{type(event).__name__} {event[1:]} is answered with {answer}, and the log has no such id")
        match event:
            case InitProducerId():
                stands = transaction.state is EMPTY and producer == [*transaction[:2]]
            case AddPartitions(producer_id=producer_id, producer_epoch=epoch):
                has_all = transaction.partitions.issuperset(event.partitions)
                stands = transaction.state is ONGOING and has_all and (producer_id, epoch) == transaction[:2]
            case EndTransaction(is_commit=is_commit):
                stands = transaction.state in (COMMITTED if is_commit else ABORTED)
                if event.client_version and transaction.producer_epoch <= LAST_EPOCH:
                    stands = stands and producer == [*transaction[:2]]
        if not stands:
            raise Violation(f"{type(event).__name__} {event[1:]} is answered with {answer}; the log: {transaction}")

    def told(self, client: Producer, event: TransactionEvent, answer: object) -> None:
        """Before the client hears it."""
        if not isinstance(answer, ProducerIdAnswer) or answer.error is not ErrorCode.NONE:
            return
        if answer.producer_epoch > LAST_EPOCH:
            raise Violation(
                f"{client.name} has epoch {answer.producer_epoch}, above which there is none to fence it by"
            )
        if answer.producer_id != -1:
            owner = self._owners.setdefault((answer.producer_id, answer.producer_epoch), client)
            if owner is not client:
                raise Violation(f"{client.name} has {answer[1:]} of {owner.name}")
        if isinstance(event, EndTransaction):
            effort = client.effort
            assert effort is not None
            if any(each is not event.is_commit for each in effort.ends.values()):
                raise Violation(f"{effort}: its client is told {event.is_commit}, and the partitions say {effort.ends}")
        elif not isinstance(event, InitProducerId):
            raise Violation(f"no answer to {event}: {answer}")

    # Readers

    def settled(self, event: object) -> None:
        """Readers see what is committed."""
        tid = self.stage.random.choice(["t0", "t1", "t2"])
        described, transaction = self.stage.shard.describe(tid), self.committed_log.get(tid)
        if isinstance(described, ErrorCode):
            if transaction is not None:
                raise Violation(f"{tid} is told as {described.name}, and is {transaction}")
        elif transaction is None or described[:5] != (
            NAMES[transaction.state],
            transaction.timeout_ms,
            transaction.start_ms,
            transaction.producer_id,
            transaction.producer_epoch,
        ):
            raise Violation(f"{tid} is told as {described}, and is {transaction}")

    def look_at_the_end(self) -> None:
        """All faults are over for longer than any transaction may last."""
        for tid, transaction in self.committed_log.items():
            if transaction.state is ONGOING or transaction.state in COMPLETED_STATES:
                raise Violation(f"{tid} stays {NAMES[transaction.state]}")
        for partition in self.partitions.values():
            for efforts in partition.open.values():
                raise Violation(f"{efforts[0]} stays open in {partition.name}")
        for effort in self.efforts:
            if effort.told is not None and set(effort.ends.values()) - {effort.told}:
                raise Violation(f"{effort}: told {effort.told}, and the partitions say {effort.ends}")
