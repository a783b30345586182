"""The scenarios of docs/migration.md: a cluster of Apache Kafka taken over in place, node by node, and back again.

The commands are those of the page: what it says is what is run. All the time a producer sends, a classic group and a
consumer group read, a share group accepts, and a Streams application computes. With each node a member of the share
group is killed.
"""

from __future__ import annotations

import re
import shlex
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final

from tests.conformance.brokers import MOLDAU
from tests.conformance.moving_load import (
    READERS,
    SHARER_KINDS,
    GroupReader,
    MovingShop,
    Sender,
    Sharers,
    committed_offsets,
    times_stored,
)
from tests.conformance.outcome import Failed, Unavailable
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import expect
from tests.conformance.toolbox import Toolbox
from tests.conformance.toolchain import Missing
from tests.conformance.trio import NODES, Node, java_of, pairs_of

PAGE: Final = Path(__file__).parents[3] / "docs" / "migration.md"
TOPIC: Final = "moved"
PARTITIONS: Final = 6
PATIENCE_S: Final = 300
CLASSIC: Final = "classic-readers"
CONSUMER: Final = "readers"
SHARE: Final = "sharers"
STREAMS: Final = "shop"
TOOLS: Final = {
    CLASSIC: "kafka-consumer-groups",
    CONSUMER: "kafka-consumer-groups",
    SHARE: "kafka-share-groups",
    STREAMS: "kafka-streams-groups",
}
"""The groups, each with the tool that describes it."""
DESCRIBED: Final = {
    CLASSIC: ["Classic", "consumer", "range", "Stable", str(READERS)],
    CONSUMER: ["Consumer", "consumer", "uniform", "Stable", str(READERS)],
    SHARE: ["Share", "share", "Stable", str(len(SHARER_KINDS))],
    STREAMS: ["Streams", "streams", "Stable", "2"],
}
"""What the tools say of each group: its kind and protocol, the assignor if there is one, its state, its members."""
NEW_GROUPS: Final = ("group.version", "share.version", "streams.version")
BEFORE_S: Final = 2
"""How long the producer sends before the first step."""
SETTINGS: Final = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "num.partitions=6",
    "group.share.min.session.timeout.ms=20000",
    "group.share.session.timeout.ms=20000",
)
"""A member of the share group that was killed is missed after 20 s."""


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
        return Node("migration", number, self._directory, self._pairs, java, dynamic=True, extra=SETTINGS)

    def format(self) -> None:
        """As Apache Kafka formats it by itself: with its own levels of the features."""
        for node in self.nodes:
            node.format()

    def start(self) -> None:
        """All at once: one alone waits for the others before it serves."""
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(Node.start, self.nodes))

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
        return self.ask(tool.removesuffix(".sh"), *rest)

    def ask(self, tool: str, *words: str) -> str:
        """What a tool describes. On a busy machine it may give up before it has an answer: it is asked again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.box.run(tool, *words)
            except Failed:
                if time.monotonic() > deadline:
                    raise

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
        said = self.ask("kafka-metadata-quorum", "describe", "--status")
        found = re.search(r"LeaderId:\s+(\d+)", said)
        assert found is not None, said
        return sorted(self.nodes, key=lambda node: node.id == int(found[1]))

    def to_moldau(self, node: Node) -> None:
        """Start Moldau by the page's command on the file of a node that has stopped."""
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

    def to_apache(self, node: Node) -> None:
        """Start Apache Kafka on the file of a node that has stopped."""
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


class Groups:
    """What must stay of the groups: how the tools describe them, and that no committed offset goes back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._committed = {group: [-1] * PARTITIONS for group in (CLASSIC, CONSUMER)}

    def await_whole(self) -> None:
        """Until they are described as ever. A member that lost its connection comes back by itself, and one that was
        killed is missed when its session ends. Raises `Failed`.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := groups_of(self._cluster)) != DESCRIBED:
            if time.monotonic() > deadline:
                raise Failed(f"the groups are {found}, and should be {DESCRIBED}")
            time.sleep(1)
        for group, before in self._committed.items():
            now = committed_offsets(self._cluster.bootstrap, group, TOPIC, PARTITIONS)
            back = [place for place in zip(before, now, strict=True) if place[1] < place[0]]
            expect(not back, f"committed offsets of {group} went from {before} to {now}")
            self._committed[group] = now


def groups_of(cluster: Cluster) -> dict[str, list[str]]:
    """What the tools say of each group, without its coordinator."""
    listed = [line.split() for line in cluster.ask("kafka-groups", "--list").splitlines()]
    found = {words[0]: words[1:] for words in listed if words and words[0] in TOOLS}
    for group, tool in TOOLS.items():
        lines = cluster.ask(tool, "--describe", "--group", group, "--state").splitlines()
        words = next((line.split() for line in lines if line.startswith(group)), [])
        found.setdefault(group, []).extend(word for word in words[1:] if ":" not in word and "(" not in word)
    return found


def share_lag(cluster: Cluster) -> int:
    """The number of records that the share group has not acknowledged."""
    said = cluster.ask(TOOLS[SHARE], "--describe", "--group", SHARE, "--offsets")
    lags = [line.split()[-1] for line in said.splitlines() if line.startswith(SHARE)]
    if len(lags) != PARTITIONS or not all(lag.isdigit() for lag in lags):
        raise Failed(f"the lag of the share group is not known: {said}")
    return sum(map(int, lags))


class Load:
    """The clients of all kinds, from the first step to the last."""

    def __init__(self, work: Workshop, cluster: Cluster, shop: MovingShop, stack: ExitStack) -> None:
        bootstrap = cluster.bootstrap
        self.sender = stack.enter_context(closing(Sender(bootstrap, TOPIC)))
        self.readers = [
            stack.enter_context(closing(GroupReader(bootstrap, group, protocol, TOPIC)))
            for group, protocol in ((CLASSIC, "classic"), (CONSUMER, "consumer"))
        ]
        self.sharers = stack.enter_context(closing(Sharers(work.toolchain, bootstrap, SHARE, TOPIC, work.directory)))
        stack.enter_context(closing(shop))
        self.shop = shop
        shop.begin()

    def conclude(self, cluster: Cluster) -> str:
        """Nothing was lost, nothing is there twice, and nothing came again after its acknowledgement. Raises `Failed`.
        The figures, as text.
        """
        self.sender.close()
        acknowledged = self.sender.acknowledged
        for reader in self.readers:
            reader.await_all(acknowledged)
        self.sharers.await_all(acknowledged, lambda: share_lag(cluster))
        shared = self.sharers.check()
        figures = self.shop.conclude()
        found = times_stored(cluster.bootstrap, TOPIC, PARTITIONS)
        lost = [number for number in acknowledged if not found[number]]
        expect(not lost, f"acknowledged and lost: {lost[:10]}, {len(lost)} in all")
        twice = [number for number, times in found.items() if times > 1]
        expect(not twice, f"in the topic twice: {twice[:10]}, {len(twice)} in all")
        silence = f"longest silence {self.sender.longest_silence_s:.1f} s"
        processed = f"{self.shop.rounds} rounds of the shop, {sum(figures.records.values()):,} records of its outputs"
        return f"{len(acknowledged):,} acknowledged, {silence}; {shared}; {processed}"


def migrated_and_back(work: Workshop, *, kills: bool) -> None:
    """Every command of the page in its order. With `kills` each node ends by kill -9, not by SIGTERM."""
    cluster = Cluster(work)
    shop = MovingShop(cluster, work.toolchain, work.directory)
    with shop.running(), ExitStack() as stack:
        cluster.box.run("kafka-topics", "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS))
        sharing = ("--entity-type", "groups", "--entity-name", SHARE)
        cluster.box.run("kafka-configs", "--alter", *sharing, "--add-config", "share.auto.offset.reset=earliest")
        levels = cluster.feature_levels()
        expect(all(levels.get(name) == 1 for name in NEW_GROUPS), f"the new groups are on: {levels}")
        try:
            load = Load(work, cluster, shop, stack)
        except Missing as missing:
            raise Unavailable(str(missing)) from None
        groups = Groups(cluster)
        groups.await_whole()
        for replace in (cluster.to_moldau, cluster.to_apache):
            begun = len(load.sender.acknowledged)
            time.sleep(BEFORE_S)
            for node, kind in zip(cluster.controller_last(), SHARER_KINDS, strict=True):
                cluster.await_in_sync()
                load.sharers.kill(kind)
                end = node.kill if kills else node.stop
                end()
                replace(node)
                load.sharers.join(kind)
                groups.await_whole()
            cluster.await_in_sync()
            expect(cluster.feature_levels() == levels, "no feature has changed")
            time.sleep(BEFORE_S)
            expect(begun < len(load.sender.acknowledged), "records were acknowledged meanwhile")
        print(f"  {load.conclude(cluster)}", flush=True)


MIGRATION_SCENARIOS: Final = (
    DirectoryScenario(
        "migration-in-place",
        "docs/migration.md: a live cluster of Apache Kafka with groups of all kinds is taken over, and given back",
        partial(migrated_and_back, kills=False),
    ),
    DirectoryScenario(
        "migration-in-place-kills",
        "the same, and each node ends by kill -9",
        partial(migrated_and_back, kills=True),
    ),
)
