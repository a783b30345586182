"""The port by which a partition notifies delayed operations, fetch sessions and coordinators of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from moldau.protocol.errors import ErrorCode


class PartitionListener(Protocol):
    """One listener of one partition, as Apache Kafka's PartitionListener.

    A listener is called within an append, a follower's fetch or a change of role, when the partition already has its
    new state. It must return quickly: it notes the change, or completes the operations that waited for it. It neither
    appends to this partition nor changes its role.
    """

    def on_log_end_offset_updated(self) -> None:
        """Called when the leader has appended records."""

    def on_high_watermark_updated(self) -> None:
        """The high watermark moved. The last stable offset moved with it, unless an open transaction holds it back."""

    def on_log_start_offset_updated(self) -> None:
        """The log start offset moved.

        The low watermark may have moved with it, and also the last stable offset, where the first open transaction
        began before the new log start offset. A leader also calls this when a follower's log start offset moved, or
        when the in-sync replicas changed.
        """

    def on_becoming_follower(self) -> None:
        """This replica does not lead any more."""

    def on_gone(self, error: ErrorCode) -> None:
        """This broker does not have the replica any more; `error` is the reason. No further call follows."""


class HighWatermarkListener:
    """Calls a function at every move of the high watermark, and when the replica does not lead any more or is gone."""

    __slots__ = ("_moved",)

    def __init__(self, moved: Callable[[], None]) -> None:
        self._moved = moved

    def on_log_end_offset_updated(self) -> None:
        pass

    def on_high_watermark_updated(self) -> None:
        self._moved()

    def on_log_start_offset_updated(self) -> None:
        pass

    def on_becoming_follower(self) -> None:
        self._moved()

    def on_gone(self, error: ErrorCode) -> None:
        self._moved()
