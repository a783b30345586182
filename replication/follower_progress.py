"""How far one follower has come, as its leader sees it by the follower's fetches alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replication.replica_news import ReplicaNews

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)
"""Before any clock began: a monotonic clock may say 0 at the start of the machine."""


class FollowerProgress:
    """Lost with leadership: a new leader learns it from the first fetches.

    A follower is caught up at the moment of a fetch that asks for the leader's end. One that asks, a fetch later, for
    what was the end at its last fetch had caught up at that last fetch: it follows a log that grows all the time.
    """

    __slots__ = (
        "broker_epoch",
        "end_offset",
        "is_joining",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_offset_at_last_fetch",
        "log_start_offset",
        "news",
    )

    def __init__(self, now_ms: int, *, is_in_sync: bool) -> None:
        """One that is in the set gets a whole replica.lag.time.max.ms to report to a new leader."""
        self.end_offset = UNKNOWN_OFFSET
        """It has everything before this offset, flushed as its topic asks: what it fetches from."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        self.is_joining = False
        """It keeps up and is about to be proposed for the in-sync set. Commits wait for it: else it would never have
        all that is committed by a leader that commits alone."""
        self.last_fetch_ms = NEVER_MS
        self.leader_end_offset_at_last_fetch = UNKNOWN_OFFSET
        self.news: ReplicaNews | None = None
        """Of the session that fetches it: a request in which it is not named repeats the last one that named it."""
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def fetched(
        self, offset: int, leader_end_offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """It asks for what begins at `offset`, which says that it has everything before."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.leader_end_offset_at_last_fetch != UNKNOWN_OFFSET and offset >= self.leader_end_offset_at_last_fetch:
            previous_ms = self.last_fetch_ms if self.news is None else self.news.previous_ms
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms, previous_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.leader_end_offset_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def lags(self, leader_end_offset: int, lag_ms_max: int, now_ms: int) -> bool:
        """Whether it has been behind for longer than replica.lag.time.max.ms."""
        if self.end_offset == leader_end_offset:
            return False
        caught_up_ms = self.last_caught_up_ms
        if self.news is not None and self.end_offset == self.leader_end_offset_at_last_fetch:
            caught_up_ms = max(caught_up_ms, self.news.last_ms)
        return now_ms - caught_up_ms > lag_ms_max
