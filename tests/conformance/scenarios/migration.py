"""The scenario of docs/migration.md: a cluster of Apache Kafka taken over in place, node by node, and back again.

The commands are those of the page: what it says is what is run. All the time a producer sends, a consumer group
reads, a share group accepts, and a Streams application computes; each group has two members.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.conformance.brokers import MOLDAU
from tests.conformance.moving_load import MovingShop, ShareReaders
from tests.conformance.outcome import Failed
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import expect
from tests.conformance.toolbox import Toolbox
from tests.conformance.trio import NODES, Node, java_of, pairs_of

PAGE: Final = Path(__file__).parents[3] / "docs" / "migration.md"
TOPIC: Final = "moved"
PARTITIONS: Final = 6
PATIENCE_S: Final = 120
PAUSE_S: Final = 0.002
"""Between two records."""
READERS: Final = "readers"
SHARERS: Final = "sharers"
GROUPS: Final = {READERS: "kafka-consumer-groups", SHARERS: "kafka-share-groups", "shop": "kafka-streams-groups"}
"""The groups, each with the tool that describes it."""
NEW_GROUPS: Final = ("group.version", "share.version", "streams.version")
BEFORE_S: Final = 2
"""How long the producer sends before the first step."""


def commands_of(text: str) -> list[str]:
    """The lines of code of the page."""
    return [line.strip() for line in text.splitlines() if re.match(r" {4,}\S", line) and not re.match(r" *\d\.", line)]


def command_with(*words: str) -> list[str]:
    """The words of the one command of the page that has these."""
    found = [line for line in commands_of(PAGE.read_text()) if all(word in line for word in words)]
    assert len(found) == 1, f"{PAGE.name} has {len(found)} commands with {words}"
    return shlex.split(found[0])


class Cluster:
    """Three combined nodes with a dynamic quorum, each of which runs as Apache Kafka or as Moldau."""

    def __init__(self, work: Workshop) -> None:
        self._pairs = pairs_of(work.ports)
        self._http_ports = pairs_of(work.ports)
        self._directory = work.directory
        self._java = java_of(work.toolchain)
        self.nodes = [self._node(number, self._java) for number in range(1, NODES + 1)]
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)
        self.box = Toolbox(work.toolchain, self.bootstrap, "migration", work.directory)

    def _node(self, number: int, java: list[str]) -> Node:
        extra = ("default.replication.factor=3", "min.insync.replicas=2", "num.partitions=6")
        return Node("migration", number, self._directory, self._pairs, java, dynamic=True, extra=extra)

    def format(self) -> None:
        """As Apache Kafka formats it by itself: with its own levels of the features."""
        for node in self.nodes:
            node.format()

    def start(self) -> None:
        """All at once: one alone waits for the others before it serves."""
        starts = [threading.Thread(target=node.start) for node in self.nodes]
        for each in starts:
            each.start()
        for each in starts:
            each.join()

    def close(self) -> None:
        for node in self.nodes:
            try:
                node.stop(30)
            except Failed:
                continue  # The last node of Apache Kafka waits for a controller that is gone.

    def run(self, words: Sequence[str]) -> str:
        """Run a tool of Apache Kafka as the page names it."""
        tool, option, address, *rest = words
        assert tool.endswith(".sh") and (option, address) == ("--bootstrap-server", "HOST:9092"), words
        return self.box.run(tool.removesuffix(".sh"), *rest)

    def feature_levels(self) -> dict[str, int]:
        """The finalized levels, as the page's command describes them."""
        said = self.run(command_with("kafka-features.sh"))
        return {name: int(level) for name, level in re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\d+)", said)}

    def await_in_sync(self) -> None:
        """Until the page's command prints no under-replicated partition."""
        deadline = time.monotonic() + PATIENCE_S
        while said := self._under_replicated():
            if time.monotonic() > deadline:
                raise Failed(f"partitions stay under-replicated: {said}")
            time.sleep(0.5)

    def _under_replicated(self) -> str:
        return self.run(command_with("--under-replicated-partitions")).strip()

    def controller_last(self) -> list[Node]:
        """The nodes, the active controller the last one."""
        said = self.box.run("kafka-metadata-quorum", "describe", "--status")
        found = re.search(r"LeaderId:\s+(\d+)", said)
        assert found is not None, said
        return sorted(self.nodes, key=lambda node: node.id == int(found[1]))

    def to_moldau(self, node: Node) -> None:
        """Stop Apache Kafka by SIGTERM, and start Moldau by the page's command on the same file."""
        node.stop()
        http = f"http://127.0.0.1:{self._http_ports[node.id - 1]}"
        program, *words = command_with("moldau serve server.properties")
        assert program == "moldau"
        given = {"server.properties": str(node.properties)}
        words = [given.get(word, word.replace("http://127.0.0.1:9464", http)) for word in words]
        taken = Taken("moldau", node.id, self._directory, self._pairs, [], dynamic=True)
        taken.properties.write_text(node.properties.read_text())
        taken.words = [*MOLDAU, *words]
        self._start(taken)
        probe = command_with("/readyz")[-1].replace("http://127.0.0.1:9464", http)
        _await_ready(probe)

    def to_apache(self, node: Node, *, kills: bool) -> None:
        """Stop Moldau, and start Apache Kafka on the same file."""
        if kills:
            node.kill()
        else:
            node.stop()
        text = node.properties.read_text()
        back = self._node(node.id, self._java)
        back.properties.write_text(text)
        self._start(back)

    def _start(self, node: Node) -> None:
        self.nodes[node.id - 1] = node
        node.start()


class Taken(Node):
    """A node of Moldau that is started by the words of the page."""

    words: list[str]

    def serve_command(self) -> list[str]:
        return self.words


def _await_ready(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise Failed(f"{url} is not ready") from None
        time.sleep(0.2)


class Sender:
    """A producer that sends numbered records without an end, and knows which of them were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.longest_silence_s = 0.0
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"})
        self._ends = threading.Event()
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        number = 0
        while not self._ends.is_set():
            try:
                self._producer.produce(TOPIC, str(number).encode(), on_delivery=self._note)
                number += 1
            except BufferError:
                pass
            self._producer.poll(PAUSE_S)
        self._producer.flush(PATIENCE_S)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        now = time.monotonic()
        self.longest_silence_s, self._last = max(self.longest_silence_s, now - self._last), now
        if error is None:
            self.acknowledged.append(int(message.value() or b""))

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


class GroupReader:
    """Two members of a consumer group (KIP-848) that read the topic all the time."""

    def __init__(self, bootstrap: str) -> None:
        self._read: set[int] = set()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._follow, args=(bootstrap,)) for _ in range(2)]
        for each in self._threads:
            each.start()

    def _follow(self, bootstrap: str) -> None:
        settings = {"group.id": READERS, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
        consumer.subscribe([TOPIC])
        with closing(consumer):
            while not self._ends.is_set():
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    self._read.add(int(message.value() or b""))

    def await_all(self, numbers: Sequence[int]) -> None:
        """Until the group has read all of these records."""
        deadline = time.monotonic() + PATIENCE_S
        while missing := set(numbers) - self._read:
            if time.monotonic() > deadline:
                raise Failed(f"the consumer group has not read {len(missing)} records: {sorted(missing)[:10]}")
            time.sleep(0.5)

    def close(self) -> None:
        self._ends.set()
        for each in self._threads:
            each.join()


def read_all(bootstrap: str) -> Counter[int]:
    """How often each number is in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: Counter[int] = Counter()
    with closing(consumer):
        for partition in range(PARTITIONS):
            place = TopicPartition(TOPIC, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([place])
            position = 0
            while position < end:
                message = consumer.poll(30)
                if message is None or message.error() is not None:
                    raise Failed(f"partition {partition} cannot be read at {position} of {end}: {message}")
                found[int(message.value() or b"")] += 1
                position = (message.offset() or 0) + 1
    return found


def groups_of(cluster: Cluster) -> dict[str, list[str]]:
    """What the tools say of each group: its kind and protocol, its state, its members, without its coordinator."""
    listed = [line.split() for line in cluster.box.run("kafka-groups", "--list").splitlines()]
    found = {words[0]: words[1:] for words in listed if words and words[0] in GROUPS}
    for group, tool in GROUPS.items():
        lines = cluster.box.run(tool, "--describe", "--group", group, "--state").splitlines()
        words = next((line.split() for line in lines if line.startswith(group)), [])
        found.setdefault(group, []).extend(word for word in words[1:] if ":" not in word and "(" not in word)
    return found


def share_lag(cluster: Cluster) -> int:
    """The number of records that the share group has not acknowledged."""
    said = cluster.box.run(GROUPS[SHARERS], "--describe", "--group", SHARERS, "--offsets")
    lags = [line.split()[-1] for line in said.splitlines() if line.startswith(SHARERS)]
    if len(lags) != PARTITIONS or not all(lag.isdigit() for lag in lags):
        raise Failed(f"the lag of the share group is not known: {said}")
    return sum(map(int, lags))


def await_described(cluster: Cluster, wanted: Mapping[str, list[str]]) -> None:
    """Until the groups are described as they were. A member that lost its connection comes back by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := groups_of(cluster)) != wanted:
        if time.monotonic() > deadline:
            raise Failed(f"the groups were {wanted}, and are {found}")
        time.sleep(1)


def settled_groups(cluster: Cluster) -> dict[str, list[str]]:
    """The description of the groups once all of them are stable."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = groups_of(cluster)
        if all("Stable" in words and words[-1] == "2" for words in found.values()):
            return found
        if time.monotonic() > deadline:
            raise Failed(f"the groups are not stable: {found}")
        time.sleep(1)


def migrated_and_back(work: Workshop) -> None:
    """Every command of the page in its order; the way back has one kill -9."""
    cluster = Cluster(work)
    shop = MovingShop(cluster, work.toolchain, work.directory)
    with shop.running(), ExitStack() as stack:
        cluster.box.run("kafka-topics", "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS))
        sharing = ("--entity-type", "groups", "--entity-name", SHARERS)
        cluster.box.run("kafka-configs", "--alter", *sharing, "--add-config", "share.auto.offset.reset=earliest")
        levels = cluster.feature_levels()
        expect(all(levels.get(name) == 1 for name in NEW_GROUPS), f"the new groups are on: {levels}")
        sender = stack.enter_context(closing(Sender(cluster.bootstrap)))
        reader = stack.enter_context(closing(GroupReader(cluster.bootstrap)))
        sharers = stack.enter_context(closing(ShareReaders(cluster.bootstrap, SHARERS, TOPIC)))
        stack.enter_context(closing(shop))
        shop.begin()
        groups = settled_groups(cluster)
        time.sleep(BEFORE_S)
        for node in cluster.controller_last():
            cluster.await_in_sync()
            cluster.to_moldau(node)
            await_described(cluster, groups)
        cluster.await_in_sync()
        expect(cluster.feature_levels() == levels, "no feature has changed")
        there = len(sender.acknowledged)
        time.sleep(BEFORE_S)
        for node in cluster.controller_last():
            cluster.await_in_sync()
            cluster.to_apache(node, kills=node.id == 1)
            await_described(cluster, groups)
        cluster.await_in_sync()
        expect(cluster.feature_levels() == levels, "no feature has changed on the way back")
        time.sleep(BEFORE_S)
        sender.close()
        reader.await_all(sender.acknowledged)
        sharers.await_all(sender.acknowledged, lambda: share_lag(cluster))
        expect(not sharers.again, f"delivered again after their acknowledgement: {sharers.again[:10]}")
        figures = shop.conclude()
        found = read_all(cluster.bootstrap)
        acknowledged = sender.acknowledged
        silence = f"longest silence {sender.longest_silence_s:.1f} s"
        shared = f"{sharers.deliveries:,} delivered to the share group, {sharers.acknowledged:,} acknowledged"
        shared += f", {len(sharers.errors)} polls raised {sharers.errors[:1]}" if sharers.errors else ""
        processed = f"{shop.rounds} rounds of the shop, {sum(figures.records.values()):,} records of its outputs"
        print(f"  {len(acknowledged):,} acknowledged, {silence}; {shared}; {processed}; {groups}", flush=True)
        expect(0 < there < len(acknowledged), "records were acknowledged there and on the way back")
        lost = [number for number in acknowledged if not found[number]]
        expect(not lost, f"acknowledged and lost: {lost[:10]}, {len(lost)} in all")
        twice = [number for number, times in found.items() if times > 1]
        expect(not twice, f"in the topic twice: {twice[:10]}, {len(twice)} in all")


MIGRATION_SCENARIOS: Final = (
    DirectoryScenario(
        "migration-in-place",
        "the commands of docs/migration.md: three nodes of Apache Kafka are taken over under a producer, and back",
        migrated_and_back,
    ),
)
