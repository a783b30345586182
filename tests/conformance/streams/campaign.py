"""The shop under kill -9: rounds of input, a kill in each, and after each the outputs hold all that they must."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.conformance.brokers import Ports
from tests.conformance.committed import (
    QUIET,
    Stored,
    TopicReader,
    aborted_count,
    all_committed,
    await_in_sync,
    create_topics,
)
from tests.conformance.outcome import Failed
from tests.conformance.streams.inputs import INPUTS, PARTITIONS, SPAN_MS, Event, Round, rounds
from tests.conformance.streams.instance import Instance
from tests.conformance.streams.truth import OUTPUTS, Truth, problems
from tests.conformance.toolchain import Toolchain
from tests.conformance.trio import NODES, Trio, pairs_of

Report = Callable[[str], None]
EVENTS_PER_ROUND = 240
EVENTS_PER_SECOND = 60
CATCH_UP_S = 240.0
"""For a killed instance to be missed, its tasks to move, stores to be restored; a machine may be slow."""
DOWN_S = (0.5, 4.0)
"""For so long a victim is away, at least and at most."""
SETTINGS = ("min.insync.replicas=2", "transaction.state.log.min.isr=2")
TOPICS = dict.fromkeys((*INPUTS, *OUTPUTS), PARTITIONS)


@dataclass(frozen=True, slots=True)
class Kill:
    """What is killed in a round: a broker, or an instance, which may lose its state directory."""

    is_broker: bool
    index: int
    at_event: int
    down_s: float
    loses_state: bool


def kills(seed: int, count: int) -> list[Kill]:
    """Brokers and instances by turns, each kill at another moment of its round's input."""
    chance = random.Random(seed)
    drawn = []
    for number in range(count):
        is_broker = number % 2 == 1
        drawn.append(
            Kill(
                is_broker,
                chance.randrange(NODES if is_broker else 2),
                chance.randrange(EVENTS_PER_ROUND // 8, EVENTS_PER_ROUND * 7 // 8),
                round(chance.uniform(*DOWN_S), 1),
                chance.random() < 0.4,
            )
        )
    return drawn


class Feed:
    """Writes events in their order at a steady rate, whichever broker is away."""

    def __init__(self, bootstrap: str) -> None:
        self._refused: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 300_000,
                **QUIET,
            }
        )

    def write(self, events: Sequence[Event], after: Callable[[int], None] = lambda index: None) -> None:
        """Until each is acknowledged; `after` is called with the index of each. Raises `Failed`."""
        for index, event in enumerate(events):
            self._producer.produce(
                event.topic,
                event.value,
                event.key,
                partition=event.partition,
                timestamp=event.timestamp_ms,
                on_delivery=self._delivered,
            )
            self._producer.poll(1 / EVENTS_PER_SECOND)
            after(index)
        left = self._producer.flush(CATCH_UP_S)
        if left or self._refused:
            raise Failed(f"{left} events of the input are not acknowledged; refused: {self._refused[:3]}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error.str())


class Shop:
    """Brokers, two instances of the application, their input, and a reader of their outputs."""

    def __init__(self, name: str, toolchain: Toolchain, ports: Ports, directory: Path) -> None:
        self.truth = Truth()
        self.brokers = Trio(name, toolchain, pairs_of(ports), directory, extra=SETTINGS)
        toolchain.compiled_java()
        bootstrap = self.brokers.bootstrap
        self.instances = [Instance(f"instance-{each}", toolchain, bootstrap, directory) for each in (1, 2)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Brokers and topics are there; nothing is left running."""
        self.brokers.format()
        try:
            self.brokers.start()
            create_topics(self.brokers.bootstrap, TOPICS, retention_ms="-1")
            await_in_sync(self.brokers.bootstrap, NODES)
            self.feed = Feed(self.brokers.bootstrap)
            self.reader = TopicReader(self.brokers.bootstrap, dict.fromkeys(OUTPUTS, PARTITIONS))
            yield
            self.reader.close()
        finally:
            for instance in self.instances:
                instance.close()
            self.brokers.close()

    def round(self, given: Round, deed: Callable[[int], None] = lambda index: None) -> float:
        """Writes a round; the seconds until the outputs are complete after its last record. Raises `Failed`."""
        for part in (given.moves, given.events):
            self.truth.add(part)
            self.feed.write(part, deed if part is given.events else lambda index: None)
            written = time.monotonic()
            self.catch_up()
        return time.monotonic() - written

    def catch_up(self) -> None:
        """Raises `Failed` where records are missing in the end, or more are there than there must be."""
        deadline = time.monotonic() + CATCH_UP_S
        wanted = self.truth.counts()
        while True:
            self.reader.read(0.2)
            found = {output: len(records) for output, records in self.reader.records.items()}
            if all(found[output] >= wanted[output] for output in OUTPUTS):
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
            raise Failed(f"{len(said)} keys of the outputs are wrong: {'; '.join(said[:5])}")

    def strike(self, kill: Kill) -> Callable[[int], None]:
        """The deed of a round: at its event something is killed, and started again once its time is over."""
        victim = self.brokers.nodes[kill.index] if kill.is_broker else self.instances[kill.index]
        back_at = 0.0

        def deed(index: int) -> None:
            nonlocal back_at
            if index == kill.at_event:
                victim.kill()
                back_at = time.monotonic() + kill.down_s
                if kill.loses_state and isinstance(victim, Instance):
                    victim.forget()
            is_last = index == EVENTS_PER_ROUND - 1
            if back_at and (is_last or time.monotonic() >= back_at):
                time.sleep(max(0.0, back_at - time.monotonic()))
                victim.start()
                back_at = 0.0

        return deed


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds to catch up after each kill, records of the outputs, those of aborted transactions, and threads lost."""

    caught_up_s: tuple[float, ...]
    records: dict[str, int]
    aborted: int
    replaced: tuple[str, ...]


def campaign(shop: Shop, count: int, seed: int, say: Report) -> Figures:
    """One instance, a second one that joins, then so many kills; the outputs equal the truth. Raises `Failed`."""
    first_ms = int(time.time() * 1000) // 60_000 * 60_000 - SPAN_MS
    given = rounds(seed, first_ms, EVENTS_PER_ROUND)
    caught_up = []
    with shop.running():
        shop.instances[0].start()
        say(f"one instance: complete {shop.round(next(given)):.1f} s after the input")
        second = shop.instances[1]
        joins = lambda index: second.start() if index == EVENTS_PER_ROUND // 4 else None  # noqa: E731
        say(f"a second joins: complete {shop.round(next(given), joins):.1f} s after the input")
        for number, kill in enumerate(kills(seed, count), 1):
            seconds = shop.round(next(given), shop.strike(kill))
            await_in_sync(shop.brokers.bootstrap, NODES)
            victim = f"broker {kill.index + 1}" if kill.is_broker else f"instance {kill.index + 1}"
            lost = " and its state" if kill.loses_state and not kill.is_broker else ""
            say(f"kill {number} of {count}, {victim}{lost}: complete {seconds:.1f} s after the input")
            caught_up.append(seconds)
        for instance in shop.instances:
            instance.stop()
        topics = dict.fromkeys(OUTPUTS, PARTITIONS)
        held = all_committed(shop.brokers.bootstrap, topics)
        shop.judge(held)
        aborted = aborted_count(shop.brokers.bootstrap, topics, held)
    replaced = tuple(each for instance in shop.instances for each in instance.replaced())
    return Figures(tuple(caught_up), {output: len(held[output]) for output in OUTPUTS}, aborted, replaced)
