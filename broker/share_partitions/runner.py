"""Runs the state machine of one share partition, whose partition this broker leads.

    first fetch of a group ──▶ loading: state from the share coordinator ──▶ active ──▶ gone
                                                                                        not leader, deleted, fenced by
                                                                                        another leader or a reset, or
                                                                                        no session of the group is left

The changes of a machine are sent to the share coordinator, one request at a time; changes that come during a request
are sent together in the next one. Fetches wait in the purgatory until records are released, or until more records may
be in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.broker.coordinators.share_state_persister import NO_WAITER, ShareStatePersister
from moldau.broker.purgatory.purgatory import Purgatory, WatchingOperation
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.broker.share_partitions.dead_letter_queue import DeadLetterPorts, DeadLetterWriter
from moldau.broker.share_partitions.settings import GroupSettings, duration_ms
from moldau.coordinator.share_coordinator.events import ReadState, StateAnswer, WriteState
from moldau.coordinator.share_coordinator.state import NO_OFFSET, ShareKey, StateBatch
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.replication.share.acquisition import AcquiredRecords, AcquireParameters, FetchedBatch, acquire_records
from moldau.replication.share.changes import (
    AcknowledgementBatch,
    AcknowledgeRefusal,
    DeadLetter,
    InconsistentShareState,
    StateWrite,
    StoredBatch,
)
from moldau.replication.share.share_partition import SharePartition

if TYPE_CHECKING:
    from moldau.broker.tiering.remote_source import RemoteOffsets
    from moldau.storage.log.reading import TimestampedOffset

log = logging.getLogger("moldau.share")

Answered: TypeAlias = Callable[[ErrorCode, str | None], None]
"""Called once with the error code and the message of an acknowledgement, when it is stored or has failed."""
ERRORS: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    **{
        same: same
        for same in (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    },
}
"""The error code for the client, by the error code of the share coordinator. Other errors become
UNKNOWN_SERVER_ERROR.
"""
READ_SIZE_MIN: Final = 64 * 1024
"""The bytes that are added to the estimated size of a read, as a margin."""
FENCING_ERRORS: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""The errors that end a share partition without a warning in the log, because a later fetch loads it anew."""


class ShareCounts:
    """Counts of share partitions for the metrics, since the start of the broker."""

    def __init__(self) -> None:
        self.acknowledged: Counter[int] = Counter()
        """The number of acknowledged records, by the type of the acknowledgement."""
        self.loaded = 0
        """The number of share partitions that were loaded."""
        self.loading_ms = 0
        """The total time (ms) that loading share partitions took."""

    def count_acknowledged(self, batches: Iterable[AcknowledgementBatch]) -> None:
        for first, last, types in batches:
            if len(types) == 1:
                self.acknowledged[types[0]] += last - first + 1
            else:
                self.acknowledged.update(types)


class SharePartitionPorts(NamedTuple):
    """The parts of the broker that share partitions use."""

    loop: asyncio.AbstractEventLoop
    environment: Environment
    spawn: Spawn
    purgatory: Purgatory
    persister: ShareStatePersister
    settings: GroupSettings
    counts: ShareCounts
    dead_letters: DeadLetterPorts
    remote_offsets: RemoteOffsets | None = None


class SharePartitionRunner:
    """Runs one share partition on its leader. It listens to changes of its partition (`PartitionListener`)."""

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        ports: SharePartitionPorts,
        forget: Callable[[SharePartitionRunner], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.machine = SharePartition(partition.leader_epoch, lambda: ports.settings.settings_of(key.group_id).limits)
        self.error: ErrorCode | None = None
        """The error with which the share partition has ended: it could not be loaded, or was fenced. None if it has not
        ended.
        """
        self.is_loaded = False
        self.is_read = False
        """Whether a fetch is reading records of this share partition. Meanwhile other fetches do not read from it."""
        self.record_size: float | None = None
        """The average size (bytes) of a record in the log, framing included, in the last read; None if it is
        unknown.
        """
        self.waiting: dict[WatchingOperation, None] = {}
        """The fetches that wait for this share partition."""
        self.expired_locks = 0
        """The number of records whose acquisition locks have expired."""
        self._began_ms = ports.environment.monotonic_ms()
        self._ports = ports
        self._forget = forget
        self._writes: list[tuple[StateWrite, Answered | None]] = []
        self._is_writing = False
        self._when_stored: list[Callable[[], None]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._letters: deque[DeadLetter] = deque()
        """The dead letters that are not written yet; the first one is being written."""
        self._is_left = False
        """Whether this runner has ended because its group has no session on this broker. It still writes its dead
        letters.
        """
        self._is_succeeded = False
        """Whether another runner of the same share partition waits to be loaded, which will write the dead letters."""

    @property
    def is_active(self) -> bool:
        return self.is_loaded and self.error is None

    @property
    def _writes_letters(self) -> bool:
        """Whether this runner has to write its dead letters: it has not ended, or it ended only because its group has
        no session here.
        """
        if self.error is None:
            return True
        leads = self.partition.is_leader and self.partition.leader_epoch == self.machine.leader_epoch
        return self._is_left and not self._is_succeeded and leads

    # Loading

    def load(self, former: SharePartitionRunner | None) -> None:
        """Load the state from the share coordinator. `former` is the previous runner of this share partition, if it
        still stores changes: loading waits until it has stored them.
        """
        self.partition.add_listener(self)
        if former is None:
            self._ask_state()
        else:
            former.call_when_stored(self._ask_state, is_loading=True)

    def _ask_state(self) -> None:
        if self.error is None:
            request = ReadState(NO_WAITER, self.key, self.machine.leader_epoch)
            self._ports.persister.ask(request, self._read)

    def _read(self, answer: StateAnswer) -> None:
        if self.error is not None:
            return
        if answer.error is not ErrorCode.NONE:
            self.fence(ERRORS.get(answer.error, ErrorCode.UNKNOWN_SERVER_ERROR), answer.message)
        elif answer.start_offset == NO_OFFSET:
            self._ports.spawn(self._reset(answer))
        else:
            self._loaded(answer, answer.start_offset)

    async def _reset(self, answer: StateAnswer) -> None:
        """Begin at the offset that the group's share.auto.offset.reset determines, because no leader has stored a start
        offset yet.
        """
        strategy, partition = self._ports.settings.settings_of(self.key.group_id).offset_reset, self.partition
        if strategy == "latest":
            offset = partition.high_watermark
        elif strategy == "earliest":
            offset = partition.log.log_start_offset
        else:
            wanted_ms = self._ports.environment.wall_ms() - duration_ms(strategy)
            found = await find_by_time(partition, wanted_ms, self._ports.remote_offsets)
            if isinstance(found, ErrorCode):
                self.fence(found)
                return
            # A record that is not committed yet may be replaced by another one with the same offset.
            offset = partition.high_watermark if found is None else min(found.offset, partition.high_watermark)
        if self.error is None:
            self._loaded(answer, offset)

    def _loaded(self, answer: StateAnswer, start_offset: int) -> None:
        batches = [StoredBatch(*batch) for batch in answer.batches]
        try:
            self.machine.load(answer.state_epoch, start_offset, batches)
        except (InconsistentShareState, ValueError) as error:
            self.fence(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            return
        self.is_loaded = True
        self._ports.counts.loaded += 1
        self._ports.counts.loading_ms += self._ports.environment.monotonic_ms() - self._began_ms
        self._queue_dead_letters()
        self.check_waiting_fetches_soon()

    # Delivering

    def read_size(self, records: int) -> int | None:
        """The number of bytes to read for a number of records, with a margin because records differ in size; None if
        nothing was read yet.
        """
        return None if self.record_size is None else int(1.25 * records * self.record_size) + READ_SIZE_MIN

    def note_read(self, size: int, records: int) -> None:
        """Note that a read of `size` bytes returned `records` records, so that `read_size` can estimate the next one.
        `records` is 0 if the first batch was larger than the read.
        """
        self.record_size = size / records if records else None

    def acquire_records(
        self, wish: AcquireParameters, fetched: Sequence[FetchedBatch], aborted: Iterable[tuple[int, int]]
    ) -> tuple[list[AcquiredRecords], int]:
        acquired = acquire_records(self.machine, wish, fetched, aborted, self._ports.environment.monotonic_ms())
        self._arm()
        return acquired

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch], inform: Answered) -> None:
        if self.error is not None or not self.is_loaded:
            inform(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
            return

        def answered(error: ErrorCode, message: str | None) -> None:
            if error is ErrorCode.NONE:
                self._ports.counts.count_acknowledged(batches)
            inform(error, message)

        answer = self.machine.acknowledge(member_id, batches, self._ports.environment.monotonic_ms())
        self._arm()
        if isinstance(answer, AcknowledgeRefusal):
            answered(answer.error, answer.message)
        elif answer is None:
            answered(ErrorCode.NONE, None)
        else:
            self._store(answer, answered)
        self.check_waiting_fetches_soon()

    def release(self, member_id: str) -> None:
        """Release the records that a member has acquired, because its session has ended."""
        write = self.machine.release_acquired(member_id) if self.is_active else None
        if write is not None:
            self._store(write, None)
            self.check_waiting_fetches_soon()

    # Storing

    def _store(self, write: StateWrite, answered: Answered | None) -> None:
        self._writes.append((write, answered))
        if not self._is_writing:
            self._send()

    def _send(self) -> None:
        writes, self._writes = self._writes, []
        self._is_writing = True
        last = writes[-1][0]
        request = WriteState(
            NO_WAITER,
            self.key,
            last.state_epoch,
            last.leader_epoch,
            last.start_offset,
            last.delivery_complete_count,
            tuple(StateBatch(*batch) for write, _ in writes for batch in write.batches),
        )
        self._ports.persister.ask(request, lambda answer: self._stored(writes, answer))

    def _stored(self, writes: list[tuple[StateWrite, Answered | None]], answer: StateAnswer) -> None:
        is_stored = answer.error is ErrorCode.NONE
        error = ErrorCode.NONE if is_stored else ERRORS.get(answer.error, ErrorCode.UNKNOWN_SERVER_ERROR)
        for write, answered in writes:
            self.machine.finish_state_write(write, is_stored=is_stored)
            if answered is not None:
                answered(error, answer.message)
        if error in FENCING_ERRORS:
            self.fence(error, answer.message)
        self._queue_dead_letters()
        self._is_writing = False
        if self._writes:
            self._send()
        else:
            self._tell_stored()
        self.check_waiting_fetches_soon()

    def _tell_stored(self) -> None:
        if not self._is_writing and not self._letters:
            ready, self._when_stored = self._when_stored, []
            for each in ready:
                each()

    def call_when_stored(self, ready: Callable[[], None], *, is_loading: bool = False) -> None:
        """Call `ready` once this runner has stored all its changes. `is_loading`: whether another runner of the same
        share partition is loaded then, and writes the dead letters that this one leaves.

        DIVERGES: Apache Kafka loads a share partition anew while writes of the one before it are under way. Such a
        write has the same leader epoch, so that it is not refused: it may move the start offset back, or lose what is
        acknowledged to a higher delivery count.
        """
        self._is_succeeded = self._is_succeeded or is_loading
        self._when_stored.append(ready)
        self._tell_stored()

    # Dead letters

    def _queue_dead_letters(self) -> None:
        """Begin to write the new dead letters of the machine, one run of records after the other. Those that this
        broker does not write are written by the next leader.
        """
        letters = self.machine.take_dead_letters()
        if not letters or not self._writes_letters:
            return
        is_idle = not self._letters
        self._letters.extend(letters)
        if is_idle:
            self._ports.spawn(self._write_dead_letters())

    async def _write_dead_letters(self) -> None:
        while self._letters and self._writes_letters:
            letter = self._letters[0]
            writing = DeadLetterWriter(self._ports.dead_letters, self.key, letter, lambda: self._writes_letters)
            has_ended = await writing.run()
            if has_ended and (self.error is None or self._is_left):
                self._store(self.machine.archive_dead_letter(letter), None)
                self.check_waiting_fetches_soon()
            self._letters.popleft()
        self._letters.clear()
        self._tell_stored()

    # Locks

    def _arm(self) -> None:
        """Set the timer for the machine's first deadline. A timer that is set for an earlier time is kept, because it
        does no harm if it fires early.
        """
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or self.error is not None:
            return
        if self._alarm is not None:
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._ports.environment.monotonic_ms())
        self._alarm = self._ports.loop.call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._alarm = None
        write = self.machine.expire_locks(self._ports.environment.monotonic_ms())
        if write is not None:
            self.expired_locks += sum(batch.last_offset - batch.first_offset + 1 for batch in write.batches)
            self._store(write, None)
            self.check_waiting_fetches_soon()
        self._arm()

    # The end

    def fence(self, error: ErrorCode, message: str | None = None, *, is_left: bool = False) -> None:
        """End the share partition: it delivers no more records, and forgets which records are in flight. If this broker
        leads the partition, a later fetch loads the share partition anew.

        `is_left`: whether the reason is that the group has no session on this broker any more. Then the runner still
        writes its dead letters.
        """
        if self.error is not None:
            return
        if error not in FENCING_ERRORS:
            log.warning("share partition %s: %s", self.key, message or error.name)
        self.error, self._is_left = error, is_left
        self.partition.remove_listener(self)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._forget(self)
        self.check_waiting_fetches_soon()

    def check_waiting_fetches_soon(self) -> None:
        """Check the fetches that wait for this share partition in the next event loop iteration."""
        for operation in [*self.waiting]:
            if operation.is_over:
                del self.waiting[operation]
            else:
                self._ports.purgatory.check_one_soon(operation)

    def add_waiting_fetch(self, operation: WatchingOperation) -> None:
        """Add a fetch that waits. It is checked whenever records of the share partition may have become available."""
        self.waiting = {each: None for each in self.waiting if not each.is_over}
        self.waiting[operation] = None

    def on_log_end_offset_updated(self) -> None:
        """Do nothing: the waiting fetches themselves watch the high watermark or the last stable offset."""

    def on_high_watermark_updated(self) -> None:
        """Do nothing: the waiting fetches themselves watch the high watermark or the last stable offset."""

    def on_log_start_offset_updated(self) -> None:
        """Do nothing: a fetch of deleted records moves the start offset of the share partition."""

    def on_becoming_follower(self) -> None:
        self.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_gone(self, error: ErrorCode) -> None:
        self.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def find_by_time(
    partition: Partition, timestamp: int, remote_offsets: RemoteOffsets | None
) -> TimestampedOffset | ErrorCode | None:
    """The first record at or after a time (ms), in remote storage or here; None if there is none, or the error code for
    the client if it cannot be looked up.

    DIVERGES: if share.auto.offset.reset is a duration, Apache Kafka answers OFFSET_NOT_AVAILABLE as long as no record
    is that young, and always for a tiered topic. Here the group begins at the high watermark, or in remote storage.
    """
    its_log = partition.log
    found: TimestampedOffset | ErrorCode | None = None
    if remote_offsets is not None and its_log.local_start_offset > its_log.log_start_offset:
        found = await remote_offsets.find(partition, timestamp)
    if found is None:
        try:
            found = its_log.offset_for_timestamp(timestamp)
        except (OSError, MalformedMessage) as error:
            found = its_log.error_of_lookup(error)
    # The client of a share group does not know INVALID_RECORD.
    return ErrorCode.UNKNOWN_SERVER_ERROR if found is ErrorCode.INVALID_RECORD else found
