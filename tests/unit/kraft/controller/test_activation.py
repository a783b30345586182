"""What a controller writes first into an empty log."""

from __future__ import annotations

from moldau.kraft.controller.controller import Controller
from moldau.kraft.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from moldau.kraft.image.replay import Replay
from moldau.protocol.records.metadata import ConfigRecord, FeatureLevelRecord, RegisterControllerRecord
from tests.support.controller_scribe import SETTINGS

REGISTRATION = RegisterControllerRecord(controller_id=0, incarnation_id=bytes(16), zk_migration_ready=False)


def first_settings(**levels: int) -> list[tuple[str, str, str | None]]:
    bootstrap = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)]
    bootstrap += [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]
    controller = Controller(Replay(), SETTINGS._replace(min_insync_replicas=2), 0)
    written = [record for decision in controller.activate(bootstrap, REGISTRATION) for record in decision.records]
    return [(each.resource_name, each.name, each.value) for each in written if isinstance(each, ConfigRecord)]


def test_eligible_leader_replicas_come_with_one_min_insync_replicas_for_the_cluster() -> None:
    assert first_settings() == []
    assert first_settings(**{ELIGIBLE_LEADER_REPLICAS: 1}) == [("", "min.insync.replicas", "2")]
