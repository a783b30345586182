"""Topologies against the topics of a cluster: sizes, what is missing, what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.coordinator.group.membership import Refusal
from moldau.coordinator.streams.configured_topology import (
    INVALID_TOPOLOGY,
    ConfiguredTopology,
    GroupStatus,
    StatusCode,
    configure_topology,
)
from moldau.coordinator.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
    hash_map_order,
)
from moldau.protocol.errors import ErrorCode


def topic(name: str, partitions: int = 0, replicas: int = 0, *configs: tuple[str, str]) -> InternalTopic:
    return InternalTopic(name, partitions, replicas, configs)


def subtopology(subtopology_id: str, **fields: Any) -> Subtopology:
    assert fields.keys() <= set(Subtopology._fields)
    return Subtopology(subtopology_id, *(tuple(fields.get(name, ())) for name in Subtopology._fields[1:]))


def configured(existing: dict[str, int], *subtopologies: Subtopology) -> ConfiguredTopology | Refusal:
    by_id = {each.subtopology_id: each for each in subtopologies}
    return configure_topology(Topology(3, {key: by_id[key] for key in hash_map_order(list(by_id))}), existing.get, 77)


def ready(existing: dict[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    found = configured(existing, *subtopologies)
    assert isinstance(found, ConfiguredTopology)
    return found


def problem(existing: dict[str, int], *subtopologies: Subtopology) -> GroupStatus | None:
    return ready(existing, *subtopologies).problem


COUNT = subtopology("0", source_topics=["in"], state_changelog_topics=[topic("app-count-changelog", replicas=2)])
SPLIT = (
    subtopology("0", source_topics=["in"], repartition_sink_topics=["app-by-key"]),
    subtopology(
        "1",
        repartition_source_topics=[topic("app-by-key", 0, 0, ("retention.ms", "-1"))],
        state_changelog_topics=[topic("app-count-changelog")],
    ),
)


def test_a_subtopology_has_as_many_tasks_as_its_largest_input_has_partitions() -> None:
    found = ready({"in": 6, "other": 4}, subtopology("0", source_topics=["in", "other"]))
    assert found.is_ready and found.epoch == 3 and found.metadata_hash == 77
    assert found.subtopologies is not None
    assert found.subtopologies["0"].tasks_count == 6
    assert not found.subtopologies["0"].is_stateful


def test_a_changelog_has_a_partition_for_each_task_and_the_replicas_of_the_request() -> None:
    found = ready({"in": 6}, COUNT)
    assert found.problem == GroupStatus(
        StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: app-count-changelog"
    )
    changelog = found.topics_to_create["app-count-changelog"]
    assert (changelog.partitions, changelog.replication_factor) == (6, 2)


def test_a_repartition_topic_is_as_large_as_the_largest_input_of_its_writer() -> None:
    found = ready({"in": 5}, *SPLIT)
    assert {name: each.partitions for name, each in found.topics_to_create.items()} == {
        "app-by-key": 5,
        "app-count-changelog": 5,
    }
    assert found.topics_to_create["app-by-key"].configs == (("retention.ms", "-1"),)


def test_with_all_topics_the_topology_is_ready() -> None:
    found = ready({"in": 5, "app-by-key": 5, "app-count-changelog": 5}, *SPLIT)
    assert found.is_ready and not found.topics_to_create


def test_missing_source_topics_are_named_three_at_most() -> None:
    sources = subtopology("0", source_topics=["d", "b", "a", "c", "e"])
    assert problem({"b": 1}, sources) == GroupStatus(
        StatusCode.MISSING_SOURCE_TOPICS, "Source topics a, c, d and 1 additional topics are missing."
    )
    assert ready({"b": 1}, sources).subtopologies is None


def test_an_internal_topic_of_another_size_is_a_problem() -> None:
    assert problem({"in": 5, "app-by-key": 4}, *SPLIT) == GroupStatus(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic app-by-key has different number of partitions: expected 5, found 4",
    )


def test_joined_sources_must_be_of_one_size() -> None:
    join = subtopology("0", source_topics=["left", "right"], copartition_groups=[CopartitionGroup((0, 1), (), ())])
    assert problem({"left": 2, "right": 2}, join) is None
    assert problem({"left": 2, "right": 3}, join) == GroupStatus(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{left=2, right=3}]",
    )


def joined(partitions: int) -> tuple[Subtopology, ...]:
    """A source topic that is joined with the repartitioning of another."""
    return (
        subtopology("0", source_topics=["wide"], repartition_sink_topics=["app-r"]),
        subtopology(
            "1",
            source_topics=["left"],
            repartition_source_topics=[topic("app-r", partitions)],
            copartition_groups=[CopartitionGroup((0,), (), (0,))],
        ),
    )


def test_a_repartition_topic_takes_the_size_of_the_source_with_which_it_is_joined() -> None:
    assert ready({"wide": 8, "left": 3}, *joined(0)).topics_to_create["app-r"].partitions == 3


def test_a_fixed_repartition_topic_must_have_the_size_of_the_source() -> None:
    assert ready({"wide": 8, "left": 3}, *joined(3)).topics_to_create["app-r"].partitions == 3
    assert problem({"wide": 8, "left": 3}, *joined(4)) == GroupStatus(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [4] of repartition topic [app-r] "
        "doesn't match number of partitions [3] of the source topic.",
    )


def two_repartitions(first: int, second: int) -> tuple[Subtopology, ...]:
    return (
        subtopology("0", source_topics=["a"], repartition_sink_topics=["app-a"]),
        subtopology("1", source_topics=["b"], repartition_sink_topics=["app-b"]),
        subtopology(
            "2",
            repartition_source_topics=[topic("app-a", first), topic("app-b", second)],
            copartition_groups=[CopartitionGroup((), (), (0, 1))],
        ),
    )


@pytest.mark.parametrize(("first", "second", "size"), [(0, 0, 7), (4, 0, 4), (0, 2, 2), (6, 6, 6)])
def test_joined_repartition_topics_take_the_largest_size_or_the_fixed_one(first: int, second: int, size: int) -> None:
    topics = ready({"a": 7, "b": 5}, *two_repartitions(first, second)).topics_to_create
    assert {name: each.partitions for name, each in topics.items()} == {"app-a": size, "app-b": size}


def test_joined_repartition_topics_of_two_fixed_sizes_are_a_problem() -> None:
    assert problem({"a": 7, "b": 5}, *two_repartitions(4, 3)) == GroupStatus(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{app-a=4, app-b=3}]",
    )


def test_sizes_pass_through_chains_of_repartitionings_in_any_order() -> None:
    chain = (
        subtopology("0", repartition_source_topics=[topic("app-2")]),
        subtopology("1", repartition_source_topics=[topic("app-1")], repartition_sink_topics=["app-2"]),
        subtopology("2", source_topics=["in"], repartition_sink_topics=["app-1"]),
    )
    topics = ready({"in": 4}, *chain).topics_to_create
    assert {name: each.partitions for name, each in topics.items()} == {"app-1": 4, "app-2": 4}


def test_a_size_is_that_of_the_inputs_known_so_far_in_apache_kafkas_order() -> None:
    """Subtopology 11 comes before 0, which sizes `app-1`: for its sink only the source topic counts."""
    late = subtopology(
        "11",
        source_topics=["small"],
        repartition_source_topics=[topic("app-1")],
        repartition_sink_topics=["app-2"],
    )
    others = [subtopology(str(number), source_topics=["in"]) for number in range(1, 11)]
    last = subtopology("12", repartition_source_topics=[topic("app-2")])
    first = subtopology("0", source_topics=["in"], repartition_sink_topics=["app-1"])
    topics = ready({"in": 9, "small": 2}, first, *others, late, last).topics_to_create
    assert topics["app-1"].partitions == 9
    assert topics["app-2"].partitions == 2


NOT_A_TOPOLOGY = ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize(
    ("subtopologies", "refusal"),
    [
        (
            [subtopology("0", repartition_source_topics=[topic("app-1")], repartition_sink_topics=["app-1"])],
            Refusal(
                NOT_A_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved.",
            ),
        ),
        (
            [subtopology("0", source_topics=["in"], repartition_source_topics=[topic("app-1")])],
            Refusal(
                NOT_A_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics, because "
                "a repartition source topic is never used as a sink topic.",
            ),
        ),
        (
            [subtopology("0", state_changelog_topics=[topic("app-changelog")])],
            Refusal(NOT_A_TOPOLOGY, "No source topics found for subtopology 0"),
        ),
        (
            [subtopology("0", source_topics=["in"], copartition_groups=[CopartitionGroup((1,), (), ())])],
            INVALID_TOPOLOGY,
        ),
        (
            [subtopology("0", source_topics=["in"], copartition_groups=[CopartitionGroup((-1,), (), ())])],
            INVALID_TOPOLOGY,
        ),
        (
            [subtopology("0", source_topics=["in"], copartition_groups=[CopartitionGroup((), (), (0,))])],
            INVALID_TOPOLOGY,
        ),
        ([subtopology("0", source_topics=["in"], repartition_source_topics=[topic("app-1", -1)])], INVALID_TOPOLOGY),
        ([subtopology("0", source_topics=["in"], state_changelog_topics=[topic("c"), topic("c")])], INVALID_TOPOLOGY),
        (
            [
                subtopology(
                    "0",
                    source_topics=["in"],
                    state_changelog_topics=[InternalTopic("c", 0, 0, (("a", "1"), ("a", "2")))],
                )
            ],
            INVALID_TOPOLOGY,
        ),
    ],
)
def test_a_topology_without_sense_is_an_error_of_the_request(
    subtopologies: list[Subtopology], refusal: Refusal
) -> None:
    assert configured({"in": 2}, *subtopologies) == refusal


def test_an_empty_copartition_group_asks_for_nothing() -> None:
    assert (
        problem({"in": 2}, subtopology("0", source_topics=["in"], copartition_groups=[CopartitionGroup((), (), ())]))
        is None
    )
