"""The port by which a partition notifies delayed operations, fetch sessions and coordinators of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from protocol.errors import ErrorCode


class PartitionListener(Protocol):
    """One listener of one partition, as Apache Kafka's PartitionListener.

    A listener is called in the midst of an append, of a follower's fetch or of a change of role, when the partition
    already has its new state. So it does little: it notes what moved, or completes what waited for exactly that, and
    neither appends to this partition nor changes its role.
    """

    def on_log_end_offset_updated(self) -> None:
        """The leader appended."""

    def on_high_watermark_updated(self) -> None:
        """More is committed. The last stable offset may have moved with it, where no transaction holds it back."""

    def on_log_start_offset_updated(self) -> None:
        """Records were deleted: the low watermark may have moved, and the last stable offset where the first open
        transaction began before the new log start offset.

        On a leader also when a follower's log start moved, or when other replicas are in sync."""

    def on_becoming_follower(self) -> None:
        """This replica leads no more."""

    def on_gone(self, error: ErrorCode) -> None:
        """This broker no longer has the replica; `error` says why. No further call follows."""


class HighWatermarkListener:
    """Calls back at every move of the high watermark, and when the replica leads no more or is gone."""

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
