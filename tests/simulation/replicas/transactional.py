"""Transactional producers, a transaction coordinator and read_committed readers of the replicas alone.

The coordinator is small and never wrong: it says whether a transaction is ongoing, decides how it ends, and has the
marker written until that is committed. Everything between it and the partition is late: the answer to a verification,
the append that follows it, markers and batches of transactions that are over. What is read must be what the coordinator
decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from moldau.broker.purgatory.purgatory import CommitCallback
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, parse_header
from moldau.replication.verification import guard_for_client_batch
from moldau.storage.producers.producer_state import read_transaction_marker
from moldau.storage.producers.verification import VerificationGuard
from tests.simulation.invariants.observation import LogContent, Violation
from tests.simulation.replicas.producers import SequencedProducer
from tests.support.replica_pair import TOPIC_ID

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.replicas.host import Host
    from tests.simulation.replicas.swarm import Swarm

FIRST_PRODUCER_ID: Final = 11
PRODUCE_VERSIONS: Final = {1: 11, 2: 12}
"""By transaction.version."""
READ_COMMITTED: Final = 1
DELAYED_MAX: Final = 6
FAILS_OVER: Final = 0.3
"""How often the coordinator ends when it has sent a marker."""
REPLACED: Final = 0.15
"""How often a producer that has no transaction is replaced by another."""
RETIRED_MAX: Final = 3
SURE_REFUSALS: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""No leader may refuse the marker of a transaction that is not over so."""


class Transaction:
    def __init__(self, producer_id: int, number: int) -> None:
        self.producer_id = producer_id
        self.number = number
        self.commits: bool | None = None
        """None while it is ongoing."""
        self.is_over = False
        """Its marker is committed."""

    def __repr__(self) -> str:
        outcome = {None: "ongoing", True: "committed", False: "aborted"}[self.commits]
        return f"transaction {self.number} of producer {self.producer_id} ({outcome})"


class Marker:
    """What the coordinator sends to end a transaction."""

    def __init__(self, producer: TransactionalProducer, epoch: int, next_epoch: int, coordinator_epoch: int) -> None:
        assert producer.transaction is not None
        self.producer = producer
        self.transaction = producer.transaction
        self.epoch = epoch
        self.next_epoch = next_epoch
        """Of the producer's next transaction."""
        self.coordinator_epoch = coordinator_epoch


class Sent:
    """A batch on its way to the log, through a verification."""

    def __init__(self, host: Host, producer: TransactionalProducer, batch: bytes, guard: VerificationGuard) -> None:
        self.host = host
        self.life = host.life
        self.producer = producer
        self.batch = batch
        self.guard = guard
        self.was_ongoing = self.is_ongoing
        """The coordinator may have confirmed it when the leader began to ask, and its answer be late."""

    @property
    def is_ongoing(self) -> bool:
        """Whether the coordinator confirms it now."""
        producer = self.producer
        is_of_epoch = parse_header(self.batch).producer_epoch == producer.epoch
        return is_of_epoch and producer.transaction is not None and producer.ending is None


class TransactionalProducer(SequencedProducer):
    def __init__(self, producer_id: int, version: int) -> None:
        super().__init__(producer_id)
        self.version = version
        self.transaction: Transaction | None = None
        self.ending: Marker | None = None
        self._count = 0

    def begins(self) -> Transaction:
        self._count += 1
        self.transaction = Transaction(self.id, self._count)
        return self.transaction

    def next_batch(self, random: Random, now_ms: int) -> int:
        values = [f"{self.id}/{self._count}/{i}" for i in range(random.randint(1, 3))]
        return self.add([value.encode() for value in values], now_ms, is_transactional=True)

    def ended(self, next_epoch: int) -> None:
        """The marker is committed: the next transaction may begin."""
        self.transaction, self.ending = None, None
        if next_epoch != self.epoch:
            self.epoch, self.sequence, self.is_known, self.sequences = next_epoch, 0, False, []


class TransactionalClients:
    """The steps of one swarm that have to do with transactions."""

    def __init__(self, swarm: Swarm, random: Random) -> None:
        self._swarm = swarm
        self._random = random
        versions = random.choice(((1, 2), (2, 2), (1, 1), (1, 2, 2)))
        self._producers = [TransactionalProducer(FIRST_PRODUCER_ID + i, each) for i, each in enumerate(versions)]
        self._retired: list[TransactionalProducer] = []
        """Of whose batches some may still arrive."""
        self._next_id = FIRST_PRODUCER_ID + len(self._producers)
        self._of_batches: dict[tuple[int, int, int], Transaction] = {}
        """By producer id, epoch and first sequence."""
        self._unverified: list[Sent] = []
        self._verified: list[Sent] = []
        self._coordinator_epoch = 1
        self._old_markers: list[Marker] = []
        self._delayed: list[tuple[Marker, int]] = []
        """Markers that a former coordinator has sent, and its epoch."""
        self.read_count = 0
        """Batches of transactions that were read or skipped."""

    # Producing

    def send(self) -> None:
        host, random = self._swarm.leading(), self._random
        producer = random.choice(self._producers if random.random() < 0.9 else [*self._retired, *self._producers])
        if host is None:
            return
        is_retired = producer in self._retired
        if producer.late and (is_retired or random.random() < 0.15):
            late = random.choice(producer.late)
            # Under transaction.version 1 all transactions may have one epoch. Sequences alone tell them apart, and a
            # leader that has deleted the records and starts again does not know those.
            if producer.version == 2 or not self._swarm.trims or parse_header(late).producer_epoch < producer.epoch:
                self._send(host, producer, late)
            return
        if producer.ending is not None or is_retired:
            return
        if producer.transaction is None and random.random() < REPLACED:
            producer = self._replaced(producer)
        unacknowledged = producer.unacknowledged
        if unacknowledged and (not producer.may_send_more or random.random() < 0.4):
            sequence = random.choice([*unacknowledged])
        else:
            transaction = producer.transaction or producer.begins()
            sequence = producer.next_batch(random, self._swarm.now_ms)
            self._of_batches[producer.id, producer.epoch, sequence] = transaction
        self._send(host, producer, unacknowledged[sequence])

    def _replaced(self, producer: TransactionalProducer) -> TransactionalProducer:
        """Another process begins with a new producer id, of which the log knows nothing."""
        self._retired = [*self._retired[-RETIRED_MAX:], producer]
        made = TransactionalProducer(self._next_id, producer.version)
        self._next_id += 1
        self._producers[self._producers.index(producer)] = made
        return made

    def _send(self, host: Host, producer: TransactionalProducer, batch: bytes) -> None:
        guard = guard_for_client_batch(host.partition, batch, self._swarm.now_ms, PRODUCE_VERSIONS[producer.version])
        if guard is None:
            self._append(host, producer, batch, None)
        else:
            self._unverified.append(Sent(host, producer, batch, guard))

    def verify(self) -> None:
        """The coordinator answers; the append comes later still."""
        if self._unverified:
            sent = self._unverified.pop(self._random.randrange(len(self._unverified)))
            if sent.is_ongoing:
                self._verified.append(sent)

    def append(self) -> None:
        if self._verified:
            sent = self._verified.pop(self._random.randrange(len(self._verified)))
            if sent.host.is_up and sent.host.life == sent.life:
                self._append(sent.host, sent.producer, sent.batch, sent.guard)

    def _append(
        self, host: Host, producer: TransactionalProducer, batch: bytes, guard: VerificationGuard | None
    ) -> ErrorCode:
        partition, header, life = host.partition, parse_header(batch), host.life
        version = PRODUCE_VERSIONS[producer.version]
        result = partition.append(batch, -1, self._swarm.now_ms, version, guard)
        if result.error is not ErrorCode.NONE:
            return result.error

        def committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE or host.life != life:
                return
            if header.producer_epoch == producer.epoch and header.base_sequence in producer.unacknowledged:
                producer.is_known = True
                producer.late.append(producer.unacknowledged.pop(header.base_sequence))
                del producer.late[:-8]
            for i in range(result.last_offset + 1 - result.base_offset):
                self._swarm.acknowledge(
                    result.base_offset + i, (producer.id, header.producer_epoch, header.base_sequence + i)
                )

        host.purgatory.await_commit(partition, CommitCallback(partition.log.end_offset, committed))
        return ErrorCode.NONE

    # The coordinator

    def end(self) -> None:
        """Decide: commit if everything is acknowledged, abort at any time."""
        producer = self._random.choice(self._producers)
        if producer.unacknowledged and self._random.random() < 0.85:
            return
        if producer.transaction is not None and producer.ending is None:
            self._decide(producer, commits=not producer.unacknowledged and self._random.random() < 0.7)

    def _decide(self, producer: TransactionalProducer, *, commits: bool) -> None:
        assert producer.transaction is not None
        producer.transaction.commits = commits
        epoch = next_epoch = producer.epoch + (1 if producer.version == 2 else 0)
        # Under transaction.version 1 the epoch moves if a producer is fenced, and, after the marker, if it gives
        # up what it has sent: that may arrive after the marker of its epoch.
        if producer.version == 1 and not commits and self._random.random() < 0.3:
            epoch, next_epoch = epoch + 1, epoch + 2
        elif producer.version == 1 and producer.unacknowledged:
            next_epoch = epoch + 1
        producer.late += producer.unacknowledged.values()
        producer.unacknowledged.clear()
        producer.ending = Marker(producer, epoch, next_epoch, self._coordinator_epoch)
        if producer.version == 1 and self._random.random() < FAILS_OVER:
            self.fail_over()

    def write_marker(self) -> None:
        host = self._swarm.leading()
        ending = [each.ending for each in self._producers if each.ending is not None]
        if host is not None and ending:
            self._write(host, self._random.choice(ending))

    def _write(self, host: Host, marker: Marker) -> None:
        error = self._append_marker(host, marker, self._coordinator_epoch)
        if error in SURE_REFUSALS and marker.producer.ending is marker:
            raise Violation(f"node {host.node_id} refuses to end {marker.transaction}: {error.name}")

    def _append_marker(self, host: Host, marker: Marker, coordinator_epoch: int) -> ErrorCode:
        partition, producer, life = host.partition, marker.producer, host.life
        result = partition.end_transaction(
            producer.id,
            marker.epoch,
            self._swarm.now_ms,
            is_commit=marker.transaction.commits is True,
            coordinator_epoch=coordinator_epoch,
            transaction_version=producer.version,
        )
        if result.error is not ErrorCode.NONE:
            return result.error

        def committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE or host.life != life:
                return
            self._swarm.acknowledge(result.base_offset, (producer.id, marker.epoch, -1))
            if producer.ending is marker:
                marker.transaction.is_over = True
                marker.coordinator_epoch = coordinator_epoch
                self._old_markers.append(marker)
                producer.ended(marker.next_epoch)

        host.purgatory.await_commit(partition, CommitCallback(partition.log.end_offset, committed))
        return ErrorCode.NONE

    def repeat_marker(self) -> None:
        """A marker comes once more, long after its transaction. Under transaction.version 2 its epoch tells; under
        version 1 its coordinator's, if the next coordinator has ended the transaction, and the log was not deleted
        up to that marker."""
        host = self._swarm.leading()
        markers = [(each, each.coordinator_epoch) for each in self._old_markers[-6:] if each.producer.version == 2]
        delayed = [
            (marker, epoch)
            for marker, epoch in self._delayed[-DELAYED_MAX:]
            if marker.transaction.is_over
            and epoch < marker.coordinator_epoch
            and marker.epoch == marker.producer.epoch
            and marker.producer.transaction is not None
        ]
        if delayed and not self._swarm.trims and (not markers or self._random.random() < 0.5):
            markers = delayed
        if host is not None and markers:
            self._append_marker(host, *self._random.choice(markers))

    def fail_over(self) -> None:
        """Another broker is the coordinator from now on. The markers that the former one has sent may come later."""
        ending = [each.ending for each in self._producers if each.ending is not None and each.version == 1]
        self._delayed += [(each, self._coordinator_epoch) for each in ending]
        self._coordinator_epoch += 1

    # Reading

    def read(self) -> None:
        """A read_committed consumer reads from any replica, from any offset on."""
        up = [each for each in self._swarm.hosts.values() if each.is_up]
        if not up:
            return
        host = self._random.choice(up)
        partition, log = host.partition, host.partition.log
        if log.log_start_offset >= partition.last_stable_offset:
            return
        offset = self._random.randrange(log.log_start_offset, partition.last_stable_offset)
        response = host.answer(_fetch(offset, self._random.choice((1, 300, 5000))))
        data = response.responses[0].partitions[0]
        records = bytes(cast("BytesLike", data.records or b""))
        if data.error_code == ErrorCode.NONE and not records and self._swarm.is_split(host):
            return
        if data.error_code != ErrorCode.NONE or not records:
            raise Violation(f"node {host.node_id}: offset {offset} cannot be read: {data.error_code}")
        if data.last_stable_offset > data.high_watermark:
            raise Violation(f"node {host.node_id}: {data.last_stable_offset} is stable of {data.high_watermark}")
        aborted = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
        if aborted != sorted(aborted, key=lambda each: each[0]):
            raise Violation(f"node {host.node_id}: aborted transactions are not in order: {aborted}")
        self._read(f"node {host.node_id} from {offset} of {partition.last_stable_offset}", records, aborted)

    def _read(self, reader: str, records: bytes, aborted: list[tuple[int, int]]) -> None:
        """As clients do: a producer's batches are skipped from an aborted transaction's first offset to its marker."""
        skipped: set[int] = set()
        for position, header in iterate_batches(records):
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.attributes & CONTROL_BIT:
                marker = read_transaction_marker(records[position : position + header.size])
                if marker is not None and not marker.is_commit:
                    skipped.discard(header.producer_id)
                continue
            is_skipped = bool(header.attributes & TRANSACTIONAL_BIT) and header.producer_id in skipped
            transaction = self._of_batches.get((header.producer_id, header.producer_epoch, header.base_sequence))
            if transaction is None:
                continue
            self.read_count += 1
            if transaction.commits is None or transaction.commits == is_skipped:
                verb = "skips" if is_skipped else "reads"
                raise Violation(f"{reader}, {verb} offset {header.base_offset} of {transaction}")

    # The end

    def finish(self, leader: Host) -> bool:
        """At rest: every transaction ends; False if there is none that has not."""
        unfinished = [each for each in self._producers if each.transaction is not None]
        for producer in unfinished:
            if producer.ending is None:
                self._decide(producer, commits=False)
            assert producer.ending is not None
            self._write(leader, producer.ending)
        return bool(unfinished)

    def check_late(self, leader: Host) -> None:
        """What arrives when every transaction is over opens none: neither what the coordinator confirmed before, nor
        what it was not asked for. A question that comes now it answers with a refusal, and the leader appends nothing.
        """
        for sent in [*self._verified, *(each for each in self._unverified if each.was_ongoing)]:
            if sent.host is leader and leader.life == sent.life:
                self._append(leader, sent.producer, sent.batch, sent.guard)
        self._verified, self._unverified = [], []
        for producer in [*self._producers, *self._retired]:
            for batch in producer.late:
                self._append(leader, producer, batch, None)

    def check_log(self, host: Host, content: LogContent) -> None:
        """Every transaction has ended once, as it was decided, and nothing of it comes after that."""
        partition = host.partition
        if partition.last_stable_offset != partition.high_watermark:
            raise Violation(
                f"node {host.node_id}: no transaction is ongoing, and {partition.last_stable_offset} of"
                f" {partition.high_watermark} is stable"
            )
        open_transactions: dict[int, Transaction] = {}
        ended: set[Transaction] = set()
        for batch in content.batches:
            if batch.is_transactional and not batch.is_marker:
                transaction = self._of_batches[batch.producer_id, batch.producer_epoch, batch.base_sequence]
                if transaction in ended or open_transactions.setdefault(batch.producer_id, transaction) != transaction:
                    raise Violation(f"offset {batch.base_offset} is of {transaction}, which is over")
            elif batch.is_marker and batch.producer_id in open_transactions:
                transaction = open_transactions.pop(batch.producer_id)
                ended.add(transaction)
                if transaction.commits == batch.is_abort:
                    raise Violation(f"the marker at offset {batch.base_offset} ends {transaction}")


def _fetch(offset: int, size: int) -> FetchRequest:
    wish = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wish])],
    )
