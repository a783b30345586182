"""A replica of a partition on this broker. As leader it appends the batches of clients, as follower the batches of its
leader.

    log end offset ──── the end of this replica's log
    high watermark ──── every in-sync replica has all records before it: consumers read up to here
    log start offset ── retention and DeleteRecords move it forward

    offline ──become_leader──▶ leader ──become_follower──▶ follower ──become_leader──▶ leader …
       each change of role comes with a higher leader epoch

If the leader alone is in sync, the high watermark follows the log end offset at once. If flush.messages requires a
sync, the high watermark follows only after the sync, so that a loss of power takes back nothing that a consumer has
read.

Listeners (`PartitionListener`) are notified when an offset moves: the purgatory, fetch sessions and coordinators
(decision 10). A partition does not depend on waiting requests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, crc_is_valid, parse_header
from moldau.protocol.record_validation import KEYLESS, RejectedBatch, ValidBatch
from moldau.replication.leadership import FollowerProgress, InSyncSet, Leadership
from moldau.storage.log.append import AppendOrigin, AppendResult
from moldau.storage.log.log import Log
from moldau.storage.producers.verification import NOT_REQUIRED, VerificationGuard

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
NO_ERROR: Final = ErrorCode.NONE
"""A module-level name for `ErrorCode.NONE`, because the lookup of an enum member costs as much as a call."""


class PartitionListener(Protocol):
    """A listener to the changes of one partition, as Apache Kafka's PartitionListener.

    A listener is called within an append, a follower's fetch or a change of role, when the partition already has its
    new state. It must return quickly: it notes the change, or completes the operations that waited for it. It neither
    appends to this partition nor changes its role.
    """

    def on_log_end_offset_updated(self) -> None:
        """Called after the leader appended records."""

    def on_high_watermark_updated(self) -> None:
        """Called after the high watermark moved. The last stable offset has moved, too, unless a transaction is
        open.
        """

    def on_log_start_offset_updated(self) -> None:
        """Called after the log start offset moved. The low watermark and the last stable offset may have moved, too.

        A leader also calls it when a follower's log start offset moved or the in-sync replicas changed.
        """

    def on_becoming_follower(self) -> None:
        """Called when this replica stops leading."""

    def on_gone(self, error: ErrorCode) -> None:
        """Called when the replica is removed from this broker, for the reason `error`. It is the last call."""


class HighWatermarkListener:
    """Calls one function when the high watermark moves, the replica stops leading, or it is removed."""

    __slots__ = ("_moved",)

    def __init__(self, moved: Callable[[], None]) -> None:
        self._moved = moved

    def on_log_end_offset_updated(self) -> None:
        pass

    def on_high_watermark_updated(self) -> None:
        self._moved()

    def on_log_start_offset_updated(self) -> None:
        pass

    def on_becoming_follower(self) -> None:
        self._moved()

    def on_gone(self, error: ErrorCode) -> None:
        self._moved()


class Partition:
    """The replica of a partition on this broker, with its log."""

    __slots__ = (
        "_first_end_offset",
        "_listeners",
        "bytes_in",
        "bytes_out",
        "has_fetched",
        "high_watermark",
        "index",
        "is_internal",
        "isr",
        "lag_behind_leader",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "min_insync_replicas",
        "partition_epoch",
        "topic",
        "topic_id",
        "verifies_transactions",
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
        """The in-sync replicas that the controller has confirmed; empty on a follower."""
        self.leadership: Leadership | None = None
        """The term of this replica as leader; None on a follower."""
        self.min_insync_replicas = 1
        """The number of replicas that must be in sync for an append with acks=all; at most the number of replicas."""
        self.is_internal = False
        """Whether the topic is internal: only coordinators may append, and batches of clients are refused."""
        self.verifies_transactions = True
        """transaction.partition.verification.enable: whether a client's batch needs a verification guard to open a
        transaction.
        """
        self.high_watermark = high_watermark
        self.lag_behind_leader = 0
        """For a follower: the number of offsets between this log's end and the leader's high watermark, at the last
        fetch.
        """
        self.has_fetched = False
        """For a follower: whether it has appended a response of its current leader."""
        self.bytes_in = 0
        """The bytes appended for clients since this object was created."""
        self.bytes_out = 0
        """The bytes in fetch responses since this object was created. The fetch session counts them."""
        self._first_end_offset = log.end_offset
        log.note_change()
        self._listeners: tuple[PartitionListener, ...] = ()

    @property
    def messages_in(self) -> int:
        """The number of records appended since this object was created."""
        return self.log.end_offset - self._first_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset before which no transaction is open; at most the high watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

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
        """Become the leader in this leader epoch.

        If the replica already leads in the epoch, apply the confirmed in-sync set and the replicas; an older partition
        epoch is ignored.
        """
        replicas = replicas or isr
        in_sync, has_other_replicas_in_sync = InSyncSet(isr, partition_epoch), False
        if leader_epoch > self.leader_epoch or self.leadership is None:
            # The epoch is noted before its first record: by it followers and consumers find how far logs agree
            # (KIP-101).
            # The high watermark stays what this replica knew as a follower; it may lag behind what is committed until
            # all in-sync replicas have fetched in this term. Until then ListOffsets tells no latest offset (KIP-207).
            self.log.epochs.assign(leader_epoch, self.log.end_offset)
            self.leadership = Leadership(leader_id, replicas, in_sync, self.log.end_offset, now_ms)
            # DIVERGES: in Apache Kafka a verification survives a change of leaders.
            self.log.producers.verifications.clear()
            self.lag_behind_leader = 0
            if self.log.erase_orders.offsets:
                self.log.hide_records_to_erase()  # Other replicas may have erased these records long ago.
        elif partition_epoch >= self.partition_epoch:
            if replicas != self.leadership.replicas:
                self.leadership.apply_reassignment(replicas, now_ms)
            if partition_epoch > self.partition_epoch:
                self.leadership.apply_in_sync_set(in_sync)
                has_other_replicas_in_sync = True
            # Otherwise the set is known already: the controller's response came earlier, or a change is still in
            # progress.
        else:
            return
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = self.leadership.in_sync.confirmed
        if has_other_replicas_in_sync:
            for listener in self._listeners:
                listener.on_log_start_offset_updated()  # From now on the low watermark depends on other replicas.
        self.advance_high_watermark()

    def become_follower(self, leader_id: int, leader_epoch: int, partition_epoch: int = 0) -> None:
        """Become a follower in this leader epoch. `leader_id` is -1 if there is no leader."""
        was_leader, self.leadership = self.leadership is not None, None
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = ()
        if was_leader:
            self.log.producers.verifications.clear()
            for listener in self._listeners:
                listener.on_becoming_follower()

    def notify_removed(self, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        """Tell all listeners that this broker no longer has the replica, and drop them. They answer waiting requests
        with `error`.
        """
        self.leadership = None
        listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            listener.on_gone(error)

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """Compare a client's leader epoch with that of this replica.

        Returns NONE if they are equal, or if the client knows none (-1). Returns FENCED_LEADER_EPOCH if the client's
        epoch is older, and UNKNOWN_LEADER_EPOCH if this replica does not know the client's epoch yet (KIP-320).
        """
        if epoch in (-1, self.leader_epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    # Leading

    def append(
        self,
        records: BytesLike,
        required_acks: int,
        now_ms: int,
        produce_version: int,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append a client's batch. If the result has an error, nothing was written.

        The error is INVALID_TXN_STATE if the batch would open a transaction and `guard` is not the one that
        `guard_for_client_batch` returned. It is NOT_LEADER_OR_FOLLOWER if the guard is of another leader epoch; the
        client then tries again.
        """
        refusal = _append_refusal(self, required_acks, guard)
        if refusal is not NO_ERROR:
            return _refused(self.log, refusal)
        result = self.log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms,
            produce_version=produce_version,
            guard=guard if self.verifies_transactions else NOT_REQUIRED,
        )
        if result.error is NO_ERROR:
            self.bytes_in += len(records)
            self._appended()
        elif result.record_errors:
            _name_partition(result, f"{self.topic}-{self.index}")
        return result

    def append_batches(
        self, batches: list[memoryview], required_acks: int, now_ms: int, produce_version: int
    ) -> list[AppendResult]:
        """Append consecutive batches of one client in one write, up to the first batch that is refused or that only
        `append` can handle.

        Returns the results of the appended batches. The caller passes each other batch to `append`.
        """
        if _append_refusal(self, required_acks, None) is not NO_ERROR:
            return []
        results = self.log.append_run_as_leader(batches, self.leader_epoch, now_ms, produce_version)
        if results and results[0].error is NO_ERROR:
            for index in range(len(results)):
                self.bytes_in += len(batches[index])
            self._appended()
        return results

    def append_examined_batch(
        self,
        examined: ValidBatch | RejectedBatch,
        size: int,
        required_acks: int,
        now_ms: int,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append a client's batch of `size` bytes that an executor thread has checked. Has the errors of `append`."""
        refusal = _append_refusal(self, required_acks, guard)
        if refusal is not NO_ERROR:
            return _refused(self.log, refusal)
        guard = guard if self.verifies_transactions else NOT_REQUIRED
        result = self.log.append_examined(examined, self.leader_epoch, now_ms, guard)
        if result.error is NO_ERROR:
            self.bytes_in += size
            self._appended()
        elif result.record_errors:
            _name_partition(result, f"{self.topic}-{self.index}")
        return result

    def append_internal(
        self,
        batch: BytesLike,
        now_ms: int,
        guard: VerificationGuard | None = NOT_REQUIRED,
        transaction_version: int = 0,
        required_acks: int = ACKS_ALL,
    ) -> AppendResult:
        """Append a batch of a coordinator on this broker.

        Unless `required_acks` is -1, the batch is appended even while fewer replicas are in sync than
        min.insync.replicas; it is committed once there are enough. `guard` comes from `guard_for_coordinator_batch`, if
        the coordinator asked for a verification. `transaction_version` is the transaction.version by whose rules a
        marker is checked.
        """
        refusal = _append_refusal(self, required_acks, guard if guard is not NOT_REQUIRED else None)
        if refusal is not NO_ERROR:
            return _refused(self.log, refusal)
        result = self.log.append_as_leader(
            batch,
            self.leader_epoch,
            now_ms,
            origin=AppendOrigin.COORDINATOR,
            guard=guard if self.verifies_transactions else NOT_REQUIRED,
            transaction_version=transaction_version,
        )
        if result.error is ErrorCode.NONE:
            self._appended()
        return result

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append the marker that ends a producer's transaction in this partition, with acks=all. A marker is appended
        even if no transaction is open, because it moves the producer's epoch.

        The error is INVALID_PRODUCER_EPOCH if the log has a later epoch of the producer, or under transaction.version 2
        the same epoch in an open transaction. It is TRANSACTION_COORDINATOR_FENCED if the log has a later coordinator
        epoch.
        """
        marker = end_transaction_marker(
            commits=is_commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        return self.append_internal(marker, now_ms, transaction_version=transaction_version)

    @property
    def commit_error(self) -> ErrorCode:
        """The error of an acks=all request when its records are committed: NOT_ENOUGH_REPLICAS_AFTER_APPEND if fewer
        replicas are in sync than min.insync.replicas, else NONE.
        """
        return NO_ERROR if len(self.isr) >= self.min_insync_replicas else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def note_follower_fetch(
        self, replica_id: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: int
    ) -> FollowerProgress:
        """Store a follower's fetch from `offset`, below which it has every record. Returns the follower's progress.

        The caller then calls `advance_high_watermark`, because more records may be committed. `log_start_offset` and
        `broker_epoch` are the follower's.
        """
        assert self.leadership is not None
        follower = self.leadership.followers[replica_id]
        has_trimmed = log_start_offset != follower.log_start_offset
        follower.note_fetch(offset, self.log.end_offset, log_start_offset, broker_epoch, now_ms)
        if has_trimmed:
            for listener in self._listeners:
                listener.on_log_start_offset_updated()
        return follower

    def delete_records_before(self, offset: int) -> ErrorCode:
        """Delete the records below `offset`, by moving the log start offset. Returns OFFSET_OUT_OF_RANGE if `offset` is
        above the high watermark, else NONE. Followers get the new log start offset from their next fetch.
        """
        refusal = self.log.advance_log_start(offset, self.high_watermark)
        for listener in self._listeners:
            listener.on_log_start_offset_updated()
        return refusal

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The lowest log start offset among the leader and the followers on live brokers (`is_alive`); -1 if one of
        them has not fetched in this term.
        """
        assert self.leadership is not None
        starts = [each.log_start_offset for replica, each in self.leadership.followers.items() if is_alive(replica)]
        return min((self.log.log_start_offset, *starts))

    def propose_in_sync_set(self, isr: tuple[int, ...]) -> None:
        """Record that this in-sync set is proposed to the controller."""
        assert self.leadership is not None
        self.leadership.apply_in_sync_set(self.leadership.in_sync.with_proposal(isr))

    def drop_in_sync_proposal(self) -> None:
        """Drop the proposed in-sync set that the controller refused. The confirmed set remains."""
        if self.leadership is not None:
            self.leadership.apply_in_sync_set(self.leadership.in_sync.without_proposal())
            self.advance_high_watermark()

    def confirm_in_sync_set(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Apply the in-sync set that the controller confirmed. Ignored unless its partition epoch is newer than that of
        this leader.
        """
        if self.leadership is not None and partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self.isr = isr
            self.leadership.apply_in_sync_set(InSyncSet(isr, partition_epoch))
            self.advance_high_watermark()

    # Following

    def append_fetched(
        self, records: BytesLike, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> AppendResult:
        """Append batches fetched from the leader, unchanged. The high watermark becomes the leader's, but at most this
        log's end offset.
        """
        start_log_at_batch(self.log, records, self.leader_epoch, now_ms)
        result = self.log.append_as_follower(records, self.leader_epoch, now_ms)
        self.lag_behind_leader = max(0, high_watermark - self.log.end_offset)
        if result.error is NO_ERROR:
            self.has_fetched = True
            self.apply_leader_high_watermark(high_watermark)
            if log_start_offset > self.log.log_start_offset:
                self.log.advance_log_start(min(log_start_offset, self.log.end_offset), self.log.end_offset)
        return result

    def apply_leader_high_watermark(self, high_watermark: int) -> None:
        """Apply the high watermark of a fetch response, but at most this log's end offset.

        A follower's high watermark lags behind the leader's. Only a truncation moves it back.
        """
        self._move_high_watermark(min(high_watermark, self.log.end_offset))

    def adapt_to_truncation(self) -> None:
        """Lower the high watermark to the log end offset after a truncation."""
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), self.log.end_offset)
        self.log.note_change()

    # Listening

    def add_listener(self, listener: PartitionListener) -> None:
        """Add a listener. It is called until it is removed, or the replica is removed from this broker."""
        self._listeners = (*self._listeners, listener)

    def remove_listener(self, listener: PartitionListener) -> None:
        self._listeners = tuple(each for each in self._listeners if each is not listener)

    def _appended(self) -> None:
        for listener in self._listeners:
            listener.on_log_end_offset_updated()
        self.advance_high_watermark()

    @property
    def awaits_flush(self) -> bool:
        """Whether flush.messages requires a sync before the last records may be committed."""
        return self.log.unflushed_count >= self.log.config.flush_messages

    @property
    def awaits_write_back(self) -> bool:
        """Whether the active segment has so many dirty pages that their write-back to the disk should start."""
        active = self.log.active
        return active.size >= active.write_back_at

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the offset below which every replica that may be in sync has all records.

        Called after an append, a follower's fetch, a sync, or a change of the in-sync set. It does not move while fewer
        replicas are in sync than min.insync.replicas: a replica elected later must have every committed record, and the
        last in-sync replica may lose its disk (KIP-966).
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
            if not self.log.is_change_noted:
                self.log.note_change()
            if self.log.producers.undecided_transactions:
                self.log.producers.on_high_watermark(offset)  # On a follower nothing else would drop them.
            for listener in self._listeners:
                listener.on_high_watermark_updated()


def _name_partition(result: AppendResult, name: str) -> None:
    """Add the name of the partition to the error messages about records without a key, as Apache Kafka does."""
    said = f"{KEYLESS} in topic partition {name}"
    result.record_errors = tuple(
        each._replace(message=each.message.replace(KEYLESS, said)) for each in result.record_errors
    )
    result.error_message = (result.error_message or "").replace(KEYLESS, said)


def _refused(log: Log, error: ErrorCode) -> AppendResult:
    return AppendResult(error, -1, -1, -1, log.log_start_offset)


def _append_refusal(partition: Partition, required_acks: int, guard: VerificationGuard | None) -> ErrorCode:
    """The error of an append in the replica's current state; NONE if the replica accepts appends."""
    if partition.leadership is None or (guard is not None and guard.leader_epoch != partition.leader_epoch):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if required_acks == ACKS_ALL and len(partition.isr) < partition.min_insync_replicas:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return NO_ERROR


def start_log_at_batch(log: Log, records: BytesLike, leader_epoch: int, now_ms: int) -> None:
    """Move the start of an empty log back to the base offset of the fetched batch that contains the leader's log start
    offset.

    DeleteRecords may leave the log start offset inside a batch, but batches are replicated whole. Does nothing if the
    log has records, if the batch does not contain the offset, or if it is damaged, cut short, or of a later epoch than
    `leader_epoch`; the following append then reports the error.
    """
    if log.end_offset != log.log_start_offset or len(records) < HEADER_SIZE or log.failure is not None:
        return
    if log.is_checkpoint_under_way:
        return  # The batches are fetched again.
    with suppress(MalformedMessage, OSError):
        header = parse_header(records, 0)
        is_whole = header.size <= len(records) and crc_is_valid(records, 0, header)
        holds_start = header.base_offset < log.end_offset < header.next_offset
        if holds_start and is_whole and header.partition_leader_epoch <= leader_epoch:
            log.truncate_fully_and_start_at(header.base_offset, now_ms)
