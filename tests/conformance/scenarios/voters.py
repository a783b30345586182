"""Scenarios of a quorum whose voters change: kafka-metadata-quorum makes a fourth node one, and takes it out again."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.scenarios.cluster import until
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.scenarios.tools import columns, without
from tests.conformance.toolbox import Toolbox
from tests.conformance.trio import trio


def on(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        with trio(side, work.toolchain, work.ports, work.directory, dynamic=True) as (*three, fourth):
            bootstrap = ",".join(node.bootstrap for node in three)
            box = Toolbox(work.toolchain, bootstrap, "cluster-voters", work.directory, node_count=4)
            until(box, "three voters follow", lambda: len(replicas(box)) == 3)
            box.observe("first", replicas(box))
            box.observe("kraft.version", finalized(box))
            fourth.format()
            fourth.start()
            until(box, "a fourth node follows", lambda: ["4", "Observer"] in replicas(box))
            added = box.run("kafka-metadata-quorum", "--command-config", str(fourth.properties), "add-controller")
            box.observe("add", without(added, r"directory id \S+", r"127\.0\.0\.1:\d+"))
            until(box, "a fourth voter", lambda: ["4", "Follower"] in replicas(box))
            status = box.run("kafka-metadata-quorum", "describe", "--status")
            box.observe("status", without(status, *CHANGING))
            again = ("kafka-metadata-quorum", "--command-config", str(fourth.properties), "add-controller")
            box.run(*again, status=1)
            ids = dict(columns(box.run("kafka-metadata-quorum", "describe", "--replication"), "NodeId", "DirectoryId"))
            words = ("remove-controller", "--controller-id", "4", "--controller-directory-id", ids["4"])
            box.observe("remove", without(box.run("kafka-metadata-quorum", *words), r"directory id \S+"))
            until(box, "three voters again", lambda: ["4", "Observer"] in replicas(box))
            box.run("kafka-metadata-quorum", *words, status=1)
            box.observe("last", replicas(box))
            work.facts.update(box.facts)

    return story


CHANGING = (
    r"(LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):\s+\S+",
    r":\d{5}",
    r'"directoryId": "\S+"',
)


def replicas(box: Toolbox) -> list[list[str]]:
    """Node and role; who of the voters leads is chance."""
    rows = columns(box.run("kafka-metadata-quorum", "describe", "--replication"), "NodeId", "Status")
    return [[node, "Follower" if status == "Leader" else status] for node, status in rows]


def finalized(box: Toolbox) -> list[str]:
    return [line for line in without(box.run("kafka-features", "describe"), r"Epoch: \d+") if "kraft.version" in line]


DEMANDS = "kafka-metadata-quorum adds a fourth voter to three, describes and removes it"
VOTER_SCENARIOS = tuple(DirectoryScenario("cluster-voters", DEMANDS, on(side), side) for side in ("moldau", "apache"))
