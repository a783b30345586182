"""The follower's state machine for one leader: it makes the next fetch, and decides on each response.

Each partition is in one state; every state but FETCHING leaves it out of the requests.

    FETCHING   ──diverging epoch, or the leader's log ends before this one──▶ TRUNCATING ──truncated──▶ FETCHING
    FETCHING   ──offset out of the leader's range──▶ LOOKING_UP ──▶ TRUNCATING, or empty from the leader's log start on
    FETCHING   ──the leader has the offset only in remote storage──▶ REBUILDING ──the log begins anew──▶ FETCHING
    FETCHING   ──flush.messages or more are unflushed──▶ FLUSHING ──flushed──▶ FETCHING
    FETCHING   ──over the quota of followers, and throttled──▶ DELAYED ──after 100 ms──▶ FETCHING
    FETCHING   ──an error──▶ DELAYED ──after 20 ms, then longer, up to replica.fetch.backoff.ms──▶ FETCHING

The fetch offset tells the leader which records this replica has, so the order is binding: truncate, then fetch; flush
if the topic asks for it, then fetch. The leader's high watermark is taken only from a response without a diverging
epoch. Otherwise a truncation could go below it, and remove records that count as committed (KIP-101).

What the machine cannot do itself it asks for as effects, which its shell carries out.

`FetchSessionHandler`, the follower's side of the incremental fetch session (KIP-227), chooses the partitions that the
next request names. The leader remembers the partitions of a session with the fetch parameters of each. So a request
names the partitions whose parameters have changed, and those that the follower removes. After any error of the session
a new session begins with all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from moldau.replication.partition import Partition
from moldau.replication.replication_quota import ReplicationQuota

SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
UNDEFINED_EPOCH: Final = -1
BACKOFF_MS_FIRST: Final = 20
BACKOFF_DOUBLINGS_MAX: Final = 16
SWEEP_INTERVAL_MS: Final = 5000
THROTTLE_DELAY_MS: Final = 100
"""The time (ms) for which a throttled partition is not fetched before the quota is checked again."""

WAIT_MS_MAX_WHILE_FLUSHING: Final = 10
"""The maximum wait (ms) at the leader for a request that leaves out partitions being flushed.

It is short, because producers with acks=all wait for the next request, which confirms the flushed records.
"""


class TruncateLog(NamedTuple):
    """Effect: truncate the log to this offset, after a lower recovery point is durable. Report it with
    `on_truncated`.
    """

    partition: Partition
    leader_epoch: int
    offset: int


class RestartLogAt(NamedTuple):
    """Effect: remove all records of the log, and start it at this offset. Report it with `on_truncated`."""

    partition: Partition
    leader_epoch: int
    offset: int


class FlushLog(NamedTuple):
    """Effect: make the log durable. Report it with `on_flushed`."""

    partition: Partition
    leader_epoch: int


class LookUpLeaderOffsets(NamedTuple):
    """Effect: ask the leader for its log start and log end offset. Report them with `on_looked_up`."""

    partition: Partition
    leader_epoch: int


class RebuildFromRemote(NamedTuple):
    """Effect: remove all records of the log, and start it at the leader's local log start offset, with the state of the
    remote log before it. Report it with `on_rebuilt`.

    It is needed if the leader has the next offset only in remote storage.
    """

    partition: Partition
    leader_epoch: int
    log_start_offset: int
    """The leader's log start offset."""


class LogWarning(NamedTuple):
    """Effect: log a warning for the operator."""

    message: str


Effect: TypeAlias = TruncateLog | RestartLogAt | FlushLog | LookUpLeaderOffsets | RebuildFromRemote | LogWarning
Key = tuple[bytes, int]
"""A partition: topic id and partition index."""
NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
SESSION_EPOCH_MAX: Final = 0x7FFFFFFF


class FetchState(Enum):
    """The state of a followed partition. It is fetched only in FETCHING; in every other state it waits for something to
    end.
    """

    FETCHING = auto()
    TRUNCATING = auto()
    LOOKING_UP = auto()
    REBUILDING = auto()
    FLUSHING = auto()
    DELAYED = auto()


class FetcherSettings(NamedTuple):
    """The settings replica.fetch.*, with Kafka's names."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000


class FollowedPartition:
    """A partition that the fetcher follows, and its state."""

    __slots__ = ("failure_count", "key", "partition", "ready_ms", "state")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.state = FetchState.FETCHING
        self.ready_ms = 0
        """In the state DELAYED, the time (ms) of the next fetch."""
        self.failure_count = 0
        """The number of failures in a row."""


class ReplicaFetcher:
    """Fetches the partitions that one leader leads and this broker follows.

    One request is in flight at a time: `next_request` makes it, `on_response` or `on_request_failed` handles its
    outcome. Requests name only partitions with changed fetch parameters (fetch session, KIP-227).
    """

    def __init__(self, replica_id: int, settings: FetcherSettings, quota: ReplicationQuota | None = None) -> None:
        """`quota`: the replication quota that all followers of this broker share."""
        self._replica_id = replica_id
        self._quota = quota or ReplicationQuota()
        self._settings = settings
        self._session = FetchSessionHandler()
        self._followed: dict[Key, FollowedPartition] = {}
        self._changed: dict[Key, None] = {}
        """The partitions that the next request may have to name, because the leader may have other fetch parameters for
        them."""
        self._delayed: dict[Key, FollowedPartition] = {}
        self._flushing: set[Key] = set()
        self._ready_ms = 0
        """The time (ms) from which on the next request may be sent, after the leader did not respond."""
        self._failure_count = 0
        self._swept_ms = 0

    def __bool__(self) -> bool:
        return bool(self._followed)

    @property
    def partitions(self) -> Iterable[Partition]:
        return [each.partition for each in self._followed.values()]

    # Followed partitions

    def follow(self, partition: Partition) -> FlushLog | None:
        """Start to fetch a partition from its log end offset, in its leader epoch. Called again when the epoch changes.

        The caller first carries out the returned effect: with flush.messages, records left unflushed must be durable
        before the first fetch confirms them to the leader.
        """
        followed = FollowedPartition(partition)
        self._followed[followed.key] = followed
        self._changed[followed.key] = None
        self._delayed.pop(followed.key, None)
        self._flushing.discard(followed.key)
        if partition.awaits_flush:
            self._enter(followed, FetchState.FLUSHING)
            return FlushLog(partition, partition.leader_epoch)
        return None

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        if self._followed.pop(key, None) is not None:
            self._changed[key] = None
            self._delayed.pop(key, None)
            self._flushing.discard(key)

    # Fetching

    def next_request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """Make the next fetch request. None if there is nothing to fetch until an effect is done, or until
        `next_deadline_ms`.
        """
        if now_ms < self._ready_ms:
            return None
        self._look_around(now_ms)
        wishes: dict[Key, FetchPartition] = {}
        forgotten: list[Key] = []
        known = self._session.session_partitions
        more = 0
        if self._quota.is_exceeded(now_ms):
            self._hold_back(now_ms)
        for key in self._changed:
            followed = self._followed.get(key)
            if followed is not None and followed.state is FetchState.FETCHING:
                wishes[key] = self._wish(followed.partition)
                more += key not in known
            elif key in known:
                forgotten.append(key)
        if len(known) + more == len(forgotten):
            return None
        self._changed = {}
        settings = self._settings
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._replica_id, replica_epoch=broker_epoch),
            max_wait_ms=min(settings.wait_max_ms, WAIT_MS_MAX_WHILE_FLUSHING)
            if self._flushing
            else settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
        )
        self._session.fill_request(request, wishes, forgotten)
        return request

    def _hold_back(self, now_ms: int) -> None:
        """Delay the throttled partitions that lag by `THROTTLE_DELAY_MS`, because the replication quota is exceeded."""
        for key in self._changed:
            followed = self._followed.get(key)
            if followed is not None and followed.state is FetchState.FETCHING and followed.partition.lag_behind_leader:
                partition = followed.partition
                if self._quota.is_throttled(partition.topic, partition.index):
                    followed.state = FetchState.DELAYED
                    followed.ready_ms = now_ms + THROTTLE_DELAY_MS
                    self._delayed[key] = followed

    def next_deadline_ms(self) -> int | None:
        """The time (ms) when the next delayed partition may be fetched; None if none is delayed."""
        if not self._delayed:
            return None
        return max(min(each.ready_ms for each in self._delayed.values()), self._ready_ms)

    def retry_delay_ms(self, now_ms: int) -> int:
        """The delay (ms) before the next fetch may be sent to a leader that did not respond; 0 if one may be sent
        now.
        """
        return max(0, self._ready_ms - now_ms)

    def _look_around(self, now_ms: int) -> None:
        """Resume the delayed partitions whose delay is over.

        Every `SWEEP_INTERVAL_MS` also mark the partitions whose log start offset moved by retention, so that the next
        request reports it to the leader.
        """
        for key, followed in list(self._delayed.items()):
            if now_ms >= followed.ready_ms:
                del self._delayed[key]
                self._enter(followed, FetchState.FETCHING)
        if now_ms - self._swept_ms >= SWEEP_INTERVAL_MS:
            self._swept_ms = now_ms
            for key, wish in self._session.session_partitions.items():
                moved = self._followed.get(key)
                if moved is not None and wish.log_start_offset != moved.partition.log.log_start_offset:
                    self._changed[key] = None

    def _enter(self, followed: FollowedPartition, state: FetchState) -> None:
        followed.state = state
        self._changed[followed.key] = None
        if state is FetchState.FLUSHING:
            self._flushing.add(followed.key)
        else:
            self._flushing.discard(followed.key)

    def _wish(self, partition: Partition) -> FetchPartition:
        log = partition.log
        # A log without records cannot diverge: every record before its start was committed. Its last epoch may be one
        # that a crash brought back; the leader's answer to that epoch could truncate the replica below its log start
        # offset.
        is_empty = log.end_offset == log.log_start_offset
        return FetchPartition(
            partition=partition.index,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=UNDEFINED_EPOCH if is_empty else log.epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self._settings.max_bytes,
        )

    def on_request_failed(self, now_ms: int) -> None:
        """Handle a request without a response: drop the fetch session, and wait for a backoff."""
        self._begin_anew()
        self._ready_ms = now_ms + self._backoff_ms(self._failure_count)
        self._failure_count += 1

    def _begin_anew(self) -> None:
        self._session.reset_session()
        self._changed = dict.fromkeys(self._followed)

    def _backoff_ms(self, failure_count: int) -> int:
        """The backoff (ms) after a number of failures: it doubles with each failure, up to replica.fetch.backoff.ms.

        The first backoffs are short, because a leader that has not learnt of its election yet, or that restarts,
        responds soon, and its acks=all requests wait for this follower.
        """
        return min(self._settings.backoff_ms, BACKOFF_MS_FIRST << min(failure_count, BACKOFF_DOUBLINGS_MAX))

    def on_response(self, response: FetchResponse, wall_ms: int, now_ms: int) -> list[Effect]:
        """Handle a response. Returns effects that the caller must begin before it calls `next_request` again."""
        effects: list[Effect] = []
        if response.error_code != ErrorCode.NONE:
            if response.error_code in SESSION_ERRORS:
                self._begin_anew()
            else:
                self.on_request_failed(now_ms)
                effects.append(
                    LogWarning(
                        f"the leader refused a fetch with {ErrorCode(response.error_code).name}; it is sent again"
                    )
                )
            return effects
        self._failure_count = 0
        known = self._session.session_partitions
        is_kept = self._session.note_accepted(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed, wish = self._followed.get(key), known.get(key)
                self._changed[key] = None
                if followed is None or wish is None or followed.state is not FetchState.FETCHING:
                    continue  # The partition is not followed any more, or is not being fetched.
                partition = followed.partition
                if (
                    wish.current_leader_epoch == partition.leader_epoch
                    and wish.fetch_offset == partition.log.end_offset
                ):
                    self._apply_response(followed, data, wall_ms, now_ms, effects)
                # Otherwise the request was of an earlier leader epoch, or the log has been truncated since.
        if not is_kept:
            self._begin_anew()
        return effects

    def _apply_response(
        self, followed: FollowedPartition, data: PartitionData, wall_ms: int, now_ms: int, effects: list[Effect]
    ) -> None:
        partition = followed.partition
        error = data.error_code
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._enter(followed, FetchState.LOOKING_UP)
            effects.append(LookUpLeaderOffsets(partition, partition.leader_epoch))
        elif error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._enter(followed, FetchState.REBUILDING)
            effects.append(RebuildFromRemote(partition, partition.leader_epoch, max(data.log_start_offset, 0)))
        elif error != ErrorCode.NONE:
            self._delay(followed, now_ms)
        elif data.diverging_epoch is not None and data.diverging_epoch.epoch != UNDEFINED_EPOCH:
            self._enter(followed, FetchState.TRUNCATING)
            offset = truncation_offset(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            if offset < partition.high_watermark:
                effects.append(
                    LogWarning(
                        f"{partition.topic}-{partition.index} is truncated to offset {offset}, below its high watermark"
                        f" {partition.high_watermark}: the leader's log lacks records that were committed"
                    )
                )
            effects.append(TruncateLog(partition, partition.leader_epoch, offset))
        else:
            self._append(followed, data, wall_ms, now_ms, effects)

    def _append(
        self, followed: FollowedPartition, data: PartitionData, wall_ms: int, now_ms: int, effects: list[Effect]
    ) -> None:
        partition = followed.partition
        records = data.records or b""
        assert isinstance(records, bytes | memoryview), "a response that was received lies in memory"
        result = partition.append_fetched(records, data.high_watermark, data.log_start_offset, wall_ms)
        is_taken = result.error is ErrorCode.NONE
        followed.failure_count = 0 if is_taken else BACKOFF_DOUBLINGS_MAX  # The error does not pass by itself.
        if not is_taken:
            complaint = f"{partition.topic}-{partition.index}: the leader's batches cannot be appended: {result}"
            effects.append(LogWarning(complaint))
        elif records and self._quota.is_throttled(partition.topic, partition.index):
            self._quota.record_bytes(len(records), now_ms)
        if partition.awaits_flush:  # The batches before the refused one too: the next fetch confirms them.
            self._enter(followed, FetchState.FLUSHING)
            effects.append(FlushLog(partition, partition.leader_epoch))
        elif not is_taken:
            self._delay(followed, now_ms)

    def _delay(self, followed: FollowedPartition, now_ms: int) -> None:
        self._enter(followed, FetchState.DELAYED)
        followed.ready_ms = now_ms + self._backoff_ms(followed.failure_count)
        followed.failure_count += 1
        self._delayed[followed.key] = followed

    def awaits(self, effect: TruncateLog | RestartLogAt | RebuildFromRemote) -> bool:
        """Whether an effect must still be carried out. It must not if its partition is followed in another leader epoch
        by now, or is not followed any more, because another log may have the paths of its files.
        """
        state = FetchState.REBUILDING if isinstance(effect, RebuildFromRemote) else FetchState.TRUNCATING
        return self._current(effect.partition, effect.leader_epoch, state) is not None

    # Outcomes of effects. One of an earlier leader epoch is ignored: the partition was followed anew since.

    def on_truncated(self, partition: Partition, leader_epoch: int) -> None:
        self._resume(partition, leader_epoch, FetchState.TRUNCATING)

    def on_truncation_failed(self, partition: Partition, leader_epoch: int, now_ms: int) -> None:
        """Handle a failed truncation: fetch the partition again after the maximum backoff. The leader then reports the
        divergence again.
        """
        followed = self._current(partition, leader_epoch, FetchState.TRUNCATING)
        if followed is not None:
            followed.failure_count = BACKOFF_DOUBLINGS_MAX
            self._delay(followed, now_ms)

    def on_flushed(self, partition: Partition, leader_epoch: int) -> None:
        self._resume(partition, leader_epoch, FetchState.FLUSHING)

    def on_rebuilt(self, partition: Partition, leader_epoch: int) -> None:
        self._resume(partition, leader_epoch, FetchState.REBUILDING)

    def on_rebuild_failed(self, partition: Partition, leader_epoch: int, now_ms: int) -> None:
        """Handle a failed rebuild, in which the leader or the remote storage did not give the state of the remote log.
        The partition is fetched again after a backoff, which leads to another rebuild.
        """
        followed = self._current(partition, leader_epoch, FetchState.REBUILDING)
        if followed is not None:
            self._delay(followed, now_ms)

    def on_look_up_failed(self, partition: Partition, leader_epoch: int, now_ms: int) -> None:
        followed = self._current(partition, leader_epoch, FetchState.LOOKING_UP)
        if followed is not None:
            self._delay(followed, now_ms)

    def on_looked_up(
        self, partition: Partition, leader_epoch: int, start_offset: int, end_offset: int
    ) -> Iterator[Effect]:
        """Handle the leader's offsets, from `start_offset` to `end_offset` (exclusive). Yields the effects that
        truncate or empty this log, if needed.
        """
        followed = self._current(partition, leader_epoch, FetchState.LOOKING_UP)
        if followed is None:
            return
        self._enter(followed, FetchState.TRUNCATING)
        if partition.log.end_offset > end_offset:
            yield LogWarning(
                f"{partition.topic}-{partition.index}: the leader's log ends at {end_offset}, before this replica's"
            )
            yield TruncateLog(partition, leader_epoch, end_offset)
        elif partition.log.end_offset < start_offset:
            yield RestartLogAt(partition, leader_epoch, start_offset)
        else:
            self._enter(followed, FetchState.FETCHING)

    def _resume(self, partition: Partition, leader_epoch: int, state: FetchState) -> None:
        followed = self._current(partition, leader_epoch, state)
        if followed is not None:
            self._enter(followed, FetchState.FETCHING)

    def _current(self, partition: Partition, leader_epoch: int, state: FetchState) -> FollowedPartition | None:
        followed = self._followed.get((partition.topic_id, partition.index))
        if followed is None or followed.partition is not partition or partition.leader_epoch != leader_epoch:
            return None
        return followed if followed.state is state else None


def truncation_offset(partition: Partition, epoch: int, end_offset: int) -> int:
    """Return the offset to truncate to: the highest offset at which this log may agree with the leader's log, in which
    the epochs up to `epoch` end at `end_offset`. It is never past the end of either log.

    If this log does not have that epoch, the end of its previous epoch is taken, and the next fetch checks again: after
    two quick elections the logs may diverge in several epochs (KIP-279).
    """
    ours = partition.log.end_offset_for_epoch(epoch)
    if ours.epoch == UNDEFINED_EPOCH:
        # This log has no epoch at or below the leader's: nothing in it is the leader's.
        return min(partition.log.log_start_offset, end_offset)
    return min(ours.end_offset, end_offset)


class FetchSessionHandler:
    """The follower's side of the fetch session with one leader (KIP-227).

    For each request the caller calls `fill_request`, then `note_accepted` or `reset_session`.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self.session_partitions: dict[Key, FetchPartition] = {}
        """The partitions of the session and their fetch parameters, as the leader knows them after the current
        request.
        """

    def fill_request(self, request: FetchRequest, wishes: dict[Key, FetchPartition], forgotten: Iterable[Key]) -> None:
        """Fill a request with the session's id and epoch, and with the changed and the removed partitions."""
        request.session_id = self._id
        request.session_epoch = self._epoch
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), wish in wishes.items():
            if self.session_partitions.get((topic_id, index)) != wish:
                topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(wish)
        given_up: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in forgotten:
            if self.session_partitions.pop((topic_id, index), None) is not None:
                given_up.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        self.session_partitions.update(wishes)
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(given_up.values())

    def note_accepted(self, session_id: int) -> bool:
        """Handle a response without a session error. Returns False if the leader keeps no session for this follower;
        the next request then names every partition.
        """
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return False
        self._epoch = 1 if session_id != self._id or self._epoch == SESSION_EPOCH_MAX else self._epoch + 1
        self._id = session_id
        return True

    def reset_session(self) -> None:
        """Begin a new session, because the connection was lost or the leader dropped the session."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self.session_partitions = {}
