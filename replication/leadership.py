"""What a leader knows of its followers, and what follows from it: the high watermark, who joins the in-sync set, who
leaves it.

A change of the set is proposed here and decided by the controller. Until it has decided, both sets count: the high
watermark waits for every replica that may be in sync.
"""

from __future__ import annotations

from collections.abc import Iterable

from replication.follower_progress import UNKNOWN_OFFSET, FollowerProgress
from replication.in_sync_set import InSyncSet


class Leadership:
    """One term of a leader with followers; a new term begins with an empty knowledge of them."""

    __slots__ = ("epoch_start_offset", "followers", "in_sync", "leader_id", "replicas")

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

    def reassigned(self, replicas: tuple[int, ...], now_ms: int) -> None:
        """The controller moves replicas within a term: forget those that go, learn of those that come."""
        self.replicas = replicas
        known = self.followers
        self.followers = {
            replica: known.get(replica) or FollowerProgress(now_ms, is_in_sync=False)
            for replica in replicas
            if replica != self.leader_id
        }

    def high_watermark(self, end_offset: int) -> int:
        """What every replica has that may be in sync; -1 where one of them has not been heard of in this term."""
        return min(
            (self._end_offset_of(replica) for replica in self.in_sync.maximal if replica != self.leader_id),
            default=end_offset,
        )

    def _end_offset_of(self, replica: int) -> int:
        follower = self.followers.get(replica)
        return UNKNOWN_OFFSET if follower is None else follower.end_offset

    def set_with(self, replica: int, high_watermark: int) -> tuple[int, ...] | None:
        """The in-sync set with a follower that has caught up; None where it has not, is in, or a change is under way.

        Caught up: it has everything that is committed, and everything from before this leader's epoch.
        """
        follower = self.followers.get(replica)
        in_sync = self.in_sync
        if follower is None or not in_sync.is_settled or replica in in_sync.confirmed:
            return None
        if follower.end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        return (*in_sync.confirmed, replica)

    def set_without_laggards(self, end_offset: int, lag_ms_max: int, now_ms: int) -> tuple[int, ...] | None:
        """The in-sync set without those behind for too long; None where nobody is, or a change is under way."""
        in_sync = self.in_sync
        if not in_sync.is_settled:
            return None
        laggards = set(self._laggards(in_sync.confirmed, end_offset, lag_ms_max, now_ms))
        return tuple(each for each in in_sync.confirmed if each not in laggards) if laggards else None

    def _laggards(self, replicas: tuple[int, ...], end_offset: int, lag_ms_max: int, now_ms: int) -> Iterable[int]:
        for replica in replicas:
            follower = self.followers.get(replica)
            if replica != self.leader_id and (follower is None or follower.lags(end_offset, lag_ms_max, now_ms)):
                yield replica
