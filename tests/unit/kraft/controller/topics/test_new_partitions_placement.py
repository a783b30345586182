"""The brokers of new replicas."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from moldau.kraft.controller.topics.new_partitions import place_replicas
from moldau.kraft.image.cluster import Broker


def brokers(count: int, racks: int = 0, fenced: tuple[int, ...] = ()) -> list[Broker]:
    return [
        Broker(
            id=number,
            epoch=0,
            incarnation_id=bytes(16),
            endpoints={},
            features={},
            rack=f"r{number % racks}" if racks else None,
            fenced=number in fenced,
            in_controlled_shutdown=False,
            directories=(),
            cordoned_directories=None,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("count", "racks", "factor"), [(1, 0, 1), (3, 0, 3), (5, 0, 3), (6, 3, 3), (6, 2, 2), (7, 3, 3)]
)
def test_replicas_are_distinct_and_even(count: int, racks: int, factor: int, seed: int) -> None:
    placed = place_replicas(brokers(count, racks), 60 * count, factor, Random(seed))
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert len(leaders) == count


@pytest.mark.parametrize("seed", range(5))
def test_no_two_replicas_share_a_rack_where_there_are_racks_enough(seed: int) -> None:
    for replicas in place_replicas(brokers(9, racks=3), 50, 3, Random(seed)):
        assert len({broker_id % 3 for broker_id in replicas}) == 3


@pytest.mark.parametrize("seed", range(5))
def test_followers_are_mixed(seed: int) -> None:
    """The followers of one leader's partitions are not always the same brokers."""
    placed = place_replicas(brokers(6), 60, 2, Random(seed))
    pairs = Counter((replicas[0], replicas[1]) for replicas in placed)
    assert len(pairs) == 30 and set(pairs.values()) == {2}


def test_a_fenced_broker_comes_last() -> None:
    for replicas in place_replicas(brokers(4, fenced=(2,)), 20, 3, Random(1)):
        assert 2 not in replicas
    for replicas in place_replicas(brokers(3, fenced=(2,)), 20, 3, Random(1)):
        assert replicas[-1] == 2


def test_one_seed_one_placement() -> None:
    first, second = (place_replicas(brokers(7, racks=2), 9, 3, Random(4)) for _ in range(2))
    assert first == second


def test_topics_of_one_partition_are_spread() -> None:
    random = Random(3)
    leaders = {place_replicas(brokers(5), 1, 1, random)[0][0] for _ in range(100)}
    assert leaders == set(range(5))
