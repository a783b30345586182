"""The shop under kill -9: rounds of input with kills in them, and after each the outputs equal the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.conformance.brokers import TRANSACTION_VERSION, Ports
from tests.conformance.committed import (
    Stored,
    TopicReader,
    aborted_count,
    all_committed,
    await_in_sync,
    create_topics,
)
from tests.conformance.outcome import Failed
from tests.conformance.secured.access import Access
from tests.conformance.streams.feed import Deed, Feed
from tests.conformance.streams.inputs import EVENTS_PER_ROUND, PARTITIONS, SPAN_MS, Round, rounds
from tests.conformance.streams.instance import Instance
from tests.conformance.streams.kills import Kill, kills
from tests.conformance.streams.truth import OUTPUTS, TOPICS, Truth, problems
from tests.conformance.toolchain import Toolchain
from tests.conformance.trio import NODES, Node, Trio, pairs_of

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"
"""With the latter kills double records: a control of the proof."""
Report = Callable[[str], None]
CATCH_UP_S = 240.0
"""For a killed instance to be missed, its tasks to move, stores to be restored; a machine may be slow."""
SETTINGS = ("min.insync.replicas=2", "transaction.state.log.min.isr=2")
CLASSIC, STREAMS = "classic", "streams"
"""The group protocols."""
STREAMS_SETTINGS = (
    "group.streams.min.session.timeout.ms=6000",
    "group.streams.session.timeout.ms=6000",
    "group.streams.min.heartbeat.interval.ms=1000",
    "group.streams.heartbeat.interval.ms=1500",
)
"""With the streams protocol an instance that was killed is missed after 6 s, as with the classic one."""
STORED = dict.fromkeys(TOPICS, PARTITIONS)


class Brokers(Protocol):
    """Three nodes as the shop uses them."""

    bootstrap: str
    nodes: list[Node]

    def format(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


class Shop:
    """Brokers, two instances of the application, their input, and a reader of every topic."""

    def __init__(
        self,
        brokers: Brokers,
        toolchain: Toolchain,
        directory: Path,
        guarantee: str = EXACTLY_ONCE,
        access: Access | None = None,
    ) -> None:
        """`access` is that of the instances; the input and the reader take the brokers' own address."""
        self.truth = Truth()
        self.brokers = brokers
        toolchain.compiled_java()
        at = access or Access(brokers.bootstrap)
        self.instances = [Instance(f"instance-{each}", toolchain, at, guarantee, directory) for each in (1, 2)]

    @classmethod
    def plain(
        cls,
        name: str,
        toolchain: Toolchain,
        ports: Ports,
        directory: Path,
        guarantee: str = EXACTLY_ONCE,
        protocol: str = CLASSIC,
        transaction_version: int = TRANSACTION_VERSION,
    ) -> Shop:
        extra = SETTINGS if protocol == CLASSIC else (*SETTINGS, *STREAMS_SETTINGS)
        brokers = Trio(name, toolchain, pairs_of(ports), directory, extra=extra)
        brokers.transaction_version = transaction_version
        if protocol == CLASSIC:
            return cls(brokers, toolchain, directory, guarantee)
        access = Access(brokers.bootstrap, {"group.protocol": protocol})
        return cls(brokers, toolchain, directory, guarantee, access)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Brokers and topics are there; nothing is left running."""
        self.brokers.format()
        try:
            self.brokers.start()
            create_topics(self.brokers.bootstrap, STORED, retention_ms="-1")
            await_in_sync(self.brokers.bootstrap, NODES)
            self.prepare()
            self.feed = Feed(self.brokers.bootstrap)
            self.reader = TopicReader(self.brokers.bootstrap, STORED)
            yield
            self.reader.close()
        finally:
            for instance in self.instances:
                instance.close()
            self.brokers.close()

    def prepare(self) -> None:
        """What the instances need besides the topics."""

    def round(self, given: Round, *deeds: Deed) -> float:
        """Writes a round; the seconds until the outputs are complete after its last record. Raises `Failed`."""
        self.truth.add(given.moves)
        self.feed.write(given.moves)
        self.catch_up()
        self.truth.add(given.events)
        self.feed.write(given.events, deeds)
        written = time.monotonic()
        self.catch_up()
        return time.monotonic() - written

    def catch_up(self) -> None:
        """Raises `Failed` if records are missing in the end, or more are there than there must be."""
        deadline = time.monotonic() + CATCH_UP_S
        wanted = self.truth.counts()
        while True:
            self.reader.read(0.2)
            found = {topic: len(records) for topic, records in self.reader.records.items()}
            if all(found[topic] >= wanted[topic] for topic in TOPICS):
                break
            for instance in self.instances:
                instance.check()
            if time.monotonic() > deadline:
                said = "; ".join(f"{each.name}: {each.last_lines()}" for each in self.instances if each.is_started)
                raise Failed(f"after {CATCH_UP_S:.0f} s there are {found} records of {wanted}; {said}")
        self.judge(self.reader.records)

    def judge(self, found: dict[str, list[Stored]]) -> None:
        said = problems(self.truth.values, found)
        if said:
            raise Failed(f"{len(said)} keys hold what they must not: {'; '.join(said[:5])}")

    def strike(self, kill: Kill) -> Strike:
        return Strike(self.brokers.nodes[kill.index] if kill.is_broker else self.instances[kill.index], kill)


class Strike:
    """A deed: at its event the victim is killed, and started again after its time, before the round ends."""

    def __init__(self, victim: Node | Instance, kill: Kill) -> None:
        self._victim = victim
        self._kill = kill
        self._back_at: float | None = None

    def __call__(self, index: int) -> None:
        if index == self._kill.at_event:
            self._victim.kill()
            self._back_at = time.monotonic() + self._kill.down_s
            if self._kill.loses_state and isinstance(self._victim, Instance):
                self._victim.forget()
        if self._back_at is None:
            return
        away_s = self._back_at - time.monotonic()
        if away_s <= 0 or index == EVENTS_PER_ROUND - 1:
            time.sleep(max(0.0, away_s))
            self._victim.start()
            self._back_at = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers of records of each output, of those of aborted transactions, and the exceptions that ended threads."""

    records: dict[str, int]
    aborted: int
    replaced: tuple[str, ...]


def campaign(shop: Shop, count: int, seed: int, say: Report) -> Figures:
    """One instance, a second one that joins, then so many kills; the outputs equal the truth. Raises `Failed`."""
    first_ms = int(time.time() * 1000) // 60_000 * 60_000 - SPAN_MS
    given = rounds(seed, first_ms)
    first, second = shop.instances
    with shop.running():
        first.start()
        say(f"one instance: complete {shop.round(next(given)):.1f} s after the input")
        say(f"a second joins: complete {shop.round(next(given), joins(second)):.1f} s after the input")
        done = 0
        for together in kills(seed, count):
            seconds = shop.round(next(given), *map(shop.strike, together))
            done += len(together)
            victims = " with ".join(map(str, together))
            say(f"kill {done} of {count}, {victims}: complete {seconds:.1f} s after the input")
            await_in_sync(shop.brokers.bootstrap, NODES)
        return concluded(shop)


def joins(instance: Instance) -> Deed:
    def deed(index: int) -> None:
        if index == EVENTS_PER_ROUND // 4:
            instance.start()

    return deed


def concluded(shop: Shop) -> Figures:
    """What is stored once the application has stopped; it equals the truth. Raises `Failed`."""
    for instance in shop.instances:
        instance.stop()
    held = all_committed(shop.brokers.bootstrap, STORED)
    shop.judge(held)
    replaced = tuple(each for instance in shop.instances for each in instance.replaced())
    records = {output: len(held[output]) for output in OUTPUTS}
    return Figures(records, aborted_count(shop.brokers.bootstrap, STORED, held), replaced)
