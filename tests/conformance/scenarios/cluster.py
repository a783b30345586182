"""Scenarios of Kafka's tools on three nodes: partitions move, leaders are elected, a node is forgotten."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.conformance.outcome import Failed
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.scenarios.tools import columns, without
from tests.conformance.session import expect
from tests.conformance.toolbox import Toolbox
from tests.conformance.trio import Node, trio

PORT = r"127\.0\.0\.1[: ]\d+"
PATIENCE_S = 60.0


def on(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        with trio(side, work.toolchain, work.ports, work.directory) as nodes:
            bootstrap = ",".join(node.bootstrap for node in nodes[:2])
            box = Toolbox(work.toolchain, bootstrap, "cluster-tools", work.directory, node_count=len(nodes))
            until(box, "three brokers serve", lambda: len(endpoints(box)) == len(nodes))
            for part in (quorum, features, elections, reassignments, shell, unregistration):
                part(box, nodes)
            work.facts.update(box.facts)

    return story


def until(box: Toolbox, what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.5)


def endpoints(box: Toolbox) -> list[list[str]]:
    return columns(box.run("kafka-cluster", "list-endpoints"), "ID", "STATE", "ENDPOINT_TYPE")


def quorum(box: Toolbox, nodes: Sequence[Node]) -> None:
    status = box.run("kafka-metadata-quorum", "describe", "--status")
    changing = (r"(LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):\s+\S+", r":\d{5}")
    box.observe("quorum", without(status, *changing))
    rows = columns(box.run("kafka-metadata-quorum", "describe", "--replication"), "NodeId", "Status")
    expect([row[0] for row in rows] == ["1", "2", "3"], f"three replicas of the metadata: {rows}")
    box.observe("replicas of the metadata", sorted(row[1] for row in rows))
    box.observe("cluster id", box.run("kafka-cluster", "cluster-id").strip())
    box.observe("endpoints", endpoints(box))


def features(box: Toolbox, nodes: Sequence[Node]) -> None:
    name = "eligible.leader.replicas.version"
    box.observe("downgrade", box.run("kafka-features", "downgrade", "--feature", f"{name}=0").strip())
    box.observe("upgrade", box.run("kafka-features", "upgrade", "--feature", f"{name}=1").strip())
    rows = re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", box.run("kafka-features", "describe"))
    box.observe("finalized", dict(rows).get(name))
    box.run("kafka-features", "downgrade", "--metadata", "3.3-IV3", status=1)


def elections(box: Toolbox, nodes: Sequence[Node]) -> None:
    topic = box.name("led")
    box.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1:2:3,2:3:1")
    until(box, "all replicas are in sync", lambda: in_sync(box, topic) == [["0", "3"], ["1", "3"]])
    assign(box, topic, "order", [[2, 1, 3], [2, 3, 1]], "--execute")
    words = ("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    box.observe("elected", box.run(*words).strip())
    box.observe("not needed", box.run(*words).strip())
    until(box, "the preferred replica leads", lambda: leaders(box, topic) == [["0", "2"], ["1", "2"]])


def described(box: Toolbox, topic: str, *names: str) -> list[list[str]]:
    text = box.run("kafka-topics", "--describe", "--topic", topic)
    rows = [line for line in text.splitlines() if "Partition: " in line]
    return [[match[1] if (match := re.search(rf"{name}: (\S+)", row)) else "" for name in names] for row in rows]


def leaders(box: Toolbox, topic: str) -> list[list[str]]:
    return described(box, topic, "Partition", "Leader")


def in_sync(box: Toolbox, topic: str) -> list[list[str]]:
    return [[index, str(len(isr.split(",")))] for index, isr in described(box, topic, "Partition", "Isr")]


def assign(box: Toolbox, topic: str, name: str, replicas: Sequence[Sequence[int]], *words: str) -> str:
    """kafka-reassign-partitions with a plan of its own; what it says."""
    partitions = [{"topic": topic, "partition": index, "replicas": each} for index, each in enumerate(replicas)]
    file = Path(box.directory) / f"{name}.json"
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return box.run("kafka-reassign-partitions", "--reassignment-json-file", str(file), *words)


def reassignments(box: Toolbox, nodes: Sequence[Node]) -> None:
    topic = box.name("moved")
    box.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1:2,2:1")
    box.send_lines(topic, *[f"line {index}" for index in range(100)])
    chosen = box.directory / "topics.json"
    chosen.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    words = ("--topics-to-move-json-file", str(chosen), "--broker-list", "1,2,3", "--generate")
    proposed = box.run("kafka-reassign-partitions", *words).splitlines()[-1]
    expect(len(json.loads(proposed)["partitions"]) == 2, f"a plan for two partitions: {proposed}")
    target = [[3, 1], [2, 3]]
    output = assign(box, topic, "plan", target, "--execute", "--throttle", "50000000")
    box.observe("execute", without(output, r"\{.*\}"))

    def is_done() -> bool:
        return assign(box, topic, "plan", target, "--verify", "--preserve-throttles").count("is completed") == 2

    until(box, "both partitions have moved", is_done)
    box.observe("verify", without(assign(box, topic, "plan", target, "--verify")))
    box.observe("replicas", described(box, topic, "Partition", "Replicas"))
    box.observe("none under way", box.run("kafka-reassign-partitions", "--list").strip())
    read = box.read_lines(topic, 100, "--from-beginning")
    expect(len(read) == 100, f"all records are where they were: {len(read)}")
    box.run("kafka-topics", "--delete", "--topic", topic)


def shell(box: Toolbox, nodes: Sequence[Node]) -> None:
    """The tool says what it has read until then: it is asked again until it has read a snapshot with the topic."""
    topic = box.name("shown")
    box.run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    words = ("/image", "/image/topics/byName", "/image/cluster")
    listed: list[list[str]] = []

    def has_topic() -> bool:
        newest = max((nodes[0].data / "__cluster_metadata-0").glob("*.checkpoint"), key=lambda path: path.name)
        copy = box.directory / newest.name  # the tool locks the log directory that a snapshot lies in
        copy.write_bytes(newest.read_bytes())
        said = box.run_offline("kafka-metadata-shell", "--snapshot", str(copy), "ls", *words)
        listed[:] = [sorted(part.split()[1:]) for part in said.split("\n\n")]  # without the name of the directory
        return len(listed) == len(words) and topic in listed[1]

    until(box, "a snapshot with the topic", has_topic)
    for word, names in zip(words, listed, strict=True):
        box.observe(f"ls {word}", names)


def unregistration(box: Toolbox, nodes: Sequence[Node]) -> None:
    """A node dies, what it had is led by others, and it is forgotten."""
    topic = box.name("stuck")
    box.run("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1:2")
    nodes[2].stop()
    until(box, "the third node is gone", lambda: [row[1] for row in endpoints(box)].count("unfenced") == 2)
    assign(box, topic, "away", [[2]], "--execute")
    until(box, "a replica is gone", lambda: described(box, topic, "Replicas") == [["2"]])
    box.observe("unregister", without(box.run("kafka-cluster", "unregister", "--id", "3")))
    box.run("kafka-cluster", "unregister", "--id", "3", status=1)
    box.observe("endpoints after", endpoints(box))


DEMANDS = "kafka-metadata-quorum, -features, -leader-election, -reassign-partitions, -metadata-shell, -cluster on three"
CLUSTER_SCENARIOS = tuple(DirectoryScenario("cluster-tools", DEMANDS, on(side), side) for side in ("moldau", "apache"))
