"""What a leader knows of its followers, and what follows from it: the high watermark, who joins the in-sync set, who
leaves it.

A change of the set is proposed here and decided by the controller. Until it has decided, both sets count: the high
watermark waits for every replica that may be in sync, and for those that keep up and are about to join.
"""

from __future__ import annotations

from collections.abc import Iterable

from replication.follower_progress import UNKNOWN_OFFSET, FollowerProgress
from replication.in_sync_set import InSyncSet


class Leadership:
    """One term of a leader with followers; a new term begins with an empty knowledge of them."""

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
        """Those for whom the high watermark waits."""
        self._knows_all = True
        self._weigh()

    def assume(self, in_sync: InSyncSet) -> None:
        """The set was proposed, confirmed or refused."""
        self.in_sync = in_sync
        for replica in in_sync.confirmed:
            if replica in self.followers:
                self.followers[replica].is_joining = False
        self._weigh()

    def reassigned(self, replicas: tuple[int, ...], now_ms: int) -> None:
        """The controller moves replicas within a term: forget those that go, learn of those that come."""
        self.replicas = replicas
        known = self.followers
        self.followers = {
            replica: known.get(replica) or FollowerProgress(now_ms, is_in_sync=False)
            for replica in replicas
            if replica != self.leader_id
        }
        self._weigh()

    def joins(self, replica: int, is_joining: bool) -> None:
        """Whether commits wait for a follower that is not in the set."""
        follower = self.followers[replica]
        if follower.is_joining != is_joining:
            follower.is_joining = is_joining
            self._weigh()

    def _weigh(self) -> None:
        maximal = self.in_sync.maximal
        self._decisive = [each for replica, each in self.followers.items() if each.is_joining or replica in maximal]
        self._knows_all = all(replica == self.leader_id or replica in self.followers for replica in maximal)

    def high_watermark(self, end_offset: int) -> int:
        """What every replica has that may be in sync; -1 where one of them has not been heard of in this term."""
        for follower in self._decisive:
            if follower.end_offset < end_offset:
                end_offset = follower.end_offset
        return end_offset if self._knows_all else UNKNOWN_OFFSET

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
