"""The lag in the console and on /metrics is what a real read_committed consumer of the group still receives, of every
kind of group, in transactional and in compacted topics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple
from urllib.request import urlopen

import pytest

from moldau.testing import Cluster
from moldau.testing.ports import free_ports

confluent = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")
pytestmark = pytest.mark.processes

TOPIC: Final = "payments"
COMPACTED: Final = "balances"
PARTITIONS: Final = 2
TRANSACTIONS: Final = 24
READ_FIRST: Final = 50
"""Records that the group has read before the page is looked at: it stops in the middle of a batch."""
QUIET_S: Final = 1.5
WAIT_S: Final = 20.0
SKEW_MS: Final = 2_000
FRESH_S: Final = 5.5
"""After this time a scrape takes a sample of its own."""
PREFIX: Final = "kafka_consumergroup_group_"


class Message(NamedTuple):
    partition: int
    offset: int
    timestamp: int


class Console(NamedTuple):
    cluster: Cluster
    address: str

    def lag(self, group: str) -> dict[str, Any]:
        """The lag on the page of a group, which the list of the groups repeats."""
        page: dict[str, Any] = self._json(f"/groups/{group}")
        row = next(each for each in self._json("/groups")["groups"]["rows"] if each["id"] == group)
        assert [row[name] for name in ("records", "is_exact")] == [page[name] for name in ("records", "is_exact")]
        return page

    def exported(self, group: str) -> dict[str, float]:
        """The samples of a group on /metrics, without the prefix of their names and the label of the group."""
        time.sleep(FRESH_S)
        with urlopen(f"{self.address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            name, _, value = line.rpartition(" ")
            if f'group="{group}"' in name and name.startswith(PREFIX):
                found[name.removeprefix(PREFIX).replace(f'group="{group}",', "")] = float(value)
        return found

    def _json(self, path: str) -> Any:
        with urlopen(f"{self.address}{path}?format=json", timeout=10) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    (port,) = free_ports(1)
    settings = {
        "moldau.console": "true",
        "moldau.http.listener": f"http://127.0.0.1:{port}",
        "log.cleaner.backoff.ms": "200",
    }
    with Cluster(settings=settings) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        write(cluster.bootstrap_servers)
        yield Console(cluster, f"http://127.0.0.1:{port}")


def write(servers: str) -> None:
    """Transactions of five records, of which every third one is aborted; records without one; an open transaction."""
    plain = confluent.Producer({"bootstrap.servers": servers, "linger.ms": 50})
    producer = confluent.Producer(
        {"bootstrap.servers": servers, "transactional.id": "shop", "linger.ms": 50, "transaction.timeout.ms": 300_000}
    )
    producer.init_transactions()
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for each in range(5):
            producer.produce(TOPIC, f"{number}-{each}", partition=number % PARTITIONS)
        producer.flush()
        if number % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        plain.produce(TOPIC, f"plain-{number}", partition=number % PARTITIONS)
        plain.flush()
    producer.begin_transaction()
    producer.produce(TOPIC, "open", partition=0)
    producer.flush()
    plain.produce(TOPIC, "behind it", partition=0)
    plain.flush()


def message_of(received: Any) -> Message:
    assert received.error() is None, received.error()
    return Message(received.partition(), received.offset(), received.timestamp()[1])


class Member:
    """A consumer that commits by itself what it was given."""

    def __init__(self, servers: str, group: str, protocol: str, topic: str = TOPIC) -> None:
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._topic = topic
        self._consumer.subscribe([topic])

    def begin(self) -> None:
        """Commit the first offsets."""
        while not self._consumer.assignment():
            self._consumer.poll(0.1)
        offsets = [confluent.TopicPartition(self._topic, each, 0) for each in range(PARTITIONS)]
        self._consumer.commit(offsets=offsets, asynchronous=False)
        for offset in offsets:
            self._consumer.seek(offset)

    def read(self, wait_s: float) -> list[Message]:
        received = self._consumer.poll(wait_s)
        if received is None:
            return []
        self._consumer.commit(received, asynchronous=False)
        return [message_of(received)]

    def commit_unread(self, seen: list[Message]) -> None:
        """Commit the first offset of the partitions that were not read: without a commit there is no lag."""
        unread = set(range(PARTITIONS)) - {each.partition for each in seen}
        offsets = [confluent.TopicPartition(TOPIC, each, 0) for each in unread]
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def compact(cluster: Cluster) -> None:
    """A compacted topic, of whose records the cleaner has removed some."""
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "1",
    }
    cluster.create_topic(COMPACTED, PARTITIONS, settings=settings)
    producer = confluent.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
    written = 0
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for number in range(200):
            producer.produce(COMPACTED, "x" * 100, key=f"key-{number}", partition=number % PARTITIONS)
        producer.flush()
        written += 200
        if written >= 2_000 and len(all_of(cluster.bootstrap_servers)) < written / 2:
            return
    raise AssertionError("nothing was compacted")


def all_of(servers: str) -> list[Message]:
    """The records of the compacted topic."""
    reader = confluent.Consumer({"bootstrap.servers": servers, "group.id": "nobody", "enable.auto.commit": False})
    reader.assign([confluent.TopicPartition(COMPACTED, each, 0) for each in range(PARTITIONS)])
    with closing(reader):
        found = []
        while (received := reader.poll(1.0)) is not None:
            found.append(message_of(received))
        return found


class ShareMember:
    """A share consumer that accepts what it was given; a first one also rejects and releases."""

    def __init__(self, servers: str, group: str, *, is_first: bool) -> None:
        settings = {"bootstrap.servers": servers, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = confluent.ShareConsumer(settings)
        self._consumer.subscribe([TOPIC])
        self._is_first = is_first

    def read(self, wait_s: float) -> list[Message]:
        """The records that do not come again."""
        kinds = confluent.AcknowledgeType
        finished = []
        for received in self._consumer.poll(wait_s):
            message = message_of(received)
            kind = kinds.ACCEPT
            if self._is_first and message.offset % 4 == 1:
                kind = kinds.RELEASE
            elif self._is_first and message.offset % 4 == 2:
                kind = kinds.REJECT
            if kind != kinds.RELEASE:
                finished.append(message)
            self._consumer.acknowledge(received, kind)
        self._consumer.commit_sync()
        return finished

    def close(self) -> None:
        self._consumer.close()


def read_until(read: Callable[[float], list[Message]], count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += read(0.2)
    return found


def check(console: Console, group: str, kind: str, read: Callable[[float], list[Message]]) -> None:
    """The page and the metrics show what a member of the group then reads, and the age of the first of it."""
    asked_ms, samples, page = time.time() * 1000, console.exported(group), console.lag(group)
    seen_ms = time.time() * 1000
    assert page["is_exact"] and page["records"] > 10
    assert samples[f'sum_lag{{kind="{kind}"}}'] == page["records"]
    left = read_until(read, page["records"])
    assert len({each[:2] for each in left}) == page["records"]
    assert read(QUIET_S) == []
    oldest = min(each.timestamp for each in left)
    for behind_ms in (page["behind_ms"], samples[f'max_lag_seconds{{kind="{kind}"}}'] * 1000):
        assert asked_ms - SKEW_MS < oldest + behind_ms < seen_ms + SKEW_MS
    for row in page["partitions"]:
        of_partition = [each for each in left if each.partition == row["partition"]]
        assert row["records"] == len(of_partition), row
        assert samples[f'lag{{topic="{row["topic"]}",partition="{row["partition"]}"}}'] == len(of_partition)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_receives_what_the_page_shows(console: Console, protocol: str) -> None:
    servers = console.cluster.bootstrap_servers
    with closing(Member(servers, protocol, protocol)) as first:
        seen = read_until(first.read, READ_FIRST)
        assert len(seen) == READ_FIRST
        first.commit_unread(seen)
    with closing(Member(servers, protocol, protocol)) as second:
        check(console, protocol, protocol, second.read)
    assert (console.lag(protocol)["records"], console.lag(protocol)["behind_ms"]) == (0, 0)
    samples = console.exported(protocol)
    assert [samples[f'{name}{{kind="{protocol}"}}'] for name in ("sum_lag", "max_lag", "max_lag_seconds")] == [0, 0, 0]


def test_a_consumer_of_a_compacted_topic_receives_what_the_page_shows(console: Console) -> None:
    servers = console.cluster.bootstrap_servers
    compact(console.cluster)
    with closing(Member(servers, "compacted", "classic", COMPACTED)) as member:
        member.begin()
        check(console, "compacted", "classic", member.read)


def test_a_share_consumer_receives_what_the_page_shows(console: Console) -> None:
    servers = console.cluster.bootstrap_servers
    settings = {"share.isolation.level": "read_committed", "share.auto.offset.reset": "earliest"}
    group = admin.ConfigResource(
        admin.ConfigResource.Type.GROUP,
        "share",
        incremental_configs=[
            admin.ConfigEntry(*each, incremental_operation=admin.AlterConfigOpType.SET) for each in settings.items()
        ],
    )
    client = admin.AdminClient({"bootstrap.servers": servers})
    for done in client.incremental_alter_configs([group]).values():
        done.result(10)
    with closing(ShareMember(servers, "share", is_first=True)) as first:
        read_until(first.read, READ_FIRST)
    page = console.lag("share")
    assert page["kind"] == "share" and page["is_read_committed"]
    with closing(ShareMember(servers, "share", is_first=False)) as second:
        check(console, "share", "share", second.read)
    assert (console.lag("share")["records"], console.lag("share")["behind_ms"]) == (0, 0)
