"""The settings of one log, with the names of Kafka's topic configuration."""

from __future__ import annotations

from moldau.protocol.compression import Codec
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.record_batch import TimestampType
from moldau.protocol.record_stream import RECORD_SIZE_UNLIMITED

INT64_MAX = (1 << 63) - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one log. The defaults are those of Apache Kafka 4.3. A limit of -1 means that there is no limit,
    as in Kafka."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    is_always_flushed: bool = False
    """Whether appends are synced before they are acknowledged, whatever flush.messages says. True for
    the metadata log."""
    max_message_bytes: int = 1_048_588
    expanded_bytes_max: int = 100 << 20
    """The most bytes to which the records of a compressed batch may expand."""
    expanded_record_bytes_max: int = RECORD_SIZE_UNLIMITED
    """The most bytes of one record of a compressed batch, in validation, compaction and search by time."""
    compression_type: Codec | None = None
    """The codec in which batches are stored; None means `producer`: batches keep the codec that the client chose."""
    compression_level: int | None = None
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    is_tiered: bool = False
    """Whether segments are copied to remote storage. The log may then begin before its first local segment."""
    local_retention_ms: int = 7 * DAY_MS
    """For how long (ms) segments stay local once they are copied to remote storage; at most `retention_ms`."""
    local_retention_bytes: int = -1
    remote_log_copy_disable: bool = False
    """Whether copying to remote storage is disabled. No further segments are copied, and the copied ones can still be
    read."""
    remote_copy_lag_ms: int = 0
    """The age (ms) at which a segment is copied to remote storage. With 0 all segments are copied at once; with -1 the
    age does not count."""
    remote_copy_lag_bytes: int = -1
    """A segment is copied to remote storage when newer segments have this many bytes. With 0 all segments are copied at
    once; with -1 the bytes do not count."""

    @property
    def copies_segments(self) -> bool:
        """Whether rolled segments are copied to remote storage, and local retention deletes only what is copied."""
        return self.is_tiered and not self.remote_log_copy_disable

    @property
    def promises_flush(self) -> bool:
        """Whether records are flushed before each acknowledgement, or after every flush.messages records.

        Recovery then reads the batches past the page cache, which may show what a failed sync did not write.
        """
        return self.is_always_flushed or self.flush_messages != INT64_MAX

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def has_delete_policy(self) -> bool:
        return "delete" in self.cleanup_policy
