"""Scenarios of clusters whose nodes authenticate: a leader is killed, and a broker of the other kind joins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from tests.conformance.brokers import Broker
from tests.conformance.committed import QUIET, REQUEST_S, administrator, await_in_sync, create_topics
from tests.conformance.drivers.librdkafka import security_settings
from tests.conformance.outcome import Failed
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.scenarios.mixed import OFFSETS_TWICE, joins
from tests.conformance.secured.listeners import Between, credentials, secured
from tests.conformance.secured.permissions import Permission, grant, topics
from tests.conformance.secured.stores import Stores
from tests.conformance.secured.trio import SecuredTrio
from tests.conformance.session import expect
from tests.conformance.trio import NODES

USER, PASSWORD = "alice", "alice-secret"
TOPIC, GROUP = "guarded", "guards"
RECORDS: Final = 1_000
"""Before the kill, while the leader is away, and after it is back."""
ACKNOWLEDGED_S: Final = 90.0
READ, WRITE = AclOperation.READ, AclOperation.WRITE
PERMISSIONS: Final = (*topics((READ, WRITE), TOPIC), Permission(ResourceType.GROUP, GROUP, (READ,)))


class Application:
    """A producer and a consumer of the user's: one partition, whose order is that of the values."""

    def __init__(self, three: SecuredTrio) -> None:
        self._config = {
            "bootstrap.servers": three.secured_bootstrap,
            **security_settings(three.security_of(USER)),
            **QUIET,
        }
        self._refused: list[str] = []
        self._sent = 0
        self._producer = Producer(self._config | {"enable.idempotence": True, "acks": "all"})

    def write(self, count: int, midway: Callable[[], None] = lambda: None) -> None:
        """Until each record is acknowledged; `midway` happens between two of them. Raises `Failed`."""
        for index in range(count):
            self._producer.produce(TOPIC, str(self._sent), on_delivery=self._delivered)
            self._producer.poll(0)
            self._sent += 1
            if index == count // 2:
                midway()
        left = self._producer.flush(ACKNOWLEDGED_S)
        if left or self._refused:
            raise Failed(f"{left} records are not acknowledged; refused: {self._refused[:3]}")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused.append(error.str())

    def read_all(self) -> None:
        """As a member of the group, from the start: each record once, in order. Raises `Failed`."""
        consumer = Consumer(
            self._config | {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([TOPIC])
        with contextlib.closing(consumer):
            read = list(self._values(consumer))
        wanted = [str(index) for index in range(self._sent)]
        expect(read == wanted, f"{len(read)} records came of {self._sent}, or in another order")

    def _values(self, consumer: Consumer) -> Iterator[str]:
        left = self._sent
        while left:
            messages = consumer.consume(left, ACKNOWLEDGED_S)
            if not messages:
                return
            for message in messages:
                value = message.value()
                if message.error() is None and value is not None:
                    left -= 1
                    yield value if isinstance(value, str) else value.decode()


def leader_of(bootstrap: str) -> int:
    return administrator(bootstrap).list_topics(TOPIC, REQUEST_S).topics[TOPIC].partitions[0].leader


def leader_is_killed(side: str, between: Between) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        settings = ("min.insync.replicas=2",)
        three = SecuredTrio(side, work.toolchain, work.ports, work.directory, between, {USER: PASSWORD}, extra=settings)
        three.format()
        with contextlib.closing(three):
            three.start()
            create_topics(three.bootstrap, {TOPIC: 1})
            await_in_sync(three.bootstrap, NODES)
            work.facts["ACLs"] = grant(three.bootstrap, USER, PERMISSIONS)
            application = Application(three)
            application.write(RECORDS)
            victim = leader_of(three.bootstrap)
            application.write(RECORDS, three.nodes[victim - 1].kill)
            expect(leader_of(three.bootstrap) != victim, "the killed node still leads")
            application.read_all()
            three.nodes[victim - 1].start()
            await_in_sync(three.bootstrap, NODES)
            application.write(RECORDS)
            application.read_all()

    return story


def secured_pair(work: Workshop, host: Broker, guest: Broker, between: Between) -> None:
    stores = Stores(work.directory)
    host.set(secured(stores, host.port, work.ports.pair(), between))
    guest.set(secured(stores, guest.port, work.ports.pair(), between, is_controller=False))
    host.format_words = credentials({})
    joins(work, host, guest)


def apache_joins(between: Between) -> Callable[[Workshop], None]:
    return lambda work: secured_pair(work, work.moldau(OFFSETS_TWICE), work.guest(), between)


def moldau_joins(between: Between) -> Callable[[Workshop], None]:
    return lambda work: secured_pair(work, work.apache(OFFSETS_TWICE), work.moldau_guest(), between)


def scenarios() -> Iterator[DirectoryScenario]:
    for between in Between:
        how = between.name.lower()
        demands = f"three nodes with {how} between them; a user's records survive the leader, each once and in order"
        for side in ("moldau", "apache"):
            yield DirectoryScenario(f"secured-{how}-leader", demands, leader_is_killed(side, between), side)
        for name, story, what in (
            ("apache-joins", apache_joins, "a broker of Apache Kafka joins our controller"),
            ("moldau-joins", moldau_joins, "our broker joins a controller of Apache Kafka's"),
        ):
            yield DirectoryScenario(f"secured-{how}-{name}", f"{what} with {how}, as in mixed-{name}", story(between))


SECURED_CLUSTER_SCENARIOS: Final = tuple(scenarios())
