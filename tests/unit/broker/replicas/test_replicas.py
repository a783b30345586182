"""The local partitions, by name and by id."""

from __future__ import annotations

from moldau.broker.replicas.replicas import Replicas
from tests.support.partitions import partition


def test_a_topic_is_known_under_both_names_or_not_at_all() -> None:
    replicas = Replicas()
    both = [partition("t", 0), partition("t", 1)]
    for each in both:
        replicas.add(each)
    assert list(replicas) == both
    assert replicas.by_id[b"i" * 16] == replicas.by_name["t"] == dict(enumerate(both))
    assert replicas.get("t", 1) is both[1] and replicas.get("t", 2) is None and replicas.get("u", 0) is None
    assert replicas.remove_topic("t") == both
    assert not replicas.by_id and not replicas.by_name
    assert replicas.remove_topic("t") == []


def test_a_partition_that_was_made_again_is_another_one() -> None:
    replicas = Replicas()
    first, second = partition("t", 0), partition("t", 0, b"j" * 16)
    replicas.add(first)
    assert first in replicas
    replicas.remove_topic("t")
    replicas.add(second)
    assert first not in replicas and second in replicas
