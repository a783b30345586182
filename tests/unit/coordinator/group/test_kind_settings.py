"""The settings of consumer, share and Streams groups: Kafka's defaults, and what a group of its own overrides."""

from __future__ import annotations

import pytest

from moldau.broker.config.catalogue import broker_catalogue, group_catalogue
from moldau.broker.config.setting import Stance
from moldau.coordinator.group.kind_settings import (
    ConsumerGroupSettings,
    MigrationPolicy,
    ShareGroupSettings,
    StreamsGroupSettings,
)

Settings = ConsumerGroupSettings | ShareGroupSettings | StreamsGroupSettings
BY_KIND: dict[str, Settings] = {
    "consumer": ConsumerGroupSettings(),
    "share": ShareGroupSettings(),
    "streams": StreamsGroupSettings(),
}
ONLY_IN_GROUPS = {
    *("auto_offset_reset", "is_read_committed", "is_renew_acknowledge_enabled"),
    *("dead_letter_topic", "copies_dead_letters"),
}
FIELDS = [
    (kind, field) for kind, settings in BY_KIND.items() for field in settings._fields if field not in ONLY_IN_GROUPS
]
NUMBERS = [
    name
    for name in group_catalogue()
    if name.split(".")[0] in BY_KIND
    and name.split(".", 1)[1].replace(".", "_") in BY_KIND[name.split(".")[0]]._fields
    and name != "share.auto.offset.reset"
]


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_has_the_default_of_the_setting_whose_name_it_ends(kind: str, field: str) -> None:
    setting = broker_catalogue()[f"group.{kind}.{field.replace('_', '.')}"]
    value = getattr(BY_KIND[kind], field)
    match value:
        case MigrationPolicy():
            assert value.value == setting.default_text
        case tuple():
            assert ",".join(value) == setting.default_text
        case _:
            assert str(value) == setting.default_text


def test_every_setting_that_a_broker_gives_a_group_is_there() -> None:
    left_out = {
        name
        for name, setting in broker_catalogue().items()
        if setting.stance is not Stance.HONOURED and not name.endswith(".assignors")
    } | {"group.streams.assignors"}
    names = {f"group.{kind}.{field.replace('_', '.')}" for kind, field in FIELDS}
    prefixes = tuple(f"group.{kind}." for kind in BY_KIND)
    assert {name for name in broker_catalogue() if name.startswith(prefixes)} - left_out == names


@pytest.mark.parametrize("settings", BY_KIND.values(), ids=BY_KIND)
def test_a_group_without_settings_of_its_own_has_the_brokers(settings: Settings) -> None:
    assert settings.of_group({}) is settings
    assert settings.of_group({"another.setting": "1"}) == settings


@pytest.mark.parametrize("name", NUMBERS)
def test_a_group_overrides_a_number_within_the_brokers_bounds(name: str) -> None:
    kind, _, rest = name.partition(".")
    field = rest.replace(".", "_")
    settings = BY_KIND[kind]
    lowest = getattr(settings, f"min_{field}", 0)
    highest = getattr(settings, f"max_{field.removeprefix('num_')}", 0x7FFFFFFF)
    changed = {
        text: settings.of_group({name: text})
        for text in ("-1", str(lowest), str((lowest + highest) // 2), str(highest), str(highest + 1), " x ")
    }
    default = getattr(settings, field)
    wanted = [lowest, lowest, (lowest + highest) // 2, highest, highest, default]
    assert [getattr(each, field) for each in changed.values()] == wanted
    assert all(each._replace(**{field: default}) == settings for each in changed.values())


def test_numbers_of_all_kinds_are_overridden() -> None:
    honoured = [each for each in group_catalogue().values() if each.stance is Stance.HONOURED]
    texts = {"streams.assignor.name"}
    assert len(NUMBERS) == len(honoured) - len(ONLY_IN_GROUPS) - len(texts)


def test_a_share_group_overrides_what_is_no_number() -> None:
    settings = ShareGroupSettings()
    own = {
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "FALSE",
    }
    assert settings.of_group(own) == settings._replace(
        auto_offset_reset="by_duration:PT1H", is_read_committed=True, is_renew_acknowledge_enabled=False
    )
    back = {"share.isolation.level": "read_uncommitted", "share.renew.acknowledge.enable": "true"}
    assert settings._replace(is_read_committed=True, is_renew_acknowledge_enabled=False).of_group(back) == settings


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.BIDIRECTIONAL, True, True),
    ],
)
def test_a_policy_says_which_way_a_group_may_go(policy: MigrationPolicy, upgrades: bool, downgrades: bool) -> None:
    assert (policy.is_upgrade_enabled, policy.is_downgrade_enabled) == (upgrades, downgrades)


def test_a_group_names_its_dead_letter_queue_itself() -> None:
    own = {"errors.deadletterqueue.topic.name": " dlq.q ", "errors.deadletterqueue.copy.record.enable": "TRUE"}
    found = ShareGroupSettings().of_group(own)
    assert (found.dead_letter_topic, found.copies_dead_letters) == ("dlq.q", True)
    assert ShareGroupSettings().of_group({"share.delivery.count.limit": "3"}).dead_letter_topic == ""
