"""What a node's configuration says of groups."""

from __future__ import annotations

from broker.config.config import Config
from coordinator.group.config import GroupConfig


def group_config(config: Config) -> GroupConfig:
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
    )
