"""The parts below the broker have defaults in their classes of settings, by which their tests make them: each is that
of the catalogue, which a node reads.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import pytest

from moldau.broker.config.catalogue import broker_catalogue
from moldau.broker.config.config import Config, ConfigValues, object_of_settings
from moldau.broker.config.loading import checked_config
from moldau.broker.config.topics import log_config
from moldau.broker.coordinators.group_coordinator import group_coordinator_config
from moldau.broker.coordinators.share_coordinator import share_state_config
from moldau.broker.coordinators.transactions import transaction_config
from moldau.broker.metadata.quorum_start import controller_settings, raft_settings, security_settings
from moldau.broker.replicas.replica_fetchers import fetcher_settings
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings
from moldau.coordinator.share_coordinator.events import ShareStateConfig
from moldau.coordinator.transaction.events import TransactionConfig
from moldau.kraft.controller.settings import ControllerSettings, SecuritySettings
from moldau.kraft.raft.settings import RaftSettings
from moldau.replication.replica_fetcher import FetcherSettings
from moldau.storage.checkpoints.meta_properties import MetaProperties
from moldau.storage.log_config import LogConfig

CONFIG: Final = checked_config(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "log.dirs": "/data",
    }
)
"""Nothing but what must be set."""
ENVIRONMENT: Final[Any] = SimpleNamespace(random=Random(1), entropy=bytes, wall_ms=lambda: 0)
PROPERTIES: Final = MetaProperties("c", 1, bytes(16))


def controller(config: Config) -> ControllerSettings:
    return controller_settings(config, PROPERTIES, ENVIRONMENT, cast("Any", None), cast("Any", None))


MADE: Final[list[tuple[Callable[[Config], Any], Any]]] = [
    (group_coordinator_config, GroupConfig()),
    (transaction_config, TransactionConfig()),
    (share_state_config, ShareStateConfig()),
    (raft_settings, RaftSettings()),
    (fetcher_settings, FetcherSettings()),
    (lambda config: log_config(config, {}), LogConfig()),
    (controller, ControllerSettings("c", cast("Any", None), Random(1), bytes)),
    (lambda config: security_settings(config, ENVIRONMENT), SecuritySettings()),
]
NOT_SETTINGS: Final = frozenset(
    ("config_rules", "random", "new_uuid", "node_id", "quorum", "security", "listener", "wall_clock_ms")
)
"""What the parts are given beside settings."""
OFF_IN_CLASSES: Final = {"broker_silence_fence_ms"}
"""A fence that Apache Kafka does not have: a controller has it if its node says so."""


def fields_of(settings: Any) -> dict[str, Any]:
    names = getattr(settings, "_fields", None) or settings.__dataclass_fields__
    return {name: getattr(settings, name) for name in names if name not in NOT_SETTINGS | OFF_IN_CLASSES}


@pytest.mark.parametrize(("make", "default"), MADE, ids=lambda each: type(each).__name__)
def test_the_default_of_a_class_is_that_of_the_catalogue(make: Callable[[Config], Any], default: Any) -> None:
    made, meant = fields_of(make(CONFIG)), fields_of(default)
    print({name: (value, meant[name]) for name, value in made.items() if value != meant[name]})
    assert made == meant


@pytest.mark.parametrize(
    ("settings", "prefix", "others"),
    [
        (ConsumerGroupSettings, "group.consumer.", set()),
        (
            ShareGroupSettings,
            "group.share.",
            {"auto_offset_reset", "is_read_committed", "is_renew_acknowledge_enabled"}
            | {"dead_letter_topic", "copies_dead_letters"},
        ),
        (StreamsGroupSettings, "group.streams.", set()),
        (FetcherSettings, "replica.fetch.", set()),
    ],
)
def test_fields_are_named_as_their_settings(settings: Any, prefix: str, others: set[str]) -> None:
    named = {field for field in settings._fields if prefix + field.replace("_", ".") in broker_catalogue()}
    assert set(settings._fields) - named == others


class Limits(NamedTuple):
    max_size: int = -1
    session_timeout_ms: int = -1
    further: int = -1


def test_settings_are_read_by_the_names_of_fields() -> None:
    values = ConfigValues({"group.max.size": 7, "group.consumer.session.timeout.ms": 50_000})
    assert object_of_settings(Limits, values, "group.consumer.") == (0x7FFFFFFF, 50_000, -1)
    assert object_of_settings(Limits, values, "group.", "group.consumer.", further=3) == (7, 50_000, 3)
