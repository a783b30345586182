"""The policy for snapshots of the metadata: after a number of bytes in the log, or after an interval (KIP-630,
KIP-876).
"""

from __future__ import annotations

from moldau.broker.config.config import Config


class SnapshotPolicy:
    """Decides when a snapshot is due, one at a time. The limits are Kafka's settings, in bytes and milliseconds."""

    def __init__(self, config: Config, now_ms: int) -> None:
        self._bytes_max = config.integer("metadata.log.max.record.bytes.between.snapshots")
        self._interval_ms = config.integer("metadata.log.max.snapshot.interval.ms")
        self.retention_bytes = config.integer("metadata.max.retention.bytes")
        self.retention_ms = config.integer("metadata.max.retention.ms")
        self._bytes = 0
        self.last_ms = now_ms
        """The time (ms, the loop's clock) at which the newest snapshot was begun, or this node started."""
        self._is_running = False

    def appended(self, size: int) -> None:
        self._bytes += size

    def is_due(self, now_ms: int) -> bool:
        """Whether a snapshot is due and none is being written. An interval of 0 disables snapshots by time."""
        is_late = self._interval_ms > 0 and now_ms >= self.last_ms + self._interval_ms
        return not self._is_running and (self._bytes >= self._bytes_max or is_late)

    def begun(self, now_ms: int) -> None:
        """A snapshot has begun: bytes that are appended from now on count for the next one."""
        self._is_running = True
        self._bytes = 0
        self.last_ms = now_ms

    def ended(self) -> None:
        self._is_running = False
