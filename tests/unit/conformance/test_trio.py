"""Three nodes of the matrix: how each is told of its quorum."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.trio import Node

PORTS = [9001, 9003, 9005, 9007]


def test_voters_of_a_static_quorum_stand_in_the_properties(tmp_path: Path) -> None:
    node = Node("moldau", 2, tmp_path, PORTS[:3], [])
    said = node.properties.read_text()
    assert "controller.quorum.voters=1@127.0.0.1:9002,2@127.0.0.1:9004,3@127.0.0.1:9006\n" in said
    assert "node.id=2\n" in said and said.count("node.id=") == 1
    assert "--initial-controllers" not in node.format_command()


def test_voters_of_a_dynamic_quorum_are_formatted_and_a_later_node_is_none(tmp_path: Path) -> None:
    first, fourth = (Node("moldau", node_id, tmp_path, PORTS, [], dynamic=True) for node_id in (1, 4))
    assert "controller.quorum.voters" not in first.properties.read_text()
    words = first.format_command()
    voters = words[words.index("--initial-controllers") + 1].split(",")
    assert [voter.rpartition(":")[0] for voter in voters] == [
        "1@127.0.0.1:9002",
        "2@127.0.0.1:9004",
        "3@127.0.0.1:9006",
    ]
    assert len({voter.rpartition(":")[2] for voter in voters}) == 3
    assert "--no-initial-controllers" in fourth.format_command()


def test_a_property_of_every_node_replaces_one_of_the_same_name(tmp_path: Path) -> None:
    node = Node(
        "moldau", 1, tmp_path, PORTS[:3], [], extra=("transaction.state.log.min.isr=2", "min.insync.replicas=2")
    )
    said = node.properties.read_text().splitlines()
    assert [line for line in said if "min.i" in line and "share" not in line] == [
        "transaction.state.log.min.isr=2",
        "min.insync.replicas=2",
    ]
