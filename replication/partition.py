"""A replica of a partition on this broker: under its leader it takes appends, under its follower what the leader has.

    end offset ──────── where this replica's log ends
    high watermark ──── what every in-sync replica has: consumers read up to here
    log start offset ── retention and DeleteRecords move it forward

    offline ──become_leader──▶ leader ──become_follower──▶ follower ──become_leader──▶ leader …
       each change of role comes with a higher leader epoch; what waits for a role is told when it ends

With the leader alone in sync, the high watermark follows the end offset at once; where flush.messages asks for a sync,
only after that: what a consumer has read, no loss of power takes back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from protocol.errors import ErrorCode
from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_batch import HEADER_SIZE, parse_header
from protocol.record_validation import RejectedBatch, ValidBatch
from replication.commit_waits import Committed, CommitWaits
from replication.follower_progress import FollowerProgress
from replication.in_sync_set import InSyncSet
from replication.leadership import Leadership
from replication.replica_news import ReplicaNews
from storage.log.append_result import AppendOrigin, AppendResult
from storage.log.log import Log

ACKS_ALL: Final = -1
NONE: Final = ErrorCode.NONE
"""Looked up once: an enum's member costs as much as a call."""


class Partition:
    """One replica, whose log is on this broker."""

    __slots__ = (
        "_append_waiters",
        "_commit_waits",
        "_first_end_offset",
        "_news",
        "_waiters",
        "bytes_in",
        "bytes_out",
        "has_fetched",
        "high_watermark",
        "index",
        "is_internal",
        "isr",
        "lag",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "min_insync_replicas",
        "partition_epoch",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: Log, high_watermark: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        """As the controller has confirmed it; followers do not keep it."""
        self.leadership: Leadership | None = None
        """Where this replica leads."""
        self.min_insync_replicas = 1
        """How many must be in sync for an append under acks=all; never more than there are replicas."""
        self.is_internal = False
        """Whether only coordinators write it: a client's batch is refused."""
        self.high_watermark = high_watermark
        self.lag = 0
        """Of a follower: offsets up to the leader's high watermark that it did not have after its last fetch."""
        self.has_fetched = False
        """Of a follower: an answer of its leader was taken."""
        self.bytes_in = 0
        """Appended for clients since this object was made."""
        self.bytes_out = 0
        """Given to consumers, counted by whoever does it."""
        self._first_end_offset = log.end_offset
        self._waiters: dict[Callable[[], None], None] = {}
        self._append_waiters: dict[Callable[[], None], None] = {}
        self._commit_waits = CommitWaits()
        self._news: dict[ReplicaNews, tuple[str | bytes, int]] = {}

    @property
    def messages_in(self) -> int:
        """Records appended since this object was made."""
        return self.log.end_offset - self._first_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where no transaction is open, never past the high watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def epoch_start_offset(self) -> int:
        """Where this leader's term began; 0 where it does not lead."""
        return self.leadership.epoch_start_offset if self.leadership is not None else 0

    # Roles

    def become_leader(
        self,
        leader_id: int,
        leader_epoch: int,
        isr: tuple[int, ...],
        *,
        replicas: tuple[int, ...] = (),
        partition_epoch: int = 0,
        now_ms: int = 0,
    ) -> None:
        """Lead from this epoch on, or go on leading with what the controller has confirmed since."""
        replicas = replicas or isr
        in_sync = InSyncSet(isr, partition_epoch)
        if leader_epoch > self.leader_epoch or self.leadership is None:
            self.log.epochs.assign(leader_epoch, self.log.end_offset)
            self.leadership = Leadership(leader_id, replicas, in_sync, self.log.end_offset, now_ms)
            self.lag = 0
        elif partition_epoch >= self.partition_epoch:
            if replicas != self.leadership.replicas:
                self.leadership.reassigned(replicas, now_ms)
            if partition_epoch > self.partition_epoch:
                self.leadership.assume(in_sync)
                self._let_look()
            # Else the set is known already: the controller's answer was faster, or a change is still under way.
        else:
            return
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = self.leadership.in_sync.confirmed
        self.advance()

    def become_follower(self, leader_id: int, leader_epoch: int, partition_epoch: int = 0) -> None:
        """Follow from this epoch on; -1 where nobody leads. Whoever waits for a commit is sent to the new leader."""
        was_leader, self.leadership = self.leadership is not None, None
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = ()
        if was_leader:
            self._commit_waits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.wake()

    def gone(self, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        """This broker has no replica any more; who waits for a commit is told `error`."""
        self.leadership = None
        self._commit_waits.fail(error)
        self.wake()

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """Whether a client that knows this leader epoch (-1: none) talks to the leader it means."""
        if epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    # Leading

    def append(self, records: BytesLike, required_acks: int, now_ms: int, produce_version: int) -> AppendResult:
        """Append a client's batch. A refusal is in the result's error; nothing is then written."""
        if self.leadership is None:
            return self._refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            return self._refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = self.log.append_as_leader(records, self.leader_epoch, now_ms, produce_version=produce_version)
        if result.error is NONE:
            self.bytes_in += len(records)
            self._appended()
        return result

    def append_examined(
        self, examined: ValidBatch | RejectedBatch, size: int, required_acks: int, now_ms: int
    ) -> AppendResult:
        """The same for a batch of so many bytes that was examined beside the loop."""
        if self.leadership is None:
            return self._refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            return self._refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = self.log.append_examined(examined, self.leader_epoch, now_ms)
        if result.error is NONE:
            self.bytes_in += size
            self._appended()
        return result

    def append_internal(self, batch: BytesLike, now_ms: int) -> AppendResult:
        """Append a batch that a coordinator of this process made, under acks=all."""
        if self.leadership is None:
            return self._refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if len(self.isr) < self.min_insync_replicas:
            return self._refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        result = self.log.append_as_leader(batch, self.leader_epoch, now_ms, origin=AppendOrigin.COORDINATOR)
        if result.error is ErrorCode.NONE:
            self._appended()
        return result

    def when_committed(self, end_offset: int, committed: Committed) -> None:
        """Call once everything before an offset of this leader's log is committed, or never will be here.

        NOT_ENOUGH_REPLICAS_AFTER_APPEND where the in-sync set is too small by then.
        """
        if end_offset <= self.high_watermark:
            committed(self._commit_error())
        else:
            self._commit_waits.add(end_offset, committed)

    def follower_fetched(
        self, replica_id: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> FollowerProgress:
        """A follower asks for what begins at an offset: it has everything before. `advance` commits what it may."""
        assert self.leadership is not None
        follower = self.leadership.followers[replica_id]
        has_trimmed = log_start_offset != follower.log_start_offset
        follower.fetched(offset, self.log.end_offset, log_start_offset, broker_epoch, now_ms)
        if has_trimmed:
            self._let_look()
        return follower

    def delete_before(self, offset: int) -> ErrorCode:
        """Move the start of the log forward, at most to the high watermark; followers hear of it when they fetch."""
        refusal = self.log.advance_log_start(offset, self.high_watermark)
        for news, key in self._news.items():
            news.note(key)
        return refusal

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """Where the log begins on all replicas whose brokers are alive; -1 where one was not heard of in this term."""
        assert self.leadership is not None
        starts = (each.log_start_offset for replica, each in self.leadership.followers.items() if is_alive(replica))
        return min((self.log.log_start_offset, *starts))

    def propose(self, isr: tuple[int, ...]) -> None:
        """The controller is being asked for this in-sync set."""
        assert self.leadership is not None
        self.leadership.assume(self.leadership.in_sync.propose(isr))

    def in_sync_set_refused(self) -> None:
        """The controller refused what was proposed: the confirmed set goes on."""
        if self.leadership is not None:
            self.leadership.assume(self.leadership.in_sync.refused())
            self.advance()

    def in_sync_set_confirmed(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """What the controller answered; older news than what is known is none."""
        if self.leadership is not None and partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self.isr = isr
            self.leadership.assume(InSyncSet(isr, partition_epoch))
            self.advance()

    # Following

    def append_fetched(
        self, records: BytesLike, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> AppendResult:
        """Take the leader's batches as they are; the leader's high watermark holds as far as this log goes."""
        self._begin_with(records, now_ms)
        result = self.log.append_as_follower(records, self.leader_epoch, now_ms)
        self.lag = max(0, high_watermark - self.log.end_offset)
        if result.error is NONE:
            self.has_fetched = True
            self.follow_high_watermark(high_watermark)
            if log_start_offset > self.log.log_start_offset:
                self.log.advance_log_start(min(log_start_offset, self.log.end_offset), self.log.end_offset)
        return result

    def _begin_with(self, records: BytesLike, now_ms: int) -> None:
        """An empty log that was begun at its leader's start begins with the batch that holds that offset: records were
        deleted up to the middle of it, and batches come whole. What cannot be is told by the append that follows."""
        log = self.log
        if log.end_offset != log.log_start_offset or len(records) < HEADER_SIZE or log.failure is not None:
            return
        with suppress(MalformedMessage, OSError):
            header = parse_header(records, 0)
            if header.base_offset < log.end_offset < header.next_offset:
                log.truncate_fully_and_start_at(header.base_offset, now_ms)

    def follow_high_watermark(self, high_watermark: int) -> None:
        """The leader's, as a fetch brings it. It lags there and here; it never goes back but for a truncation."""
        self._move_high_watermark(min(high_watermark, self.log.end_offset))

    def truncated(self) -> None:
        """The log was cut to where this replica and its leader agree."""
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), self.log.end_offset)

    # Waiting

    def wait(self, waiter: Callable[[], None], *, for_appends: bool = False) -> None:
        """Call the waiter at every move of the high watermark, or of the log's end on a leader, until `forget`; also
        when a follower deletes what its leader has deleted, and when the controller has changed the in-sync set."""
        (self._append_waiters if for_appends else self._waiters)[waiter] = None

    def forget(self, waiter: Callable[[], None]) -> None:
        self._waiters.pop(waiter, None)
        self._append_waiters.pop(waiter, None)

    def wake(self) -> None:
        """Let all waiters look again: the partition is gone, or its leadership is."""
        for waiter in (*self._waiters, *self._append_waiters):
            waiter()
        for news, key in self._news.items():
            news.note_urgent(key)

    def tell(self, news: ReplicaNews, key: tuple[str | bytes, int]) -> None:
        """Note appends, commits and changes of role in the news of a follower's session, until `untell`."""
        self._news[news] = key

    def untell(self, news: ReplicaNews) -> None:
        """The follower's requests say nothing of this partition any more."""
        self._news.pop(news, None)
        for follower in self.leadership.followers.values() if self.leadership is not None else ():
            if follower.news is news:
                follower.news = None

    def _appended(self) -> None:
        for news, key in self._news.items():
            news.note_urgent(key)
        if self._append_waiters:
            for waiter in tuple(self._append_waiters):
                waiter()
        self.advance()

    @property
    def awaits_flush(self) -> bool:
        """Whether records are not committed yet because flush.messages asks for a sync first."""
        return self.log.unflushed_count >= self.log.config.flush_messages

    @property
    def awaits_write_back(self) -> bool:
        """Whether much of what was written is not on the disk yet."""
        active = self.log.active
        return active.size >= active.write_back_at

    def advance(self) -> None:
        """Commit what everybody has who may be in sync: after an append, a fetch of a follower, a sync.

        Nothing while fewer are in sync than min.insync.replicas: what so few have may be lost with them (KIP-966).
        """
        leadership = self.leadership
        if leadership is None or len(self.isr) < self.min_insync_replicas:
            return
        log = self.log
        end_offset = log.end_offset
        if end_offset - log.synced_end_offset >= log.config.flush_messages:
            end_offset = log.synced_end_offset
        if leadership.followers:
            end_offset = min(end_offset, leadership.high_watermark(end_offset))
        self._move_high_watermark(end_offset)

    def _move_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self._commit_waits:
                self._commit_waits.reached(offset, self._commit_error())
            for news, key in self._news.items():
                news.note(key)
            self._let_look()

    def _let_look(self) -> None:
        for waiter in tuple(self._waiters) if self._waiters else ():
            waiter()

    def _commit_error(self) -> ErrorCode:
        return NONE if len(self.isr) >= self.min_insync_replicas else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def _refused(self, error: ErrorCode) -> AppendResult:
        return AppendResult(error, -1, -1, -1, self.log.log_start_offset)
