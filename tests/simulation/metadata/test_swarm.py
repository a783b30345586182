"""The quorum's nodes without partitions keep every invariant; a seed is one story; what is broken there is found."""

from __future__ import annotations

import pytest

from kraft.image.topics import TopicsDelta
from tests.simulation.metadata.swarm import Swarm
from tests.support.simulation.loop import SimulationFailed

CLEAR_ELR = TopicsDelta._clear_elr


def test_seeds_keep_every_invariant() -> None:
    end_offset = 0
    for seed in range(1000, 1005):
        swarm = Swarm(seed)
        swarm.run()
        assert not swarm.complaints, f"SEED=metadata/{seed}: {swarm.complaints}"
        end_offset += swarm.image.provenance.end_offset
    assert end_offset > 200, "hardly anything happened"


def test_equal_seeds_tell_equal_stories() -> None:
    digests = []
    for _ in range(2):
        swarm = Swarm(1007)
        swarm.run()
        digests.append(swarm.cluster.world.digest())
    assert digests[0] == digests[1]


def test_images_that_depend_on_how_they_were_read_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that clears the eligible leaders did not clear those of topics that the same reading had made."""
    monkeypatch.setattr(TopicsDelta, "_clear_elr", of_the_image_alone)
    with pytest.raises((SimulationFailed, AssertionError)):
        for seed in range(10):
            Swarm(seed).run()


def of_the_image_alone(delta: TopicsDelta, topic_id: bytes) -> None:
    if topic_id in delta.image.by_id:
        CLEAR_ELR(delta, topic_id)
