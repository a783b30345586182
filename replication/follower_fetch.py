"""Applies a follower's fetch to the leader's state before any records are read. Keeps the partitions of the follower's
fetch session that may have changed since its last response (KIP-227).

A leader examines only these partitions when the follower fetches, so that idle partitions cost nothing. An append, a
commit, a change of role, or changed fetch parameters put a partition into `UpdatedPartitions.keys`. It is removed when
a response finds that the follower has everything. Some changes come without a notification, such as a move of the log
start offset by retention. A periodic sweep over all partitions finds these.

A request that does not name a partition repeats its last fetch parameters. So the time of the last request,
`last_request_ms`, is the time of the last fetch of every partition in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, ReplicaState
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.leader_epochs import EpochEnd
from moldau.storage.log.log import Log

NO_ERROR: Final = ErrorCode.NONE
"""A module-level name for `ErrorCode.NONE`, because the lookup of an enum member costs as much as a call."""
NO_EPOCH: Final = -1


TopicKey = str | bytes
"""A topic in the form that the client's version of Fetch uses: its name up to version 12, its id from version 13 on."""
PartitionKey = tuple[TopicKey, int]
SWEEP_INTERVAL_MS: Final = 1000
NEVER_MS: Final = -(1 << 62)


class LocalReplicas(Protocol):
    """The replicas of partitions on this broker."""

    def find(self, key: PartitionKey) -> Partition | None:
        """Return the replica of a partition on this broker, by topic name or id and index; None if there is none."""

    def error_of(self, topic: str | bytes, index: int) -> ErrorCode:
        """Return the error for a partition without a replica on this broker."""


class InSyncSetProposer(Protocol):
    """Proposes changes of in-sync sets to the controller."""

    def propose_if_caught_up(self, partition: Partition, replica_id: int, now_ms: int) -> None:
        """Propose to add a follower that has just fetched to the in-sync set, if it has caught up."""


def replica_of(request: FetchRequest) -> ReplicaState | None:
    """Return the follower that sent a fetch; None for a consumer. Before version 15 requests have only the id of the
    follower.
    """
    if request.replica_state is not None:
        return request.replica_state if request.replica_state.replica_id >= 0 else None
    return ReplicaState(replica_id=request.replica_id) if request.replica_id >= 0 else None


def update_fetch_states(
    replicas: LocalReplicas,
    in_sync: InSyncSetProposer,
    replica: ReplicaState,
    wanted: Iterable[tuple[PartitionKey, FetchPartition]],
    now_ms: int,
    updates: UpdatedPartitions | None,
) -> dict[PartitionKey, None]:
    """Store the fetch offsets of a follower, and advance the high watermarks. It is called before the fetch is planned,
    so that the response has the new high watermarks.

    Returns the partitions in which the follower's log is a prefix of the leader's. Only their fetch offsets are stored:
    a follower whose log diverges will truncate the records below its fetch offset (KIP-101).
    """
    agreeing: dict[PartitionKey, None] = {}
    for key, wish in wanted:
        partition = replicas.find(key)
        if partition is None or refusal_of_replica(partition, replica) is not NO_ERROR:
            continue
        if partition.check_leader_epoch(wish.current_leader_epoch) is not NO_ERROR:
            continue
        log = partition.log
        if log.log_start_offset <= wish.fetch_offset <= log.end_offset and divergence_of(log, wish) is None:
            agreeing[key] = None
            follower = partition.note_follower_fetch(
                replica.replica_id, wish.fetch_offset, wish.log_start_offset, replica.replica_epoch, now_ms
            )
            if updates is not None:
                updates.listen_to(key, partition)
                follower.session_request_times = updates
            in_sync.propose_if_caught_up(partition, replica.replica_id, now_ms)
            partition.advance_high_watermark()
    return agreeing


def refusal_of_replica(partition: Partition, replica: ReplicaState) -> ErrorCode:
    """The error for a follower's fetch; NONE if the fetch is allowed.

    The error is NOT_LEADER_OR_FOLLOWER if this broker does not lead the partition, if the follower is not among its
    replicas, or if the follower's broker epoch is older than at its last fetch. A broker that restarts with an empty
    disk has a new broker epoch, and has lost what its former process fetched (KIP-903).
    """
    leadership = partition.leadership
    follower = leadership.followers.get(replica.replica_id) if leadership is not None else None
    if follower is None or -1 < replica.replica_epoch < follower.broker_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def divergence_of(log: Log, wish: FetchPartition) -> EpochEnd | None:
    """Compare the log of the client that sent `wish` with this log (KIP-595).

    Returns None if the client's log is a prefix of this log, and otherwise the end of the last epoch that both logs
    share. It is `UNDEFINED_END` if this log has no epoch at or below the client's.
    """
    if wish.last_fetched_epoch < 0:
        return None
    end = log.end_offset_for_epoch(wish.last_fetched_epoch)
    agrees = end.epoch == wish.last_fetched_epoch and end.end_offset >= wish.fetch_offset
    return None if agrees else end


class UpdatedPartitions:
    """The partitions of one follower's session that may have changed since its last response."""

    __slots__ = ("_swept_ms", "_watched", "keys", "last_request_ms", "on_update", "previous_request_ms")

    def __init__(self) -> None:
        self.keys: dict[PartitionKey, None] = {}
        self.on_update: Callable[[], None] | None = None
        """Called at an update that the follower should get at once; None while no fetch of the session waits."""
        self.last_request_ms = NEVER_MS
        self.previous_request_ms = NEVER_MS
        self._watched: dict[PartitionKey, SessionListener] = {}
        self._swept_ms = NEVER_MS

    def note_request(self, now_ms: int) -> None:
        """Record the time (ms) of a request of the follower."""
        self.previous_request_ms, self.last_request_ms = self.last_request_ms, now_ms

    def note_change(self, key: PartitionKey) -> None:
        """Mark a partition as changed, so that the next response examines it."""
        self.keys[key] = None

    def note_urgent_change(self, key: PartitionKey) -> None:
        """Mark a partition as changed, and answer a waiting fetch of the follower at once."""
        self.keys[key] = None
        if self.on_update is not None:
            self.on_update()

    def listen_to(self, key: PartitionKey, partition: Partition) -> None:
        """Start to listen to a partition; no effect if the session listens to it already. `stop_listening_to` or
        `close` ends it.
        """
        known = self._watched.get(key)
        if known is None or known.partition is not partition:
            if known is not None:
                known.stop_listening()
            self._watched[key] = SessionListener(self, key, partition)

    def stop_listening_to(self, key: PartitionKey) -> None:
        """Stop listening to a partition that the follower removed from its session. Later requests of the session no
        longer count as fetches of the partition.
        """
        self.keys.pop(key, None)
        known = self._watched.pop(key, None)
        if known is not None:
            known.stop_listening()

    def find_unnotified_changes(self, reported: Callable[[PartitionKey], tuple[int, int]], now_ms: int) -> None:
        """Mark the partitions whose offsets changed without a notification. Searches at most once in
        `SWEEP_INTERVAL_MS`.

        `reported`: returns the high watermark and log start offset that the last response had for a partition.
        """
        if now_ms - self._swept_ms < SWEEP_INTERVAL_MS:
            return
        self._swept_ms = now_ms
        for key, each in self._watched.items():
            if reported(key) != (each.partition.high_watermark, each.partition.log.log_start_offset):
                self.keys[key] = None

    def close(self) -> None:
        """Stop listening to all partitions at the end of the session."""
        for each in self._watched.values():
            each.stop_listening()
        self._watched.clear()
        self.keys.clear()
        self.on_update = None


class SessionListener:
    """Listens to one partition of a follower's session, and marks its changes in `UpdatedPartitions`."""

    __slots__ = ("_key", "_log_start_offset", "_updates", "partition")

    def __init__(self, updates: UpdatedPartitions, key: PartitionKey, partition: Partition) -> None:
        self._updates = updates
        self._key = key
        self.partition = partition
        self._log_start_offset = partition.log.log_start_offset
        partition.add_listener(self)

    def stop_listening(self) -> None:
        """Stop listening, because the partition left the session."""
        partition = self.partition
        partition.remove_listener(self)
        for follower in partition.leadership.followers.values() if partition.leadership is not None else ():
            if follower.session_request_times is self._updates:
                follower.session_request_times = None

    def on_log_end_offset_updated(self) -> None:
        self._updates.note_urgent_change(self._key)

    def on_high_watermark_updated(self) -> None:
        # Not urgent: followers learn the high watermark with their next records, or when their wait ends.
        self._updates.note_change(self._key)

    def on_log_start_offset_updated(self) -> None:
        log_start_offset = self.partition.log.log_start_offset
        if log_start_offset != self._log_start_offset:
            self._log_start_offset = log_start_offset
            self._updates.note_urgent_change(self._key)  # A client's DeleteRecords waits until the followers know it.
        else:
            self._updates.note_change(self._key)  # Another follower has moved its own.

    def on_becoming_follower(self) -> None:
        self._updates.note_urgent_change(self._key)

    def on_gone(self, error: ErrorCode) -> None:
        self._updates.note_urgent_change(self._key)
