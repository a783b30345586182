"""Random members of a share group on one partition; each rule of the swarm is shown to fail."""

from __future__ import annotations

import pytest

from moldau.broker.share_partitions.runner import SharePartitionRunner
from moldau.coordinator.share_coordinator import shard as state_shard
from moldau.protocol.errors import ErrorCode
from moldau.replication.share.in_flight import InFlightState
from moldau.replication.share.share_partition import SharePartition
from tests.simulation.share_records.swarm import ShareRecordsSwarm
from tests.support.drawn_steps import Violation

SEEDS = 20
SEEDS_OF_FAULTS = 100


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_is_acknowledged(seed: int) -> None:
    swarm = ShareRecordsSwarm(seed)
    swarm.run()
    assert swarm.rules.delivered_count > 20, "hardly anything happened"


def run_many() -> None:
    for seed in range(SEEDS_OF_FAULTS):
        ShareRecordsSwarm(seed).run()


def test_locks_that_never_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharePartition, "expire_locks", lambda *_: None)
    with pytest.raises(Violation, match=r"the lock ends|again and again"):
        run_many()


def test_an_acknowledgement_that_is_answered_before_it_is_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SharePartitionRunner._store

    def answer_early(self: SharePartitionRunner, write: object, answered: object) -> None:
        if callable(answered):
            answered(ErrorCode.NONE, None)
        store(self, write, None)  # type: ignore[arg-type]

    monkeypatch.setattr(SharePartitionRunner, "_store", answer_early)
    with pytest.raises(Violation, match="stored is"):
        run_many()


def test_delivery_counts_that_begin_anew_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = InFlightState.acquire

    def forget(self: InFlightState, *arguments: object) -> None:
        self.delivery_count = 0
        acquire(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(InFlightState, "acquire", forget)
    with pytest.raises(Violation, match="deliver"):
        run_many()


def test_updates_that_a_new_coordinator_loses_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        state_shard, "updated_state", lambda state, update: state._replace(leader_epoch=update.leader_epoch)
    )
    with pytest.raises(Violation):
        run_many()
