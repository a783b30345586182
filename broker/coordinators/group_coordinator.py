"""The definition of the group coordinator for `Shards`: its topic, its settings, and a `GroupShard` for each partition
of `__consumer_offsets`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from moldau.broker.config.config import Config, object_of_settings
from moldau.broker.config.group_rules import assignor_names
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC, InternalTopic
from moldau.broker.coordinators.definition import CommandReports, CoordinatorDefinition, KeyType, reject_command
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.history import GroupHistory
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.kind_settings import (
    ConsumerGroupSettings,
    MigrationPolicy,
    ShareGroupSettings,
    StreamsGroupSettings,
)
from moldau.protocol.compression import Codec
from moldau.replication.partition import ACKS_LEADER

if TYPE_CHECKING:
    from moldau.coordinator.group.events import ShardRequest
    from moldau.coordinator.group.records import LoadedChange
    from moldau.coordinator.runtime.log_reading import RecordReader
    from moldau.coordinator.shard.shard import GroupShard

    Perform: TypeAlias = Callable[[object, CommandReports[ShardRequest]], None]
    GroupRow: TypeAlias = CoordinatorDefinition[GroupShard, ShardRequest, LoadedChange]


def group_coordinator_definition(
    config: GroupConfig,
    current_image: Callable[[], CoordinatorImage],
    history: GroupHistory,
    perform: Perform = reject_command,
) -> GroupRow:
    return CoordinatorDefinition(
        topic=offsets_topic(config),
        key_type=KeyType.GROUP,
        log_name="moldau.groups",
        new_shard=lambda high_watermark, leader_epoch: new_shard(config, high_watermark, current_image, history),
        new_reader=new_reader,
        load_buffer_size=config.offsets_load_buffer_size,
        codec=Codec(config.offsets_topic_compression_codec),
        # As in Apache Kafka. A refusal at once would make every member begin the next generation at once, for as long
        # as too few replicas are in sync.
        required_acks=ACKS_LEADER,
        perform=perform,
    )


def offsets_topic(config: GroupConfig) -> InternalTopic:
    return InternalTopic(
        GROUP_METADATA_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def new_shard(
    config: GroupConfig, high_watermark: int, current_image: Callable[[], CoordinatorImage], history: GroupHistory
) -> GroupShard:
    """Create the state machine of a partition of `__consumer_offsets`.

    The modules of `GroupShard` are imported here, because a broker that leads no partition of the topic does not need
    them.
    """
    from moldau.coordinator.shard.shard import GroupShard

    return GroupShard(config, high_watermark, current_image, history)


def new_reader() -> RecordReader[LoadedChange]:
    from moldau.coordinator.shard.record_reading import GroupRecordReader

    return GroupRecordReader()


def group_coordinator_config(config: Config) -> GroupConfig:
    """The settings of the group coordinator in a node's configuration."""
    return object_of_settings(
        GroupConfig,
        config.settings,
        "group.",
        member_metadata_bytes_max=config.integer("message.max.bytes"),
        offsets_retention_minutes=config.integer("offsets.retention.minutes"),
        offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_topic_num_partitions=config.integer("offsets.topic.num.partitions"),
        offsets_topic_replication_factor=config.integer("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes=config.integer("offsets.topic.segment.bytes"),
        offsets_topic_compression_codec=config.integer("offsets.topic.compression.codec"),
        offsets_commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        offsets_load_buffer_size=config.integer("offsets.load.buffer.size"),
        heartbeat_wait_max_ms=config.integer("moldau.group.heartbeat.wait.max.ms"),
        waiting_heartbeat_interval_ms=config.integer("moldau.group.waiting.heartbeat.interval.ms"),
        rebalance_protocols=tuple(config.entries("group.coordinator.rebalance.protocols")),
        consumer=consumer_settings(config),
        share=share_settings(config),
        streams=object_of_settings(StreamsGroupSettings, config.settings, "group.streams."),
    )


def consumer_settings(config: Config) -> ConsumerGroupSettings:
    """The settings of consumer groups in a node's configuration."""
    return object_of_settings(
        ConsumerGroupSettings,
        config.settings,
        "group.consumer.",
        assignors=assignor_names(config.settings, "group.consumer.assignors"),
        migration_policy=MigrationPolicy(config.text("group.consumer.migration.policy").lower()),
    )


def share_settings(config: Config) -> ShareGroupSettings:
    """The settings of share groups in a node's configuration."""
    return object_of_settings(ShareGroupSettings, config.settings, "group.share.")
