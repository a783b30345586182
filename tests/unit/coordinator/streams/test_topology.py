"""Topologies: equal by value, and gone through in the order of Apache Kafka."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.coordinator.streams.topology import Subtopology, Topology, hash_map_order, topology_of


def fields(subtopology_id: str, *sources: str) -> SimpleNamespace:
    changelog = SimpleNamespace(
        name=f"app-store{subtopology_id}-changelog",
        partitions=0,
        replication_factor=1,
        topic_configs=[SimpleNamespace(key="cleanup.policy", value="compact")],
    )
    return SimpleNamespace(
        subtopology_id=subtopology_id,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=[changelog],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )


def topology(epoch: int, *subtopologies: SimpleNamespace) -> Topology:
    found = topology_of(epoch, subtopologies)
    assert found is not None
    return found


def test_topologies_are_equal_if_all_their_fields_are() -> None:
    one = topology(1, fields("0", "a"), fields("1", "b"))
    assert one == topology(1, fields("1", "b"), fields("0", "a"))
    assert one != topology(2, fields("0", "a"), fields("1", "b"))
    assert one != topology(1, fields("0", "a"), fields("1", "c"))


def test_two_subtopologies_with_one_id_are_no_topology() -> None:
    assert topology_of(1, [fields("0", "a"), fields("0", "b")]) is None


def test_required_are_inputs_and_changelogs() -> None:
    one = topology(1, fields("0", "a"), fields("1", "b", "c"))
    assert one.required_topics == {"a", "b", "c", "app-store0-changelog", "app-store1-changelog"}
    assert one.subtopology_of_input == {"a": "0", "b": "1", "c": "1"}


def test_an_id_has_the_place_that_javas_hash_table_gives_it() -> None:
    """What the key set of a HashMap of a Java virtual machine printed for keys that were put in this order."""
    assert hash_map_order(["10", "11", "9", "2", "0"]) == ["11", "0", "2", "9", "10"]
    assert hash_map_order(["0", "11"]) == ["0", "11"]
    names = ["KSTREAM-MAP-0000000001", "Straße", "日本", "\U0001f600", "Subtopology-1", "Subtopology-2", "a", "b"]
    expected = ["a", "b", "\U0001f600", "Subtopology-1", "日本", "Straße", "KSTREAM-MAP-0000000001", "Subtopology-2"]
    assert hash_map_order(names) == expected


def test_the_table_grows_beyond_three_quarters() -> None:
    keys = [str(number) for number in range(13)]
    assert hash_map_order(keys[:12]) == ["0", "11", *map(str, range(1, 11))]
    assert hash_map_order(keys) == ["11", "12", *map(str, range(11))]


def test_an_empty_subtopology_has_no_inputs() -> None:
    assert Subtopology("0", (), (), (), (), (), ()).inputs == []
