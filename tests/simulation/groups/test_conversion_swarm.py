"""Random members of both protocols in one group; each rule of the swarm is shown to fail."""

from __future__ import annotations

import pytest

from moldau.coordinator.consumer import classic_members, conversion
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.coordinator.group.kind_settings import MigrationPolicy
from tests.simulation.groups.conversion_swarm import ConversionSwarm
from tests.support.drawn_steps import Violation

SEEDS = 20
SEEDS_OF_FAULTS = 60


def test_groups_that_change_their_protocol_settle() -> None:
    swarms = [ConversionSwarm(seed) for seed in range(SEEDS)]
    for swarm in swarms:
        swarm.run()
    assert sum(swarm.rules.upgrades for swarm in swarms) > 3
    assert sum(swarm.rules.downgrades for swarm in swarms) > 1


def run_many() -> None:
    for seed in range(SEEDS_OF_FAULTS):
        ConversionSwarm(seed).run()


@pytest.mark.parametrize("name", ["is_upgrade_enabled", "is_downgrade_enabled"])
def test_a_change_that_the_policy_forbids_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationPolicy, name, property(lambda _: True))
    with pytest.raises(Violation, match="the policy is"):
        run_many()


def test_a_partition_that_is_given_before_it_is_revoked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, ConsumerGroup.is_owned.__name__, lambda *_: False)
    with pytest.raises(Violation, match=r" own |quiet rounds"):
        run_many()


def test_a_join_that_stays_parked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "refuse_join", lambda *_: None)
    with pytest.raises(Violation, match="has no answer"):
        run_many()


def test_a_member_that_may_stay_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_members, classic_members._expect_join.__name__, lambda *_: None)
    with pytest.raises(Violation, match="had to rejoin"):
        run_many()
