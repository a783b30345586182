"""The leader's view of its followers, from which follow the high watermark and the in-sync set to propose.

A change of the set is proposed here and decided by the controller. Until it has decided, both sets count: the high
watermark waits for every replica that may be in sync, and for those that keep up and are about to join.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.replication.follower_progress import UNKNOWN_OFFSET, FollowerProgress
from moldau.replication.in_sync_set import InSyncSet


class Leadership:
    """One term of a leader. It begins without information about the followers."""

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
        """The followers for which the high watermark waits."""
        self._knows_all = True
        self._weigh()

    def assume(self, in_sync: InSyncSet) -> None:
        """Apply a set that was proposed, confirmed or refused."""
        self.in_sync = in_sync
        for replica in in_sync.confirmed:
            if replica in self.followers:
                self.followers[replica].is_joining = False
        self._weigh()

    def reassigned(self, replicas: tuple[int, ...], now_ms: int) -> None:
        """Apply a reassignment within the term: drop the removed replicas, add the new ones."""
        self.replicas = replicas
        known = self.followers
        self.followers = {
            replica: known.get(replica) or FollowerProgress(now_ms, is_in_sync=False)
            for replica in replicas
            if replica != self.leader_id
        }
        self._weigh()

    def joins(self, replica: int, is_joining: bool) -> None:
        """Whether the high watermark waits for a follower that is not in sync yet."""
        follower = self.followers[replica]
        if follower.is_joining != is_joining:
            follower.is_joining = is_joining
            self._weigh()

    def _weigh(self) -> None:
        maximal = self.in_sync.maximal
        self._decisive = [each for replica, each in self.followers.items() if each.is_joining or replica in maximal]
        self._knows_all = all(replica == self.leader_id or replica in self.followers for replica in maximal)

    def high_watermark(self, end_offset: int) -> int:
        """The offset before which every replica that may be in sync has all records; -1 where a replica has not fetched
        in this term.
        """
        for follower in self._decisive:
            if follower.end_offset < end_offset:
                end_offset = follower.end_offset
        return end_offset if self._knows_all else UNKNOWN_OFFSET

    def set_with(self, replica: int, high_watermark: int) -> tuple[int, ...] | None:
        """The in-sync set with a follower that has caught up. None where it has not caught up, is in the set already,
        or a change is in progress.

        Caught up: the follower has every committed record, and every record from before this leader's epoch, because
        the leader may not know yet that such a record is committed. The caller leaves out fenced brokers (KIP-841).
        """
        follower = self.followers.get(replica)
        in_sync = self.in_sync
        if follower is None or not in_sync.is_settled or replica in in_sync.confirmed:
            return None
        if follower.end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        return (*in_sync.confirmed, replica)

    def set_without_lagging(self, end_offset: int, lag_ms_max: int, now_ms: int) -> tuple[int, ...] | None:
        """The in-sync set without the followers that lag for too long.

        None where no follower does, or a change is in progress.
        """
        in_sync = self.in_sync
        if not in_sync.is_settled:
            return None
        lagging = set(self._lagging(in_sync.confirmed, end_offset, lag_ms_max, now_ms))
        return tuple(each for each in in_sync.confirmed if each not in lagging) if lagging else None

    def _lagging(self, replicas: tuple[int, ...], end_offset: int, lag_ms_max: int, now_ms: int) -> Iterable[int]:
        for replica in replicas:
            follower = self.followers.get(replica)
            if replica != self.leader_id and (follower is None or follower.lags(end_offset, lag_ms_max, now_ms)):
                yield replica
