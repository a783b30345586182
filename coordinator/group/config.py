"""The settings of groups."""

from __future__ import annotations

from typing import NamedTuple

from moldau.coordinator.group.kind_settings import ConsumerGroupSettings

MINUTE_MS = 60_000


class StreamsConfig(NamedTuple):
    """Kafka's settings of streams groups, with the defaults of 4.3.1."""

    session_timeout_ms: int = 45_000
    """group.streams.session.timeout.ms"""
    min_session_timeout_ms: int = 45_000
    """group.streams.min.session.timeout.ms"""
    max_session_timeout_ms: int = 60_000
    """group.streams.max.session.timeout.ms"""
    heartbeat_interval_ms: int = 5_000
    """group.streams.heartbeat.interval.ms"""
    min_heartbeat_interval_ms: int = 5_000
    """group.streams.min.heartbeat.interval.ms"""
    max_heartbeat_interval_ms: int = 15_000
    """group.streams.max.heartbeat.interval.ms"""
    max_size: int = 0x7FFFFFFF
    """group.streams.max.size"""
    num_standby_replicas: int = 0
    """group.streams.num.standby.replicas"""
    max_standby_replicas: int = 2
    """group.streams.max.standby.replicas"""
    initial_rebalance_delay_ms: int = 3_000
    """group.streams.initial.rebalance.delay.ms"""
    assignment_interval_ms: int = 1_000
    """group.streams.assignment.interval.ms"""
    min_assignment_interval_ms: int = 0
    """group.streams.min.assignment.interval.ms"""
    max_assignment_interval_ms: int = 15_000
    """group.streams.max.assignment.interval.ms"""


class ShareConfig(NamedTuple):
    """Kafka's settings of share groups, with the defaults of 4.3.1."""

    session_timeout_ms: int = 45_000
    """group.share.session.timeout.ms"""
    min_session_timeout_ms: int = 45_000
    """group.share.min.session.timeout.ms"""
    max_session_timeout_ms: int = 60_000
    """group.share.max.session.timeout.ms"""
    heartbeat_interval_ms: int = 5_000
    """group.share.heartbeat.interval.ms"""
    min_heartbeat_interval_ms: int = 5_000
    """group.share.min.heartbeat.interval.ms"""
    max_heartbeat_interval_ms: int = 15_000
    """group.share.max.heartbeat.interval.ms"""
    max_size: int = 200
    """group.share.max.size"""
    assignment_interval_ms: int = 1_000
    """group.share.assignment.interval.ms"""
    min_assignment_interval_ms: int = 0
    """group.share.min.assignment.interval.ms"""
    max_assignment_interval_ms: int = 15_000
    """group.share.max.assignment.interval.ms"""
    initialize_retry_interval_ms: int = 30_000
    """group.share.initialize.retry.interval.ms"""


class GroupConfig(NamedTuple):
    """Kafka's settings of groups, with the defaults of 4.3.1."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    max_size: int = 0x7FFFFFFF
    """group.max.size"""
    member_metadata_bytes_max: int = 1_048_588
    """message.max.bytes: the group's record must not be larger"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    offsets_retention_minutes: int = 10_080
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms"""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes"""
    offsets_topic_num_partitions: int = 50
    """offsets.topic.num.partitions"""
    offsets_topic_replication_factor: int = 3
    """offsets.topic.replication.factor"""
    offsets_topic_segment_bytes: int = 104_857_600
    """offsets.topic.segment.bytes"""
    offsets_topic_compression_codec: int = 0
    """offsets.topic.compression.codec"""
    offsets_commit_timeout_ms: int = 5_000
    """offsets.commit.timeout.ms"""
    offsets_load_buffer_size: int = 5_242_880
    """offsets.load.buffer.size"""
    share: ShareConfig = ShareConfig()
    streams: StreamsConfig = StreamsConfig()
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """The time (ms) that the join of a member without an id may be parked: such a member cannot send heartbeats."""
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    """group.consumer.*"""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS
