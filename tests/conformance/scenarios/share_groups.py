"""Scenarios of share groups (KIP-932) with members in Java, of franz-go and of librdkafka: every record is acknowledged
or delivered again, delivery counts are right, and the dead-letter queue has what was rejected or ran out of deliveries.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from tests.conformance.client import Client
from tests.conformance.clients import driver_of
from tests.conformance.committed import await_in_sync
from tests.conformance.outcome import Failed, Unavailable
from tests.conformance.record import Record
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import expect
from tests.conformance.share_member import (
    ACCEPT,
    LATE,
    REJECT,
    RELEASE,
    ShareMember,
    confirmed_ends,
    deliveries_after_end,
    deliveries_by_place,
)
from tests.conformance.toolbox import Toolbox
from tests.conformance.toolchain import Missing
from tests.conformance.trio import NODES, Trio, pairs_of

TOPIC: Final = "work"
GROUP: Final = "workers"
QUEUE: Final = "dlq.work"
PARTITIONS: Final = 4
KINDS: Final = ("java", "franz-go", "confluent")
VERBS: Final = (ACCEPT,) * 7 + (LATE, REJECT, RELEASE)
"""Of each ten records."""
LIMIT: Final = 10
"""Deliveries of a record: a member that dies uses one up."""
RECORDS: Final = 200
"""Records that are sent at a time."""
PATIENCE_S: Final = 150
RELEASE_WITH_QUEUES: Final = "4.4-IV2"
"""The metadata version of a cluster that has dead-letter queues."""
SETTINGS: Final = (
    "min.insync.replicas=2",
    "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=2",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.record.lock.duration.ms=15000",
    f"group.share.delivery.count.limit={LIMIT}",
    "group.share.min.session.timeout.ms=6000",
    "group.share.session.timeout.ms=6000",
    "group.share.min.heartbeat.interval.ms=500",
    "group.share.heartbeat.interval.ms=1000",
)
"""The locks of a member that was killed end after 15 s."""


class Workers:
    """Three nodes, and the members of one share group, each with a driver process of its own."""

    def __init__(self, work: Workshop, brokers: Trio, stack: ExitStack) -> None:
        self._work = work
        self._brokers = brokers
        self._stack = stack
        self._drivers: dict[str, Client] = {}
        self._members: dict[str, ShareMember] = {}
        self._former: list[ShareMember] = []
        self.sent: dict[str, int] = {}
        """The values, each with the number of its batch of records."""
        self.box = Toolbox(work.toolchain, brokers.bootstrap, "share", work.directory)
        self._producer = self._driver("confluent", "producer")

    def _driver(self, kind: str, name: str) -> Client:
        log = self._work.directory / f"{name}.log"
        driver = self._drivers[name] = driver_of(kind, self._work.toolchain, self._brokers.bootstrap, log)
        self._stack.callback(driver.close)
        return driver

    def prepare(self, *, has_queue: bool) -> None:
        run = self.box.run
        run("kafka-topics", "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3")
        settings = "share.auto.offset.reset=earliest"
        if has_queue:  # The tool of 4.3.1 refuses the setting of 4.4 by itself.
            configs = {"errors.deadletterqueue.group.enable": "true"}
            self._producer.create_topic(QUEUE, 1, replicas=NODES, configs=configs)
            settings += f",errors.deadletterqueue.topic.name={QUEUE}"
        group = ("--entity-type", "groups", "--entity-name", GROUP)
        run("kafka-configs", "--alter", *group, "--add-config", settings)

    # Members and nodes

    def join(self, kind: str, name: str) -> None:
        self._members[name] = ShareMember(self._driver(kind, name), name, GROUP, TOPIC, count=20)

    def leave(self, name: str) -> None:
        member = self._members.pop(name)
        member.look()
        member.close()
        self._former.append(member)

    def kill_member(self, name: str) -> None:
        """What it has and has not acknowledged is delivered again once its locks are over."""
        member = self._members.pop(name)
        member.look_before_death()
        self._drivers.pop(name).close()
        self._former.append(member)

    def kill_node(self, index: int) -> None:
        """Each node coordinates something, and leads partitions."""
        node = self._brokers.nodes[index]
        node.kill()
        self.send()
        time.sleep(3)
        node.start()
        await_in_sync(self._brokers.bootstrap, NODES)

    # Records

    def send(self) -> None:
        begin, batch = len(self.sent), max(self.sent.values(), default=0) + 1
        values = [f"{number}:{VERBS[number % len(VERBS)]}" for number in range(begin, begin + RECORDS)]
        records = [Record(value.encode(), partition=number // 10 % PARTITIONS) for number, value in enumerate(values)]
        self._producer.produce(TOPIC, records)
        self.sent |= dict.fromkeys(values, batch)

    def _look(self) -> list[ShareMember]:
        """Every member, with what happened until now."""
        for member in self._members.values():
            member.look()
        return [*self._members.values(), *self._former]

    def await_done(self) -> None:
        """Until no record is left to deliver."""
        deadline = time.monotonic() + PATIENCE_S
        while (lag := self._lag()) != 0:
            if time.monotonic() > deadline:
                raise Failed(f"the lag of the share group stays {lag}")
            time.sleep(1)

    def _lag(self) -> int | None:
        said = self.box.run("kafka-share-groups", "--describe", "--group", GROUP, "--offsets")
        lags = [line.split()[-1] for line in said.splitlines() if line.startswith(GROUP)]
        return sum(map(int, lags)) if len(lags) == PARTITIONS and all(lag.isdigit() for lag in lags) else None

    # What must hold

    def check(self) -> Counter[str]:
        """Each record was delivered until its end, in no order, and no record after its end was confirmed."""
        members = self._look()
        by_place = deliveries_by_place(members)
        seen = {each[0].value for each in by_place.values()}
        missing = sorted(self.sent.keys() - seen)
        expect(not missing, f"{len(missing)} records were never delivered: {missing[:5]}")
        expect(seen == self.sent.keys() and len(by_place) == len(self.sent), "records were delivered that nobody sent")
        for place, delivered in by_place.items():
            counts = [each.count for each in delivered]
            expect(min(counts) >= 1 and max(counts) <= LIMIT, f"{place} was delivered with the counts {counts}")
        again = deliveries_after_end(members)
        expect(not again, f"records came again after an acknowledgement that ends them was confirmed: {again[:3]}")
        ended = len(confirmed_ends(members))
        return Counter({"records": len(by_place), "deliveries": sum(map(len, by_place.values())), "ended": ended})

    def check_counts(self, batches: int) -> None:
        """Of the records of the first batches, which met no kill: each count once, in order, as often as it must be."""
        delivered = deliveries_by_place(self._look()).values()
        counts = {each[0].value: [delivery.count for delivery in each] for each in delivered}
        times = {ACCEPT: 1, REJECT: 1, LATE: 2, RELEASE: LIMIT}
        for value, batch in self.sent.items():
            if batch <= batches:
                wanted = list(range(1, times[value.partition(":")[2]] + 1))
                expect(counts[value] == wanted, f"{value} was delivered with the counts {counts[value]}")

    def dead_letters(self) -> Counter[str]:
        """The values whose records the queue tells of, by partition and offset."""
        values = {place: each[0].value for place, each in deliveries_by_place(self._look()).items()}
        wanted = {value for value in self.sent if value.partition(":")[2] in (REJECT, RELEASE)}
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = Counter(values.get(place, str(place)) for place in places_of_letters(self._brokers.bootstrap))
            if wanted <= found.keys() or time.monotonic() > deadline:
                return found
            time.sleep(1)

    def check_dead_letters(self) -> Counter[str]:
        found = self.dead_letters()
        wanted = {value for value in self.sent if value.partition(":")[2] in (REJECT, RELEASE)}
        missing, others = sorted(wanted - found.keys()), sorted(found.keys() - wanted)
        expect(not missing, f"{len(missing)} records have no dead letter: {missing[:5]}")
        expect(not others, f"{len(others)} dead letters of records that were accepted: {others[:5]}")
        return found


def places_of_letters(bootstrap: str) -> list[tuple[int, int]]:
    """The partition and the offset that each record of the queue names."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        partition = TopicPartition(QUEUE, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        consumer.assign([partition])
        found: list[tuple[int, int]] = []
        while len(found) < end and (messages := consumer.consume(500, timeout=10)):
            for message in messages:
                headers = dict(message.headers() or ())
                place = headers["__dlq.errors.partition"], headers["__dlq.errors.offset"]
                found.append((int(place[0] or b"-1"), int(place[1] or b"-1")))
        return found
    finally:
        consumer.close()


@contextmanager
def workers(work: Workshop, side: str, *, has_queue: bool) -> Iterator[Workers]:
    if side == "apache" and has_queue and work.toolchain.server_jars() is None:
        raise Unavailable("MOLDAU_KAFKA_SERVER_LIB names no jars of Apache Kafka 4.4")
    with ExitStack() as stack:
        try:
            brokers = Trio(side, work.toolchain, pairs_of(work.ports), work.directory, extra=SETTINGS)
            if has_queue:
                brokers.release = RELEASE_WITH_QUEUES
            brokers.format()
            stack.enter_context(contextlib.closing(brokers))
            brokers.start()
            await_in_sync(brokers.bootstrap, NODES)
            found = Workers(work, brokers, stack)
            found.prepare(has_queue=has_queue)
            yield found
        except Missing as missing:
            raise Unavailable(str(missing)) from None


def worked(side: str, *, has_queue: bool) -> Callable[[Workshop], None]:
    """First in peace; then members and nodes are killed, each kind of client and each node once."""

    def story(work: Workshop) -> None:
        with workers(work, side, has_queue=has_queue) as group:
            for kind in KINDS:
                group.join(kind, kind)
            for _ in range(3):
                group.send()
            group.await_done()
            group.check()
            group.check_counts(3)
            for index, kind in enumerate(KINDS):
                group.send()
                group.kill_member(kind)
                group.join(kind, f"{kind}-again")
                group.kill_node(index)
            group.send()
            for kind in KINDS:
                group.leave(f"{kind}-again")
                group.join(kind, f"{kind}-at-last")
            group.await_done()
            figures = group.check()
            letters = group.check_dead_letters() if has_queue else Counter()
            work.facts["records"] = figures["records"]
            work.facts["dead letters"] = len(letters)
            told = ", ".join(f"{count:,} {name}" for name, count in figures.items())
            print(f"  {side}: {told}, {letters.total()} dead letters of {len(letters)} records", flush=True)

    return story


SHARE_GROUP_SCENARIOS: Final = (
    *(
        DirectoryScenario(
            "share-groups-under-kills",
            "members of a share group in Java, of franz-go and librdkafka; members and nodes are killed",
            worked(side, has_queue=False),
            side,
        )
        for side in ("moldau", "apache")
    ),
    *(
        DirectoryScenario(
            "share-groups-dead-letters",
            "the same, at the metadata version of Apache Kafka 4.4, with a dead-letter queue",
            worked(side, has_queue=True),
            side,
        )
        for side in ("moldau", "apache")
    ),
)
