"""Scenarios of a consumer group that changes its protocol while it lives, with members of three clients."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from confluent_kafka import KafkaException

from tests.conformance.client import Client
from tests.conformance.clients import driver_of
from tests.conformance.committed import administrator
from tests.conformance.outcome import Failed, Unavailable
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.scenarios.groups import PARTITIONS, Crowd
from tests.conformance.session import Session, expect
from tests.conformance.toolchain import Missing
from tests.conformance.trio import Trio, pairs_of

CLASSIC: Final = "range"
"""The strategy of the classic members."""
CONSUMER: Final = "consumer"
RECORDS: Final = 400
"""Records that are sent before each step."""
PATIENCE_S: Final = 90
SETTINGS: Final = (
    "min.insync.replicas=2",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
)
"""A member that was killed is missed after 6 s in both protocols."""
SESSION_MS: Final = 6_000


class Changing:
    """Three nodes and the members of one group, each with a driver process of its own."""

    def __init__(self, work: Workshop, brokers: Trio, stack: ExitStack) -> None:
        self._work = work
        self._brokers = brokers
        self._stack = stack
        self._drivers: dict[str, Client] = {}
        session = Session(
            self._driver("confluent", "main"), "change", brokers, lambda: self._driver("confluent", "more")
        )
        self.crowd = Crowd(session, CLASSIC)

    def _driver(self, kind: str, name: str) -> Client:
        log = self._work.directory / f"{name}.log"
        driver = self._drivers[name] = driver_of(kind, self._work.toolchain, self._brokers.bootstrap, log)
        self._stack.callback(driver.close)
        return driver

    def join(self, kind: str, name: str, strategy: str) -> None:
        self.crowd.send(RECORDS)
        driver = self._driver(kind, name)
        self.crowd.join(name, client=driver, session_timeout_ms=SESSION_MS, strategy=strategy)
        self.await_spread()

    def leave(self, name: str) -> None:
        self.crowd.send(RECORDS)
        self.crowd.leave(name)
        self.await_spread()

    def kill_member(self, name: str) -> None:
        self.crowd.members[name].look()
        self._drivers.pop(name).close()
        self.crowd.forget(name)
        self.crowd.send(RECORDS)
        self.await_spread()

    def kill_coordinator(self) -> None:
        node = self._brokers.nodes[self.described().coordinator.id - 1]
        node.kill()
        self.crowd.send(RECORDS)
        self.await_spread()
        node.start()
        self.await_spread()

    def await_spread(self) -> None:
        """Until each partition has one member, and each member a partition."""

        def is_spread() -> bool:
            held = []
            for member in self.crowd.members.values():
                member.look()
                held.append(member.assignment)
            return all(held) and sum(map(len, held)) == PARTITIONS == len(frozenset().union(*held))

        self.crowd.session.until("each partition has one member", is_spread, self.crowd.state)

    def described(self) -> Any:
        """The description of the group, whose coordinator may just be moving. librdkafka's administrator keeps asking
        the coordinator that it found first, so that each attempt has one of its own.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            admin = administrator(self._brokers.bootstrap)
            try:
                return admin.describe_consumer_groups([self.crowd.group])[self.crowd.group].result(timeout=30)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    def await_type(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.described().type.name) != name:
            if time.monotonic() > deadline:
                raise Failed(f"the group should be of the type {name}, and is of {found}")
            time.sleep(0.5)


@contextmanager
def changing(work: Workshop) -> Iterator[Changing]:
    with ExitStack() as stack:
        try:
            brokers = Trio("moldau", work.toolchain, pairs_of(work.ports), work.directory, extra=SETTINGS)
            brokers.format()
            stack.enter_context(contextlib.closing(brokers))
            brokers.start()
            yield Changing(work, brokers, stack)
        except Missing as missing:
            raise Unavailable(str(missing)) from None


def changed_and_back(work: Workshop) -> None:
    """From the classic protocol to that of KIP-848 member by member, and back; then the same under kills.

    On Moldau alone: in the one run that was tried with Apache Kafka 4.3.1, on a busy machine, the members did not have
    all partitions again within 90 s of the first kill of a coordinator. Why is not known.
    """
    with changing(work) as group:
        group.join("confluent", "a", CLASSIC)
        group.join("java", "b", CLASSIC)
        group.await_type("CLASSIC")
        group.join("confluent", "c", CONSUMER)
        group.await_type("CONSUMER")
        group.leave("a")
        group.join("java", "d", CONSUMER)
        group.leave("b")
        group.join("franz-go", "j", CONSUMER)
        group.join("confluent", "e", CLASSIC)
        group.leave("c")
        group.leave("j")
        group.join("java", "f", CLASSIC)
        group.leave("d")
        group.await_type("CLASSIC")
        group.crowd.until_all_seen()
        gently = len(group.crowd.seen()) - len(set(group.crowd.seen()))
        expect(gently == 0, f"{gently} records were seen twice, although every member left in peace")
        group.join("java", "g", CONSUMER)
        group.join("franz-go", "k", CONSUMER)
        group.kill_coordinator()
        group.kill_member("e")
        group.join("confluent", "h", CONSUMER)
        group.kill_member("f")
        group.kill_member("k")
        group.kill_coordinator()
        group.await_type("CONSUMER")
        group.join("confluent", "i", CLASSIC)
        group.kill_member("g")
        group.leave("h")
        group.await_type("CLASSIC")
        group.crowd.until_all_seen()
        seen = group.crowd.seen()
        expect(set(seen) == set(group.crowd.sent), "every record was seen, and no other")
        work.facts["records"] = len(group.crowd.sent)
        again = len(seen) - len(set(seen))
        print(f"  {len(group.crowd.sent):,} records, {again} seen again after kills", flush=True)


LIVE_GROUP_SCENARIOS: Final = (
    DirectoryScenario(
        "groups-change-protocol",
        "a live group goes to KIP-848 and back, with members of three clients; members and nodes are killed",
        changed_and_back,
    ),
)
