"""The settings in force, and what the logs of a topic take from them."""

from __future__ import annotations

from moldau.broker.config.loading import checked_config
from moldau.broker.coordinators.group_coordinator import group_coordinator_config, offsets_topic
from moldau.broker.metadata.cluster_view import LOG_CONFIGS_MAX, DynamicConfig
from moldau.kraft.image.configs import ConfigResource, ConfigsDelta, ConfigsImage, ResourceType
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.records.metadata import ConfigRecord
from tests.support.node import PROPERTIES


def image(values: dict[ConfigResource, dict[str, str]]) -> MetadataImage:
    delta = ConfigsDelta(ConfigsImage())
    for resource, settings in values.items():
        for name, value in settings.items():
            delta.replay(ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value))
    return MetadataImage()._replace(configs=delta.apply())


ALL = ConfigResource(ResourceType.BROKER, "")
OWN = ConfigResource(ResourceType.BROKER, "1")
OTHER = ConfigResource(ResourceType.BROKER, "2")


def test_the_brokers_own_setting_wins_over_that_of_all_brokers_and_that_over_the_file() -> None:
    settings = DynamicConfig(checked_config(PROPERTIES | {"log.retention.ms": "1000"}))
    assert settings.log_config({}).retention_ms == 1000
    settings.follow(image({ALL: {"log.retention.ms": "2000"}, OTHER: {"log.retention.ms": "9"}}))
    assert settings.log_config({}).retention_ms == 2000
    settings.follow(image({ALL: {"log.retention.ms": "2000"}, OWN: {"log.retention.ms": "3000"}}))
    assert settings.log_config({}).retention_ms == 3000
    assert settings.log_config({"retention.ms": "4000"}).retention_ms == 4000
    settings.follow(image({}))
    assert settings.log_config({}).retention_ms == 1000


def test_an_image_without_news_for_this_broker_changes_nothing() -> None:
    settings = DynamicConfig(checked_config(PROPERTIES))
    before = settings.config
    settings.follow(image({OTHER: {"log.retention.ms": "9"}}))
    assert settings.config is before


def test_what_topics_share_is_described_once_and_again_after_a_change() -> None:
    settings = DynamicConfig(checked_config(PROPERTIES))

    def retention() -> str | None:
        return next(each.value for each in settings.topic_entries if each.name == "retention.ms")

    first = settings.topic_entries
    assert retention() == "604800000" and settings.topic_entries is first
    settings.follow(image({ALL: {"log.retention.ms": "2000"}}))
    assert retention() == "2000"
    settings.follow(image({}))
    assert settings.topic_entries == first


def test_topics_with_the_same_overrides_share_what_their_logs_know_within_a_limit() -> None:
    settings = DynamicConfig(checked_config(PROPERTIES))
    shared = settings.log_config({"retention.ms": "5", "segment.ms": "6"})
    assert settings.log_config({"segment.ms": "6", "retention.ms": "5"}) is shared
    for i in range(2 * LOG_CONFIGS_MAX):
        settings.log_config({"retention.ms": str(i)})
    assert len(settings._log_configs) <= LOG_CONFIGS_MAX
    assert settings.log_config({"segment.ms": "6", "retention.ms": "5"}) == shared


def test_the_topic_of_group_offsets_is_made_as_its_settings_say() -> None:
    config = checked_config(
        PROPERTIES
        | {
            "offsets.topic.num.partitions": "7",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.segment.bytes": "2097152",
        }
    )
    topic = offsets_topic(group_coordinator_config(config))
    assert (topic.partitions, topic.replication_factor) == (7, 1)
    assert topic.configs == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "2097152"}
