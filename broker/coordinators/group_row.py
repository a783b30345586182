"""The coordinator of groups, as a row: `__consumer_offsets` → `GroupShard`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from moldau.broker.config.config import Config
from moldau.broker.config.group_rules import assignor_names
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC, InternalTopic
from moldau.broker.coordinators.row import CoordinatorRow, KeyType, Reports, performs_nothing
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

    Perform: TypeAlias = Callable[[object, Reports[ShardRequest]], None]
    GroupRow: TypeAlias = CoordinatorRow[GroupShard, ShardRequest, LoadedChange]


def group_row(
    config: GroupConfig,
    current_image: Callable[[], CoordinatorImage],
    history: GroupHistory,
    perform: Perform = performs_nothing,
) -> GroupRow:
    return CoordinatorRow(
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
    """Create a shard.

    Its modules are imported here, because a broker that leads no partition of the topic does not need them.
    """
    from moldau.coordinator.shard.shard import GroupShard

    return GroupShard(config, high_watermark, current_image, history)


def new_reader() -> RecordReader[LoadedChange]:
    from moldau.coordinator.shard.record_reading import GroupRecordReader

    return GroupRecordReader()


def group_config(config: Config) -> GroupConfig:
    """The group settings in a node's configuration."""
    return GroupConfig(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        max_size=config.integer("group.max.size"),
        member_metadata_bytes_max=config.integer("message.max.bytes"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        offsets_retention_minutes=config.integer("offsets.retention.minutes"),
        offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_topic_num_partitions=config.integer("offsets.topic.num.partitions"),
        offsets_topic_replication_factor=config.integer("offsets.topic.replication.factor"),
        offsets_topic_segment_bytes=config.integer("offsets.topic.segment.bytes"),
        offsets_topic_compression_codec=config.integer("offsets.topic.compression.codec"),
        offsets_commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        offsets_load_buffer_size=config.integer("offsets.load.buffer.size"),
        consumer=consumer_settings(config),
        share=share_settings(config),
        streams=streams_settings(config),
    )


def streams_settings(config: Config) -> StreamsGroupSettings:
    """The settings of streams groups in a node's configuration."""
    return StreamsGroupSettings(
        session_timeout_ms=config.integer("group.streams.session.timeout.ms"),
        min_session_timeout_ms=config.integer("group.streams.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.streams.max.session.timeout.ms"),
        heartbeat_interval_ms=config.integer("group.streams.heartbeat.interval.ms"),
        min_heartbeat_interval_ms=config.integer("group.streams.min.heartbeat.interval.ms"),
        max_heartbeat_interval_ms=config.integer("group.streams.max.heartbeat.interval.ms"),
        max_size=config.integer("group.streams.max.size"),
        num_standby_replicas=config.integer("group.streams.num.standby.replicas"),
        max_standby_replicas=config.integer("group.streams.max.standby.replicas"),
        initial_rebalance_delay_ms=config.integer("group.streams.initial.rebalance.delay.ms"),
        assignment_interval_ms=config.integer("group.streams.assignment.interval.ms"),
        min_assignment_interval_ms=config.integer("group.streams.min.assignment.interval.ms"),
        max_assignment_interval_ms=config.integer("group.streams.max.assignment.interval.ms"),
    )


def consumer_settings(config: Config) -> ConsumerGroupSettings:
    """The settings of consumer groups in a node's configuration."""
    return ConsumerGroupSettings(
        assignors=assignor_names(config.settings, "group.consumer.assignors"),
        migration_policy=MigrationPolicy(config.text("group.consumer.migration.policy").lower()),
        max_size=config.integer("group.consumer.max.size"),
        session_timeout_ms=config.integer("group.consumer.session.timeout.ms"),
        min_session_timeout_ms=config.integer("group.consumer.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.consumer.max.session.timeout.ms"),
        heartbeat_interval_ms=config.integer("group.consumer.heartbeat.interval.ms"),
        min_heartbeat_interval_ms=config.integer("group.consumer.min.heartbeat.interval.ms"),
        max_heartbeat_interval_ms=config.integer("group.consumer.max.heartbeat.interval.ms"),
        assignment_interval_ms=config.integer("group.consumer.assignment.interval.ms"),
        min_assignment_interval_ms=config.integer("group.consumer.min.assignment.interval.ms"),
        max_assignment_interval_ms=config.integer("group.consumer.max.assignment.interval.ms"),
        regex_refresh_interval_ms=config.integer("group.consumer.regex.refresh.interval.ms"),
    )


def share_settings(config: Config) -> ShareGroupSettings:
    """The settings of share groups in a node's configuration."""
    return ShareGroupSettings(
        session_timeout_ms=config.integer("group.share.session.timeout.ms"),
        min_session_timeout_ms=config.integer("group.share.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.share.max.session.timeout.ms"),
        heartbeat_interval_ms=config.integer("group.share.heartbeat.interval.ms"),
        min_heartbeat_interval_ms=config.integer("group.share.min.heartbeat.interval.ms"),
        max_heartbeat_interval_ms=config.integer("group.share.max.heartbeat.interval.ms"),
        max_size=config.integer("group.share.max.size"),
        assignment_interval_ms=config.integer("group.share.assignment.interval.ms"),
        min_assignment_interval_ms=config.integer("group.share.min.assignment.interval.ms"),
        max_assignment_interval_ms=config.integer("group.share.max.assignment.interval.ms"),
        initialize_retry_interval_ms=config.integer("group.share.initialize.retry.interval.ms"),
        delivery_count_limit=config.integer("group.share.delivery.count.limit"),
        min_delivery_count_limit=config.integer("group.share.min.delivery.count.limit"),
        max_delivery_count_limit=config.integer("group.share.max.delivery.count.limit"),
        record_lock_duration_ms=config.integer("group.share.record.lock.duration.ms"),
        min_record_lock_duration_ms=config.integer("group.share.min.record.lock.duration.ms"),
        max_record_lock_duration_ms=config.integer("group.share.max.record.lock.duration.ms"),
        partition_max_record_locks=config.integer("group.share.partition.max.record.locks"),
        min_partition_max_record_locks=config.integer("group.share.min.partition.max.record.locks"),
        max_partition_max_record_locks=config.integer("group.share.max.partition.max.record.locks"),
    )
