"""Scenarios of transactions: readers see what was committed, exactly and in order, and a group's offsets with it.

Every scenario ends with a record that belongs to no transaction: a reader that has come to it has seen everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.conformance.record import Record
from tests.conformance.scenario import Scenario
from tests.conformance.session import Session, expect, same_records
from tests.conformance.transactor import Pipeline, Transactor

PARTITIONS = 3
PLAIN = "plain"
FENCED = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FENCED", "ProducerFenced", "ProducerFencedError"})
SHORT_MS = 3_000
WAIT_S = 3


def records_of(label: str, count: int) -> list[Record]:
    """Records in turn for every partition."""
    return [Record(f"{label}.{index}".encode(), b"k", partition=index % PARTITIONS) for index in range(count)]


@dataclass(frozen=True, slots=True)
class Sent:
    """A record, and the transaction of which it is part."""

    label: str
    record: Record


class Ledger:
    """A topic of three partitions: what was sent to it, in the order of acknowledgement, and which was committed."""

    def __init__(self, session: Session, suffix: str = "t") -> None:
        session.needs("transactions")
        self._client = session.client
        self._session = session
        self.topic = session.topic(PARTITIONS, suffix)
        self._suffix = suffix
        self.sent: list[Sent] = []
        self.committed = {PLAIN}

    def send(self, transactor: Transactor, label: str, count: int = 9) -> None:
        records = records_of(label, count)
        transactor.send(self.topic, records)
        self.took(label, records)

    def took(self, label: str, records: list[Record]) -> None:
        self.sent += [Sent(label, record) for record in records]

    def plain(self, count: int = PARTITIONS) -> None:
        """Records that are part of no transaction."""
        records = records_of(f"{PLAIN}.{len(self.sent)}", count)
        self._client.produce(self.topic, records)
        self.took(PLAIN, records)

    def expected(self, partition: int, isolation: str) -> list[Record]:
        return [
            each.record
            for each in self.sent
            if each.record.partition == partition and (isolation == "read_uncommitted" or each.label in self.committed)
        ]

    def read(self, isolation: str) -> None:
        for partition in range(PARTITIONS):
            wanted = self.expected(partition, isolation)
            read = self._client.consume(self.topic, partition=partition, count=len(wanted), isolation=isolation)
            same_records(read, wanted, timed=False)
            offsets = [record.offset for record in read]
            expect(sorted(set(offsets)) == offsets, f"offsets of partition {partition} do not grow: {offsets}")
            if self._session.can("last stable offset"):
                self._session.observe(f"{self._suffix}-{partition} {isolation}", runs_of(offsets))

    def settle(self) -> None:
        """Holds both kinds of reader against what was sent; no transaction is open."""
        self.until_stable()
        self.hold()

    def until_stable(self) -> None:
        """A commit may be answered before its markers are in the partitions: then offsets would depend on chance."""
        if self._session.can("last stable offset"):
            self._session.until(
                "every transaction has its markers", lambda: all(map(self._is_stable, range(PARTITIONS)))
            )

    def _is_stable(self, partition: int) -> bool:
        latest, stable = (self._client.list_offsets(self.topic, partition, at) for at in ("latest", "last-stable"))
        return latest == stable

    def hold(self) -> None:
        self.plain()
        self.read("read_committed")
        self.read("read_uncommitted")
        self.ends("at the end")

    def ends(self, when: str) -> None:
        if self._session.can("last stable offset"):
            for place in ("latest", "last-stable"):
                found = [self._client.list_offsets(self.topic, partition, place) for partition in range(PARTITIONS)]
                self._session.observe(f"{self._suffix} {when}, {place}", found)


def runs_of(offsets: list[int]) -> str:
    """0, 1, 2, 4, 5 as "0-2 4-5": what is left out are markers, and records that the reader is not to see."""
    starts = [offset for offset in offsets if offset - 1 not in offsets]
    ends = [offset for offset in offsets if offset + 1 not in offsets]
    return " ".join(f"{start}-{end}" for start, end in zip(starts, ends, strict=True))


def opened(session: Session, suffix: str = "a", *, id: str = "x", timeout_ms: int = 60_000) -> Transactor:
    session.needs("transactions")
    return Transactor(session.client, session.name(suffix), session.name(id), timeout_ms=timeout_ms)


def transact(ledger: Ledger, transactor: Transactor, label: str, *, commit: bool, count: int = 9) -> None:
    transactor.begin()
    ledger.send(transactor, label, count)
    if commit:
        transactor.commit()
        ledger.committed.add(label)
    else:
        transactor.abort()


def commits(session: Session) -> None:
    ledger, producer = Ledger(session), opened(session)
    ledger.plain()
    for index in range(10):
        transact(ledger, producer, f"c{index}", commit=True)
    producer.begin()
    producer.commit()
    transact(ledger, producer, "after an empty one", commit=True)
    producer.close()
    ledger.settle()


def aborts(session: Session) -> None:
    """Among others one of several batches a partition, from the midst of which a reader begins."""
    ledger, producer = Ledger(session), opened(session)
    for index in range(6):
        transact(ledger, producer, f"r{index}", commit=index % 2 == 0)
    producer.begin()
    ledger.send(producer, "long")
    ledger.send(producer, "long")
    ledger.send(producer, "long")
    producer.abort()
    producer.begin()
    producer.abort()
    transact(ledger, producer, "last", commit=True)
    producer.close()
    ledger.settle()
    every, seen = ledger.expected(0, "read_uncommitted"), ledger.expected(0, "read_committed")
    read = session.client.consume(ledger.topic, count=len(every), isolation="read_uncommitted")
    midst = next(record.offset for record in read if record.value == b"long.3") + 1
    tail = [record for record in seen if record.value is not None and record.value.startswith((b"last", b"plain"))]
    after = session.client.consume(ledger.topic, offset=midst, count=len(tail), isolation="read_committed")
    same_records(after, tail, timed=False)


def interleaves(session: Session) -> None:
    ledger = Ledger(session)
    kept, dropped = opened(session, "kept", id="kept"), opened(session, "dropped", id="dropped")
    kept.begin()
    dropped.begin()
    for _ in range(3):
        ledger.send(dropped, "dropped")
        ledger.send(kept, "kept")
        ledger.plain()
    dropped.abort()
    kept.commit()
    ledger.committed.add("kept")
    transact(ledger, dropped, "once more", commit=True)
    ledger.settle()
    kept.close()
    dropped.close()


def open_one(session: Session) -> None:
    """What follows an open transaction in the log waits for its end, records of no transaction as well."""
    ledger, producer = Ledger(session), opened(session)
    transact(ledger, producer, "before", commit=True)
    stable = [len(ledger.expected(partition, "read_committed")) for partition in range(PARTITIONS)]
    producer.begin()
    ledger.send(producer, "open")
    ledger.plain()
    for partition, count in enumerate(stable):
        read = session.client.consume(
            ledger.topic, partition=partition, count=count + 1, isolation="read_committed", wait_s=WAIT_S
        )
        same_records(read, ledger.expected(partition, "read_committed")[:count], timed=False)
    ledger.read("read_uncommitted")
    ledger.ends("while one is open")
    producer.commit()
    ledger.committed.add("open")
    producer.close()
    ledger.settle()


def fences(session: Session) -> None:
    ledger, first = Ledger(session), opened(session, "first")
    transact(ledger, first, "before", commit=True)
    first.begin()
    ledger.send(first, "cut off")
    second = opened(session, "second")
    refused(session, "the first sends", lambda: first.send(ledger.topic, records_of("late", 3)))
    refused(session, "the first commits", first.commit)
    refused(session, "the first goes on", lambda: again(first, ledger.topic))
    expect(
        bool(FENCED & set(map(str, session.facts.values()))),
        f"the first producer was not told that it is fenced: {session.facts}",
    )
    transact(ledger, second, "second", commit=True)
    ledger.settle()
    second.close()


def refused(session: Session, what: str, attempt: Callable[[], object]) -> None:
    session.refusal(what, attempt)
    expect(session.facts[what] != "accepted", f"{what}: accepted")


def again(producer: Transactor, topic: str) -> None:
    producer.begin()
    producer.send(topic, records_of("later", 3))
    producer.commit()


def dies(session: Session) -> None:
    """The next producer with the same transactional id ends what the killed one has left open."""
    ledger = Ledger(session)
    other = session.another_client()
    try:
        killed = Transactor(other, session.name("killed"), session.name("x"))
        transact(ledger, killed, "before", commit=True)
        killed.begin()
        ledger.send(killed, "cut off")
    finally:
        other.close()
    successor = opened(session, "successor")
    transact(ledger, successor, "successor", commit=True)
    successor.close()
    ledger.settle()


def times_out(session: Session) -> None:
    ledger, slow = Ledger(session), opened(session, "slow", timeout_ms=SHORT_MS)
    slow.begin()
    ledger.send(slow, "too slow")
    ledger.hold()  # its readers wait until the coordinator has aborted the transaction
    refused(session, "commit after the time-out", slow.commit)
    successor = opened(session, "successor")
    transact(ledger, successor, "successor", commit=True)
    successor.close()
    ledger.settle()


def processes(session: Session) -> None:
    """Read, process, write: after an abort the group's next member reads the same records again."""
    session.needs("transactions")
    source, sink = Ledger(session, "source"), Ledger(session, "sink")
    group = session.name("g")
    for turn, end in enumerate(("abort", "commit", "abort", "commit")):
        if turn % 2 == 0:
            source.plain(30)
        pipeline = Pipeline(session.client, session.name(f"turn{turn}"), session.name("x"), group, source.topic)
        read = pipeline.step(30, sink.topic, end)
        pipeline.close()
        wanted = [each.record for each in source.sent[-30:]]
        same_records(by_partition(read), by_partition(wanted), timed=False)
        sink.took(f"turn {turn}", read)
        if end == "commit":
            sink.committed.add(f"turn {turn}")
            until_committed(session, group, len(source.sent) // PARTITIONS)
        session.observe(f"offsets after turn {turn}", offsets_of(session, group))
    sink.settle()


def until_committed(session: Session, group: str, offset: int) -> None:
    wanted = [[partition, offset] for partition in range(PARTITIONS)]
    session.until(
        f"offsets {wanted} are committed",
        lambda: offsets_of(session, group) == wanted,
        lambda: offsets_of(session, group),
    )


def by_partition(records: list[Record]) -> list[Record]:
    """In the order of each partition, one partition after the other."""
    return sorted(records, key=lambda record: record.partition)


def offsets_of(session: Session, group: str) -> list[list[int]]:
    return sorted([partition, offset] for (_, partition), offset in session.client.fetch_offsets(group).items())


def processor_dies(session: Session) -> None:
    """Killed between its offsets and its commit: nothing of the transaction is seen, and its input is read again."""
    session.needs("transactions", "offsets without an end")
    source, sink = Ledger(session, "source"), Ledger(session, "sink")
    group, id = session.name("g"), session.name("x")
    source.plain(30)
    other = session.another_client()
    try:
        sink.took(
            "killed", Pipeline(other, session.name("killed"), id, group, source.topic).step(30, sink.topic, "leave")
        )
    finally:
        other.close()
    successor = Pipeline(session.client, session.name("successor"), id, group, source.topic)
    read = successor.step(30, sink.topic, "commit")
    same_records(by_partition(read), by_partition([each.record for each in source.sent]), timed=False)
    sink.took("successor", read)
    sink.committed.add("successor")
    successor.close()
    until_committed(session, group, len(source.sent) // PARTITIONS)
    sink.settle()


def described(session: Session) -> None:
    client = session.client
    ledger, producer = Ledger(session), opened(session)
    id = session.name("x")

    def state() -> str:
        told = client.call("describe_transaction", id=id)
        assert isinstance(told, dict)
        return str(told["state"])

    def look(wanted: str) -> None:
        session.until(f"the transaction is in state {wanted}", lambda: state() == wanted, state)
        session.observe(f"transaction, {wanted}", client.call("describe_transaction", id=id))
        session.observe(f"producers, {wanted}", client.call("describe_producers", topic=ledger.topic, partition=0))

    look("Empty")
    transact(ledger, producer, "first", commit=True)
    look("CompleteCommit")
    transact(ledger, producer, "second", commit=False)
    look("CompleteAbort")
    producer.begin()
    ledger.send(producer, "third")
    look("Ongoing")
    session.observe("ongoing", own(id, client.call("list_transactions", states=["Ongoing"])))
    producer.commit()
    ledger.committed.add("third")
    session.until("the last is committed", lambda: state() == "CompleteCommit", state)
    session.observe("listed", own(id, client.call("list_transactions", states=[])))
    session.observe("no longer ongoing", own(id, client.call("list_transactions", states=["Ongoing"])))
    session.refusal("an unknown one", lambda: client.call("describe_transaction", id=session.name("unknown")))
    producer.close()
    ledger.settle()


def aborted_by_hand(session: Session) -> None:
    """As for a transaction that its coordinator has forgotten: the partitions' leaders are told themselves."""
    ledger, producer = Ledger(session), opened(session)
    producer.begin()
    ledger.send(producer, "hanging")
    for partition in range(PARTITIONS):
        session.client.call("abort_transaction", topic=ledger.topic, partition=partition)
    ledger.ends("after the abort")
    ledger.plain()
    ledger.read("read_committed")


def fenced_by_hand(session: Session) -> None:
    ledger, producer = Ledger(session), opened(session)
    transact(ledger, producer, "before", commit=True)
    producer.begin()
    ledger.send(producer, "cut off")
    session.observe("epoch", session.client.call("fence_producers", id=session.name("x")))
    refused(session, "commit", producer.commit)
    ledger.settle()


def own(id: str, listed: object) -> list[object]:
    """Of all the transactions of a broker, this scenario's."""
    assert isinstance(listed, list)
    return [each for each in listed if each[0] == id]


SCENARIOS = (
    Scenario("txn-commit", "committed transactions are read in order, between records of none", commits),
    Scenario("txn-abort", "readers of committed records see no aborted one, the others all", aborts),
    Scenario("txn-interleaved", "two producers, one commits, one aborts, in the same partitions", interleaves),
    Scenario("txn-open", "an open transaction holds back what follows it", open_one),
    Scenario("txn-fenced", "a second producer with the same transactional id fences the first", fences),
    Scenario("txn-producer-dies", "a killed producer's transaction is aborted by its successor", dies),
    Scenario("txn-timeout", "a transaction that takes too long is aborted", times_out, in_bounded=False),
    Scenario("txn-offsets", "a group's offsets count if the transaction is committed", processes),
    Scenario("txn-processor-dies", "a killed processor's input is read again", processor_dies, in_bounded=False),
    Scenario("txn-abort-hanging", "an administrator aborts a transaction partition by partition", aborted_by_hand),
    Scenario("txn-fence-producers", "an administrator fences a transactional id", fenced_by_hand),
    Scenario("txn-describe", "states and producers of transactions as an administrator sees them", described),
)
