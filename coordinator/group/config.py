"""The settings of groups."""

from __future__ import annotations

from moldau.coordinator.group.kind_settings import ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings
from moldau.protocol.late_tuple import NamedTuple

MINUTE_MS = 60_000


class GroupConfig(NamedTuple):
    """Kafka's settings of groups, with the defaults of 4.3.1."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    max_size: int = 0x7FFFFFFF
    """group.max.size"""
    member_metadata_bytes_max: int = 1_048_588
    """message.max.bytes, which limits the size of a group's record"""
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
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """The time (ms) for which the join of a member without an id may be parked. Such a member cannot send heartbeats,
    so its session timeout does not apply."""
    rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    """group.coordinator.rebalance.protocols"""
    heartbeat_wait_max_ms: int = 3_000
    """moldau.group.heartbeat.wait.max.ms"""
    waiting_heartbeat_interval_ms: int = 500
    """moldau.group.waiting.heartbeat.interval.ms"""
    target_size_at_once: int = 2_000
    """The largest size of a target assignment that is computed in the step of a request. The size is the number of
    partitions and subscriptions. A larger one is computed by an executor thread (`target.py`)."""
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    """group.consumer.*"""
    share: ShareGroupSettings = ShareGroupSettings()
    """group.share.*"""
    streams: StreamsGroupSettings = StreamsGroupSettings()
    """group.streams.*"""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS
