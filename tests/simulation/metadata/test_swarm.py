"""The quorum's nodes without partitions keep every invariant; a seed is one story; what is broken there is found."""

from __future__ import annotations

import pytest

from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.kraft.raft.log_view import OffsetAndEpoch
from moldau.testing.simulation.schedule import SimulationFailed
from tests.simulation.metadata.swarm import Swarm


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


def test_a_log_that_claims_to_know_every_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataLog, "end_offset_for_epoch", lambda log, epoch: OffsetAndEpoch(log.end_offset, epoch))
    with pytest.raises(SimulationFailed):
        Swarm(0).run()
