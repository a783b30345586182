"""The progress of one follower, which the leader knows only from the follower's fetches."""

from __future__ import annotations

from typing import Final, Protocol

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)
"""A time before any time of a clock: a monotonic clock may be 0 at the start of the machine."""


class SessionRequests(Protocol):
    """The times (ms) of the last two requests of a follower's fetch session."""

    @property
    def last_ms(self) -> int: ...

    @property
    def previous_ms(self) -> int: ...


class FollowerProgress:
    """The progress of a follower during one leader's term.

    A follower is caught up at the time of a fetch from the leader's log end offset. A follower may also fetch from the
    offset that was the log end offset at its previous fetch: then it was caught up at that time, and follows a log that
    grows all the time.
    """

    __slots__ = (
        "broker_epoch",
        "end_offset",
        "is_joining",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_offset_at_last_fetch",
        "log_start_offset",
        "requests",
    )

    def __init__(self, now_ms: int, *, is_in_sync: bool) -> None:
        """A follower that is in sync gets a whole replica.lag.time.max.ms for its first fetch from a new leader."""
        self.end_offset = UNKNOWN_OFFSET
        """The fetch offset of the follower: it has every record before it, flushed where its topic asks for that."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        """The broker epoch of the follower at its last fetch: a fetch with an earlier one is refused (KIP-903)."""
        self.is_joining = False
        """Whether the follower keeps up and is about to be proposed for the in-sync set.

        The high watermark waits for it. Otherwise, under a leader that commits alone, a follower would never have every
        committed record.
        """
        self.last_fetch_ms = NEVER_MS
        self.leader_end_offset_at_last_fetch = UNKNOWN_OFFSET
        self.requests: SessionRequests | None = None
        """The requests of the fetch session that has the partition. A request that does not name the partition repeats
        its last fetch offset."""
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def fetched(
        self, offset: int, leader_end_offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Note that the follower fetched from `offset`, so that it has every record before it."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.leader_end_offset_at_last_fetch != UNKNOWN_OFFSET and offset >= self.leader_end_offset_at_last_fetch:
            previous_ms = self.last_fetch_ms if self.requests is None else self.requests.previous_ms
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms, previous_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.leader_end_offset_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def lags(self, leader_end_offset: int, lag_ms_max: int, now_ms: int) -> bool:
        """Whether the follower has been behind for longer than replica.lag.time.max.ms."""
        if self.end_offset == leader_end_offset:
            return False
        caught_up_ms = self.last_caught_up_ms
        if self.requests is not None and self.end_offset == self.leader_end_offset_at_last_fetch:
            caught_up_ms = max(caught_up_ms, self.requests.last_ms)
        return now_ms - caught_up_ms > lag_ms_max
