"""What a follower's fetch changes on the leader before any records are read, and the partitions of the follower's fetch
session that may have changed since its last response (KIP-227).

A leader examines only these partitions when the follower fetches, so that idle partitions cost nothing. A partition is
in `UpdatedPartitions.keys` from the moment that something happened to it (an append, a commit, a change of role, other
fetch parameters of the follower) until a response found that the follower has everything. Changes without a
notification, such as a log start offset that retention moved, are found by a sweep over all partitions from time to
time.

A request that does not name a partition repeats its last fetch parameters. So the time of the last request, `last_ms`,
is the time of the last fetch of every partition in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, ReplicaState
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.leader_epochs import EpochEnd
from moldau.storage.log.log import Log

NONE: Final = ErrorCode.NONE
"""A module-level name for `ErrorCode.NONE`, because the lookup of an enum member costs as much as a call."""
NO_EPOCH: Final = -1


TopicKey = str | bytes
"""A topic in the form that the client's version of Fetch uses: its name up to version 12, its id from version 13 on."""
PartitionKey = tuple[TopicKey, int]
SWEEP_MS: Final = 1000
NEVER_MS: Final = -(1 << 62)


class LocalReplicas(Protocol):
    """The replicas of partitions on this broker."""

    def find(self, key: PartitionKey) -> Partition | None:
        """The replica of the partition with this topic name or id and index; None if this broker has none."""

    def error_of(self, topic: str | bytes, index: int) -> ErrorCode:
        """The error for a partition of which this broker has no replica."""


class InSyncCandidates(Protocol):
    """The part of the broker that proposes in-sync sets to the controller."""

    def may_join(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Propose to add a follower, which has just fetched, to the in-sync set, if it has caught up."""


def replica_of(request: FetchRequest) -> ReplicaState | None:
    """The follower that sent a fetch; None for a consumer. Before version 15 the request has only the id of the
    follower."""
    if request.replica_state is not None:
        return request.replica_state if request.replica_state.replica_id >= 0 else None
    return ReplicaState(replica_id=request.replica_id) if request.replica_id >= 0 else None


def update_fetch_states(
    replicas: LocalReplicas,
    in_sync: InSyncCandidates,
    replica: ReplicaState,
    wanted: Iterable[tuple[PartitionKey, FetchPartition]],
    now_ms: int,
    updates: UpdatedPartitions | None,
) -> dict[PartitionKey, None]:
    """Note the fetch offsets of a follower, and advance the high watermarks.

    This is done before the fetch is planned, so that the response reports what the follower's own fetch has committed.
    Returns the partitions in which the follower's log is a prefix of the leader's log. Offsets in other partitions are
    ignored, because a follower whose log diverges would confirm records that it is about to truncate (KIP-101).
    """
    agreeing: dict[PartitionKey, None] = {}
    for key, wish in wanted:
        partition = replicas.find(key)
        if partition is None or refusal_of_replica(partition, replica) is not NONE:
            continue
        if partition.check_leader_epoch(wish.current_leader_epoch) is not NONE:
            continue
        log = partition.log
        if log.log_start_offset <= wish.fetch_offset <= log.end_offset and divergence(log, wish) is None:
            agreeing[key] = None
            follower = partition.follower_fetched(
                replica.replica_id, wish.fetch_offset, wish.log_start_offset, replica.replica_epoch, now_ms
            )
            if updates is not None:
                updates.watch(key, partition)
                follower.requests = updates
            in_sync.may_join(partition, replica.replica_id, now_ms)
            partition.advance()
    return agreeing


def refusal_of_replica(partition: Partition, replica: ReplicaState) -> ErrorCode:
    """The error of a follower's fetch: NOT_LEADER_OR_FOLLOWER if this broker does not lead the partition or the
    partition has no such follower, or if the follower's broker epoch is earlier than that of its last fetch.

    A broker that restarts with an empty disk has a new broker epoch, and no longer has what its former process fetched
    (KIP-903).
    """
    leadership = partition.leadership
    follower = leadership.followers.get(replica.replica_id) if leadership is not None else None
    if follower is None or -1 < replica.replica_epoch < follower.broker_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def divergence(log: Log, wish: FetchPartition) -> EpochEnd | None:
    """Where the client's log diverges from this log: the end in this log of the client's last epoch, or of the last
    epoch before it. None if the client's log is a prefix of this log (KIP-595).

    `UNDEFINED_END` if this log has no epoch at or below the client's.
    """
    if wish.last_fetched_epoch < 0:
        return None
    end = log.end_offset_for_epoch(wish.last_fetched_epoch)
    agrees = end.epoch == wish.last_fetched_epoch and end.end_offset >= wish.fetch_offset
    return None if agrees else end


class UpdatedPartitions:
    """The partitions of one follower's session that may have changed since its last response, by the key of the
    session."""

    __slots__ = ("_swept_ms", "_watched", "keys", "last_ms", "on_update", "previous_ms")

    def __init__(self) -> None:
        self.keys: dict[PartitionKey, None] = {}
        self.on_update: Callable[[], None] | None = None
        """The function to call at an update that the follower should receive at once; None while no fetch of the
        session waits."""
        self.last_ms = NEVER_MS
        self.previous_ms = NEVER_MS
        self._watched: dict[PartitionKey, SessionListener] = {}
        self._swept_ms = NEVER_MS

    def note_request(self, now_ms: int) -> None:
        """Note the time (ms) of a request of the follower."""
        self.previous_ms, self.last_ms = self.last_ms, now_ms

    def note(self, key: PartitionKey) -> None:
        """Note that a partition has changed, so that the next response examines it."""
        self.keys[key] = None

    def note_urgent(self, key: PartitionKey) -> None:
        """Note that a partition has changed, and that the follower should receive the change at once."""
        self.keys[key] = None
        if self.on_update is not None:
            self.on_update()

    def watch(self, key: PartitionKey, partition: Partition) -> None:
        """Listen to changes of a partition until `forget` or `close`. It has no effect if the session listens to it
        already."""
        known = self._watched.get(key)
        if known is None or known.partition is not partition:
            if known is not None:
                known.end()
            self._watched[key] = SessionListener(self, key, partition)

    def forget(self, key: PartitionKey) -> None:
        """Stop listening to a partition, because the follower has removed it from its session. The follower's requests
        no longer confirm offsets of the partition."""
        self.keys.pop(key, None)
        known = self._watched.pop(key, None)
        if known is not None:
            known.end()

    def sweep(self, reported: Callable[[PartitionKey], tuple[int, int]], now_ms: int) -> None:
        """Note the partitions that have changed without a notification, at most once in `SWEEP_MS`.

        `reported` returns the high watermark and the log start offset that the last response reported for a partition.
        """
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        for key, each in self._watched.items():
            if reported(key) != (each.partition.high_watermark, each.partition.log.log_start_offset):
                self.keys[key] = None

    def close(self) -> None:
        """Stop listening to all partitions, because the session has ended."""
        for each in self._watched.values():
            each.end()
        self._watched.clear()
        self.keys.clear()
        self.on_update = None


class SessionListener:
    """The listener to one partition of a follower's session. It notes changes of the partition in
    `UpdatedPartitions`."""

    __slots__ = ("_key", "_log_start_offset", "_updates", "partition")

    def __init__(self, updates: UpdatedPartitions, key: PartitionKey, partition: Partition) -> None:
        self._updates = updates
        self._key = key
        self.partition = partition
        self._log_start_offset = partition.log.log_start_offset
        partition.add_listener(self)

    def end(self) -> None:
        """Stop listening to the partition, because it is not in the session any more."""
        partition = self.partition
        partition.remove_listener(self)
        for follower in partition.leadership.followers.values() if partition.leadership is not None else ():
            if follower.requests is self._updates:
                follower.requests = None

    def on_log_end_offset_updated(self) -> None:
        self._updates.note_urgent(self._key)

    def on_high_watermark_updated(self) -> None:
        # Not urgent: followers learn the high watermark with their next records, or when their wait ends.
        self._updates.note(self._key)

    def on_log_start_offset_updated(self) -> None:
        log_start_offset = self.partition.log.log_start_offset
        if log_start_offset != self._log_start_offset:
            self._log_start_offset = log_start_offset
            self._updates.note_urgent(self._key)  # A client's DeleteRecords waits until the followers know it.
        else:
            self._updates.note(self._key)  # Another follower has moved its own.

    def on_becoming_follower(self) -> None:
        self._updates.note_urgent(self._key)

    def on_gone(self, error: ErrorCode) -> None:
        self._updates.note_urgent(self._key)
