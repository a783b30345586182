"""Tracks the progress of a leader's followers, and computes from it the high watermark and the ISR changes to propose
to the controller.

    confirmed ──propose──▶ proposed ──confirmed by the controller (a newer partition epoch)──▶ confirmed
                              ├────refused──▶ confirmed (unchanged)
                              └────newer metadata──▶ confirmed (the set of the metadata)

The leader proposes a change and the controller decides. Until the decision arrives, the controller may hold either set.
The high watermark therefore waits for all members of both sets (`maximal`, KIP-497), and for followers that are about
to join. acks=all counts only the confirmed set. The leader learns a follower's progress only from its fetches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)
"""A time before every reading of a monotonic clock. It is not 0, because such a clock may be 0 when the machine starts.
"""


class Leadership:
    """One term of a leader: the in-sync set, and the progress of the followers. At the start of a term their progress
    is unknown.
    """

    __slots__ = ("_decisive", "_knows_all", "epoch_start_offset", "followers", "in_sync", "leader_id", "replicas")

    def __init__(
        self, leader_id: int, replicas: tuple[int, ...], in_sync: InSyncSet, epoch_start_offset: int, now_ms: int
    ) -> None:
        self.leader_id = leader_id
        self.replicas = replicas
        self.in_sync = in_sync
        self.epoch_start_offset = epoch_start_offset
        self.followers = {
            replica: FollowerProgress(now_ms, is_in_sync=replica in in_sync.confirmed)
            for replica in replicas
            if replica != leader_id
        }
        self._decisive: list[FollowerProgress] = []
        """The followers that the high watermark must not pass."""
        self._knows_all = True
        self._update_decisive()

    def apply_in_sync_set(self, in_sync: InSyncSet) -> None:
        """Replace the in-sync set after a proposal, its confirmation or its refusal."""
        self.in_sync = in_sync
        for replica in in_sync.confirmed:
            if replica in self.followers:
                self.followers[replica].is_joining = False
        self._update_decisive()

    def apply_reassignment(self, replicas: tuple[int, ...], now_ms: int) -> None:
        """Apply a reassignment during the term: drop removed replicas, and start to track added ones."""
        self.replicas = replicas
        known = self.followers
        self.followers = {
            replica: known.get(replica) or FollowerProgress(now_ms, is_in_sync=False)
            for replica in replicas
            if replica != self.leader_id
        }
        self._update_decisive()

    def set_joining(self, replica: int, is_joining: bool) -> None:
        """Set whether a follower is about to join the in-sync set. The high watermark then waits for it."""
        follower = self.followers[replica]
        if follower.is_joining != is_joining:
            follower.is_joining = is_joining
            self._update_decisive()

    def _update_decisive(self) -> None:
        maximal = self.in_sync.maximal
        self._decisive = [each for replica, each in self.followers.items() if each.is_joining or replica in maximal]
        self._knows_all = all(replica == self.leader_id or replica in self.followers for replica in maximal)

    def high_watermark(self, end_offset: int) -> int:
        """Return the offset below which every replica that may be in sync has all records; -1 if one of them has not
        fetched in this term. `end_offset`: the leader's log end offset.
        """
        for follower in self._decisive:
            if follower.end_offset < end_offset:
                end_offset = follower.end_offset
        return end_offset if self._knows_all else UNKNOWN_OFFSET

    def in_sync_set_with(self, replica: int, high_watermark: int) -> tuple[int, ...] | None:
        """Return the in-sync set with this follower added, if it has caught up. None if it has not, is a member
        already, or a change is in progress.

        A follower has caught up if it has every committed record, and every record from before this leader's epoch. The
        leader may not know yet that the latter are committed. The caller excludes fenced brokers (KIP-841).
        """
        follower = self.followers.get(replica)
        in_sync = self.in_sync
        if follower is None or not in_sync.has_no_proposal or replica in in_sync.confirmed:
            return None
        if follower.end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        return (*in_sync.confirmed, replica)

    def in_sync_set_without_lagging(self, end_offset: int, lag_ms_max: int, now_ms: int) -> tuple[int, ...] | None:
        """Return the in-sync set without the followers that have lagged longer than `lag_ms_max`. None if there are
        none, or a change is in progress.
        """
        in_sync = self.in_sync
        if not in_sync.has_no_proposal:
            return None
        lagging = set(self._lagging(in_sync.confirmed, end_offset, lag_ms_max, now_ms))
        return tuple(each for each in in_sync.confirmed if each not in lagging) if lagging else None

    def _lagging(self, replicas: tuple[int, ...], end_offset: int, lag_ms_max: int, now_ms: int) -> Iterable[int]:
        for replica in replicas:
            follower = self.followers.get(replica)
            if replica != self.leader_id and (
                follower is None or follower.has_lagged_longer_than(end_offset, lag_ms_max, now_ms)
            ):
                yield replica


class InSyncSet(NamedTuple):
    """The confirmed in-sync set of a partition, and the set that the leader proposes in its place, if any."""

    confirmed: tuple[int, ...]
    partition_epoch: int
    proposed: tuple[int, ...] | None = None

    @property
    def maximal(self) -> tuple[int, ...]:
        """All replicas that may be in sync for the controller: the members of the confirmed and of the proposed set."""
        if self.proposed is None:
            return self.confirmed
        return (*self.confirmed, *(each for each in self.proposed if each not in self.confirmed))

    @property
    def has_no_proposal(self) -> bool:
        """Whether no proposal is in progress, so that the next one may be made."""
        return self.proposed is None

    def with_proposal(self, replicas: tuple[int, ...]) -> InSyncSet:
        assert self.proposed is None, "one change at a time"
        return self._replace(proposed=replicas)

    def without_proposal(self) -> InSyncSet:
        """Return the set without the proposal that the controller refused."""
        return self._replace(proposed=None)


class SessionRequestTimes(Protocol):
    """The times (ms) of the last two requests of a follower's fetch session."""

    @property
    def last_request_ms(self) -> int: ...

    @property
    def previous_request_ms(self) -> int: ...


class FollowerProgress:
    """How far a follower has fetched during one leader's term.

    A follower is caught up at a fetch from the leader's log end offset. It was also caught up at its previous fetch, if
    it now fetches from what was the log end offset then. So even a follower of a log that grows all the time can be
    caught up.
    """

    __slots__ = (
        "broker_epoch",
        "end_offset",
        "is_joining",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_offset_at_last_fetch",
        "log_start_offset",
        "session_request_times",
    )

    def __init__(self, now_ms: int, *, is_in_sync: bool) -> None:
        """Begin a term without a fetch. An in-sync follower counts as caught up now, so that it has
        replica.lag.time.max.ms for its first fetch from a new leader.
        """
        self.end_offset = UNKNOWN_OFFSET
        """The offset of the follower's last fetch. The follower has every record below it, flushed if flush.messages of
        the topic asks for that.
        """
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = -1
        """The broker epoch of the follower at its last fetch. A fetch with an earlier broker epoch is refused
        (KIP-903)."""
        self.is_joining = False
        """Whether the follower has nearly caught up and will be proposed for the in-sync set. The high watermark waits
        for it; otherwise a leader that is alone in sync could commit records faster than the follower gets them.
        """
        self.last_fetch_ms = NEVER_MS
        self.leader_end_offset_at_last_fetch = UNKNOWN_OFFSET
        self.session_request_times: SessionRequestTimes | None = None
        """The request times of the fetch session with the partition; None if no session has it. A request that does not
        name the partition repeats its last fetch offset.
        """
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def note_fetch(
        self, offset: int, leader_end_offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Store a fetch from `offset`: the follower has every record below that offset."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.leader_end_offset_at_last_fetch != UNKNOWN_OFFSET and offset >= self.leader_end_offset_at_last_fetch:
            previous_ms = (
                self.last_fetch_ms
                if self.session_request_times is None
                else self.session_request_times.previous_request_ms
            )
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms, previous_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.leader_end_offset_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def has_lagged_longer_than(self, leader_end_offset: int, lag_ms_max: int, now_ms: int) -> bool:
        """Whether the follower has been behind the leader's log for more than `lag_ms_max`
        (replica.lag.time.max.ms).
        """
        if self.end_offset == leader_end_offset:
            return False
        caught_up_ms = self.last_caught_up_ms
        if self.session_request_times is not None and self.end_offset == self.leader_end_offset_at_last_fetch:
            caught_up_ms = max(caught_up_ms, self.session_request_times.last_request_ms)
        return now_ms - caught_up_ms > lag_ms_max
