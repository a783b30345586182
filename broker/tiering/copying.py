"""Copies the rolled segments of the partitions that this broker leads to remote storage, and deletes expired remote
segments.

    a turn of copying     leftovers of unfinished copies are removed first
                          then one segment, below the last stable offset, after the copied ones:
        every batch is sound? ──▶ COPY_SEGMENT_STARTED ──▶ objects, the manifest last ──▶ still the leader?
                              ──▶ the same bytes as were checked? ──▶ COPY_SEGMENT_FINISHED
    a turn of deletion    segments that retention of both tiers deletes (`expired_segments`), after the log start
                          offset; and unfinished deletions

Partitions take turns (`PartitionTurns`), separately for copies and for deletions: copies that wait for their quota do
not delay deletions.

One partition has at most one copy in progress, so any other unfinished copy in its remote log is a leftover of a former
leader, or of this broker before an error. A leader that loses leadership during a copy removes the objects of the copy;
the next leader deletes the segment by further records. A leader with a damaged batch does not copy its segment, because
once a segment is copied, the replicas delete their good local copies. If other replicas are in sync the leader gives up
leadership, as it does when a fetch finds the damage. Then the next leader copies the segment, and the damaged replica
fetches it again. A leader that is the only replica in sync stays leader, and tries the copy again with backoff.

DIVERGES: Apache Kafka copies a segment without a look at its batches; the copy may then replace sound replicas.

Each step checks again that this broker leads in the same leader epoch.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_log_metadata import MetadataNotWritten, RemoteLogMetadataWriter
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.broker.tiering.segment_contents import (
    CannotCopy,
    CopyableSegment,
    DamagedSegment,
    check_segment,
    contents_of,
    copy_limit,
    copyable_segments,
    describe_segment,
    is_due,
)
from moldau.broker.tiering.traffic import RemoteCount, RemoteTraffic, TransferQuota
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.metadata.lineage import read_lineage
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import (
    UNFINISHED_COPY_REMAINS,
    RemotePartition,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from moldau.storage.tiered.pins import pinned_segments
from moldau.storage.tiered.port import RemoteStorageError
from moldau.storage.tiered.segment_copy import NO_LINEAGE, put_segment, remove_data, remove_manifest, remove_segment

log = logging.getLogger("moldau.tiering")

ID_SIZE: Final = 16
COPY_FINISHED: Final = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED: Final = SegmentState.DELETE_SEGMENT_STARTED
DELETIONS_OF_A_TURN: Final = 20
"""The maximum number of segments that are deleted in one turn of a partition."""
PartitionTurn = Callable[[], Coroutine[object, object, bool]]
"""The work that is done in one turn of a partition. Returns whether more work is left. It raises no exception."""


class NoLongerLeader(Exception):
    """This broker no longer leads the partition, or the topic is not tiered any more. The work that this interrupts is
    left unfinished.
    """


class SegmentCopier:
    """Copies and deletes segments, for at most `remote.log.manager.copier.thread.pool.size` partitions at once. Its
    methods are called on the event loop.
    """

    def __init__(
        self,
        node_id: int,
        settings: DynamicConfig,
        environment: Environment,
        spawn: Spawn,
        replicas: Replicas,
        opened: OpenStorage,
        writer: RemoteLogMetadataWriter,
        quota: TransferQuota,
        traffic: RemoteTraffic,
    ) -> None:
        self._quota = quota
        self._traffic = traffic
        self._node_id = node_id
        self._settings = settings
        self._environment = environment
        self._spawn = spawn
        self._replicas = replicas
        self._opened = opened
        self._writer = writer
        self._backoff = PartitionBackoffs(settings, environment)
        self._deletion_backoff = PartitionBackoffs(settings, environment)
        self._copies = PartitionTurns(spawn, "copy", self._limit("remote.log.manager.copier.thread.pool.size"))
        self._deletions = PartitionTurns(spawn, "expire", self._limit("remote.log.manager.expiration.thread.pool.size"))
        self.segments_deleted = 0
        self.failures = 0
        """The number of turns that ended with an error, since the start."""

    def begin_round(self, partition: Partition, followed: FollowedRemoteLog) -> None:
        """Schedule a turn of copying and a turn of deletion for a partition, unless that turn is scheduled or in
        progress, or waits after a failure.
        """
        if not followed.is_complete or not self._opened.is_checked:
            return
        if not self._backoff.is_waiting(partition):
            self._copies.offer(partition, partial(self._copy_turn, partition, followed))
        if not self._deletion_backoff.is_waiting(partition):
            self._deletions.offer(partition, partial(self._deletion_turn, partition, followed))

    def _limit(self, name: str) -> Callable[[], int]:
        return lambda: self._settings.config.integer(name)

    def is_copying(self, key: RemotePartition) -> bool:
        """Whether a copy of a segment of the partition is in progress."""
        return any(remote_partition(each) == key for each in self._copies)

    @property
    def idle_share(self) -> float:
        """The unused share of the copies that may run in parallel, 0 to 1."""
        return 1 - len(self._copies) / self._settings.config.integer("remote.log.manager.copier.thread.pool.size")

    def forget_gone(self) -> None:
        """Forget the failures of partitions that this broker does not serve any more."""
        for backoff in (self._backoff, self._deletion_backoff):
            backoff.forget_unserved(self._replicas.__contains__)

    async def _copy_turn(self, partition: Partition, followed: FollowedRemoteLog) -> bool:
        """Copy one segment of a partition. Returns whether more segments are to be copied."""
        return await self._guarded(partition, self._backoff, "copied", self._copy_next(partition, followed))

    async def _deletion_turn(self, partition: Partition, followed: FollowedRemoteLog) -> bool:
        """Delete some remote segments of a partition. Returns whether more are to be deleted."""
        return await self._guarded(partition, self._deletion_backoff, "deleted", self._delete_some(partition, followed))

    async def _guarded(
        self, partition: Partition, backoff: PartitionBackoffs, done: str, work: Awaitable[bool]
    ) -> bool:
        try:
            has_more = await work
        except NoLongerLeader:
            has_more = False
        except (RemoteStorageError, MetadataNotWritten, CannotCopy, OSError) as error:
            self.failures += 1
            backoff.note_failure(partition)
            log.error("segments of %s-%d could not be %s: %s", partition.topic, partition.index, done, error)
            return False
        backoff.note_success(partition)
        return has_more

    async def _copy_next(self, partition: Partition, followed: FollowedRemoteLog) -> bool:
        epoch = partition.leader_epoch
        self._check(partition, epoch)
        for segment in followed.remote_log.unfinished_copies():
            self._check(partition, epoch)
            if segment.segment_id not in followed.under_way:
                await self.remove(followed, segment, is_remain=True)
        found = self._next(partition, followed)
        if found is None:
            return False
        await self._quota.admit(found.segment.size)
        self._check(partition, epoch)
        self._traffic.count(partition.topic, RemoteCount.COPY_REQUESTS)
        try:
            await self._copy(partition, followed, epoch, found)
        except (RemoteStorageError, MetadataNotWritten, CannotCopy, OSError):
            self._traffic.count(partition.topic, RemoteCount.COPY_ERRORS)
            raise
        return self._next(partition, followed) is not None

    def _next(self, partition: Partition, followed: FollowedRemoteLog) -> CopyableSegment | None:
        """The oldest local segment of a partition that is to be copied now; None if there is none."""
        its_log = partition.log
        if its_log.config.remote_log_copy_disable or followed.is_being_removed:
            return None
        copied_end = followed.end_offset(its_log.epochs, its_log.end_offset)
        limit = copy_limit(its_log, partition.last_stable_offset)
        found = copyable_segments(its_log, max(copied_end, its_log.log_start_offset), limit)
        return found[0] if found and is_due(its_log, found[0], self._environment.wall_ms()) else None

    def _leads(self, partition: Partition, epoch: int) -> bool:
        leads = partition in self._replicas and partition.is_leader and partition.leader_epoch == epoch
        return leads and is_tiered(partition) and partition.log.failure is None

    def _check(self, partition: Partition, epoch: int) -> None:
        if not self._leads(partition, epoch):
            raise NoLongerLeader

    def _check_copy(
        self, partition: Partition, followed: FollowedRemoteLog, epoch: int, segment: RemoteSegment
    ) -> None:
        """Raise `NoLongerLeader` if the copy of a segment must not continue: another broker leads, all segments of the
        partition are being removed, or this segment was deleted.
        """
        self._check(partition, epoch)
        is_begun = followed.remote_log.state_of(segment.segment_id) is SegmentState.COPY_SEGMENT_STARTED
        if followed.is_being_removed or not is_begun:
            raise NoLongerLeader

    async def _copy(
        self, partition: Partition, followed: FollowedRemoteLog, epoch: int, found: CopyableSegment
    ) -> None:
        environment, its_log = self._environment, partition.log
        try:
            sound = await check_segment(its_log, found, environment)
        except DamagedSegment as damage:
            self._check(partition, epoch)
            if found.segment in its_log.segments and len(partition.isr) > 1:
                its_log.mark_damaged(str(damage))
            raise
        self._check(partition, epoch)
        if found.segment not in its_log.segments:
            return
        segment_id, now_ms = environment.entropy(ID_SIZE), environment.wall_ms()
        segment = describe_segment(its_log, found, segment_id, self._node_id, now_ms, sound.max_timestamp)
        contents = await contents_of(its_log, found, sound, environment)
        if found.segment not in its_log.segments:
            return  # The log cleaner has replaced the segment, and the contents may be of both versions.
        self._check(partition, epoch)
        await self._writer.write(followed, segment)
        self._check_copy(partition, followed, epoch, segment)
        try:
            manifest = await put_segment(
                self._opened.storage,
                self._opened.cluster_id,
                followed.key,
                segment,
                contents,
                lineage=read_lineage(segment.custom_metadata) or NO_LINEAGE,
            )
            self._check_copy(partition, followed, epoch, segment)
        except (RemoteStorageError, NoLongerLeader, OSError) as error:
            if isinstance(error, NoLongerLeader) or not self._leads(partition, epoch):
                await self._take_back(followed, segment)
            raise
        if manifest.objects[ObjectKind.LOG].crc32c != sound.crc:
            raise CannotCopy(f"the bytes of the segment at offset {segment.start_offset} changed after their check")
        await self._write_state(followed, segment, COPY_FINISHED)
        if followed.remote_log.state_of(segment.segment_id) is not COPY_FINISHED:
            # The next leader, of which this broker had not heard, took the copy for a leftover and deleted it.
            await self._take_back(followed, segment)
            raise NoLongerLeader
        self._traffic.count(partition.topic, RemoteCount.COPY_BYTES, segment.size)
        its_log.tiered_end_offset = followed.end_offset(its_log.epochs, its_log.end_offset)

    async def _take_back(self, followed: FollowedRemoteLog, segment: RemoteSegment) -> None:
        """Remove the objects of a copy that this broker began and will never finish.

        The next leader may have deleted the leftovers before the last of these objects was written. Objects that cannot
        be removed now are left to the next leader, or to a sweep of the storage.
        """
        place = (followed.key, segment.start_offset, segment.segment_id)
        with contextlib.suppress(RemoteStorageError):
            await remove_segment(self._opened.storage, *place)

    async def _delete_some(self, partition: Partition, followed: FollowedRemoteLog) -> bool:
        """Delete the remote segments that the retention of both tiers deletes, and continue deletions that have begun.
        Returns whether more are left.

        The log start offset is moved first.
        """
        epoch = partition.leader_epoch
        self._check(partition, epoch)
        began_ns = self._environment.precise_ns()
        retention_ms = self._settings.config.integer("moldau.tiered.superseded.retention.ms")
        now_ms = self._environment.wall_ms()
        found = expired_segments(partition.log, followed.remote_log, partition.high_watermark, now_ms, retention_ms)
        followed.retention_ms = (self._environment.precise_ns() - began_ns) / 1e6
        start_offset = min(found.log_start_offset, partition.high_watermark)
        if start_offset > partition.log.log_start_offset:
            partition.delete_records_before(start_offset)
        segments = (*followed.remote_log.segments_in_deletion(), *found.segments)
        followed.delete_lag_segments = len(segments)
        followed.delete_lag_bytes = sum(each.size for each in segments)
        left = len(segments)
        pinned = await self._pinned(followed) if segments else set()
        for segment in segments:
            self._check(partition, epoch)
            if segment.segment_id in pinned or segment.segment_id in followed.under_way:
                continue
            if not await self.remove(followed, segment):
                continue
            self.segments_deleted += 1
            followed.delete_lag_segments -= 1
            followed.delete_lag_bytes -= segment.size
            if left - followed.delete_lag_segments >= DELETIONS_OF_A_TURN:
                return followed.delete_lag_segments > 0
        return False

    async def remove(
        self,
        followed: FollowedRemoteLog,
        segment: RemoteSegment,
        *,
        is_remain: bool = False,
        honours_pins: bool = True,
    ) -> bool:
        """Delete a remote segment that must not be read any more, or was never read. Returns whether it is deleted.

        The segment stays if a pin holds it and `honours_pins` is True, if it is being deleted already, or if it is a
        leftover copy (`is_remain`) that was finished in the meantime. Raises `RemoteStorageError` and
        `MetadataNotWritten`; a later call continues the deletion.
        """
        if segment.segment_id in followed.being_removed:
            return False
        followed.being_removed.add(segment.segment_id)
        self._traffic.count(followed.key.topic, RemoteCount.DELETE_REQUESTS)
        try:
            return await self._remove(followed, segment, is_remain, honours_pins and not is_remain)
        except (RemoteStorageError, MetadataNotWritten):
            self._traffic.count(followed.key.topic, RemoteCount.DELETE_ERRORS)
            raise
        finally:
            followed.being_removed.discard(segment.segment_id)

    async def _remove(
        self, followed: FollowedRemoteLog, segment: RemoteSegment, is_remain: bool, honours_pins: bool
    ) -> bool:
        storage, place = self._opened.storage, (followed.key, segment.start_offset, segment.segment_id)
        if honours_pins and segment.segment_id in await self._pinned(followed):
            return False
        if segment.state is not DELETE_STARTED:
            await self._write_state(followed, segment, DELETE_STARTED, UNFINISHED_COPY_REMAINS if is_remain else None)
            if followed.remote_log.state_of(segment.segment_id) is COPY_FINISHED:
                return False
        await remove_manifest(storage, *place)
        # List the pins again: a reader that wrote its pin in between may have listed the manifest
        # (`storage/tiered/pins.py`).
        if honours_pins and segment.segment_id in await self._pinned(followed):
            return False
        await remove_data(storage, *place)
        await self._write_state(followed, segment, SegmentState.DELETE_SEGMENT_FINISHED)
        return True

    async def _pinned(self, followed: FollowedRemoteLog) -> set[bytes]:
        """The ids of the partition's segments that pins hold now."""
        opened, now_ms = self._opened, self._environment.wall_ms()
        held, problems = await pinned_segments(opened.storage, opened.cluster_id, followed.key, now_ms)
        for problem in problems:
            log.error("a pin of %s-%d is ignored: %s", followed.key.topic, followed.key.partition, problem)
        return held

    async def _write_state(
        self, followed: FollowedRemoteLog, segment: RemoteSegment, state: SegmentState, custom: bytes | None = None
    ) -> None:
        now_ms = self._environment.wall_ms()
        await self._writer.write(followed, SegmentUpdate(segment.segment_id, self._node_id, now_ms, state, custom))


class PartitionTurns:
    """Gives partitions turns of work, to a limited number of partitions at once. Its methods are called on the event
    loop.

    An offered partition waits behind those offered before it. Its turn ends when its work returns. If the work returns
    True, more work is left, and the partition waits again behind the others. So a partition with much work delays the
    others by one turn at most.
    """

    def __init__(self, spawn: Spawn, name: str, limit: Callable[[], int]) -> None:
        """`limit`: gives the maximum number of partitions with work in progress."""
        self._spawn = spawn
        self._name = name
        self._limit = limit
        self._waiting: OrderedDict[Partition, PartitionTurn] = OrderedDict()
        self._under_way: set[Partition] = set()

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over the partitions with work in progress."""
        return iter(tuple(self._under_way))

    def __len__(self) -> int:
        return len(self._under_way)

    def offer(self, partition: Partition, turn: PartitionTurn) -> None:
        """Let a partition wait for a turn of work. Nothing changes if it is waiting already or has its turn."""
        if partition not in self._under_way and partition not in self._waiting:
            self._waiting[partition] = turn
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._under_way) < self._limit():
            partition, turn = self._waiting.popitem(last=False)
            self._under_way.add(partition)
            self._spawn(self._run(partition, turn), f"{self._name}-{partition.topic}-{partition.index}")

    async def _run(self, partition: Partition, turn: PartitionTurn) -> None:
        has_more = False
        try:
            has_more = await turn()
        finally:
            self._under_way.discard(partition)
            if has_more:
                self._waiting[partition] = turn
            self._go_on()


class ExpiredSegments(NamedTuple):
    """The remote segments to delete, and the log start offset to set before."""

    segments: Sequence[RemoteSegment]
    log_start_offset: int
    """The new log start offset, which is never below the current one."""


def expired_segments(
    log: Log, remote_log: RemoteLog, high_watermark: int, now_ms: int, superseded_retention_ms: int
) -> ExpiredSegments:
    """The remote segments to delete, oldest first, and the log start offset to set before that. Raises OSError.

    To delete are segments before the log start offset, segments that retention deletes, segments whose leader epochs
    the log does not have any more, and segments that were superseded so long ago that no fetch reads them (decision
    14).

    `retention.ms` and `retention.bytes` count both tiers: remote segments, and those that are only local. If
    `cleanup.policy` has no "delete", retention deletes no remote segment. The log start offset has to be moved before
    the deletion, so that no reader is sent to a segment that is being deleted.
    """
    entries = log.epochs.entries
    strays = remote_log.segments_outside_history(log.end_offset, entries, is_compacted=log.config.is_compacted)
    stray_ids = {each.segment_id for each in strays}
    excess_size = _size_of_both_tiers(log, remote_log, strays, high_watermark) - log.config.retention_bytes
    is_limited = log.config.has_delete_policy
    has_size = is_limited and log.config.retention_bytes >= 0
    has_time = is_limited and log.config.retention_ms >= 0
    gone: list[RemoteSegment] = []
    start_offset = log.log_start_offset
    first_left: RemoteSegment | None = None
    for segment in remote_log.oldest_first():
        if segment.segment_id in stray_ids:
            continue
        is_hidden = segment.last_offset < log.log_start_offset
        is_due = (has_size and excess_size >= segment.size) or (
            has_time and now_ms - segment.max_timestamp_ms > log.config.retention_ms
        )
        if not is_hidden and not is_due:
            first_left = segment
            break
        excess_size -= segment.size
        start_offset = max(start_offset, segment.last_offset + 1)
        gone.append(segment)
    if gone or first_left is not None:
        # This also applies if a crash lost the log start offset of an earlier round: no record is before the first
        # segment, or before its first known leader epoch.
        first_read = first_left.epochs[0].start_offset if first_left else start_offset
        start_offset = max(start_offset, min(log.local_start_offset, first_read))
    first_epoch = entries[0].epoch if entries else -1
    gone += [each for each in strays if each.epochs[-1].epoch < first_epoch or each.last_offset < log.log_start_offset]
    gone += [each for each, since_ms in remote_log.superseded_copies() if now_ms - since_ms > superseded_retention_ms]
    return ExpiredSegments(gone, start_offset)


def _size_of_both_tiers(log: Log, remote_log: RemoteLog, strays: Sequence[RemoteSegment], high_watermark: int) -> int:
    """The size (bytes) of a partition in both tiers, without the remote segments in `strays`.

    Local segments past the high watermark do not count. The next leader may not have them, and a leader that is cut off
    would delete remote segments because of their size, for all brokers.
    """
    only_local = (
        segment.size for segment in log.segments if log.tiered_end_offset <= segment.base_offset < high_watermark
    )
    return sum(only_local) + remote_log.size() - sum(segment.size for segment in strays)


class PartitionBackoffs:
    """The backoff of each partition: the number of consecutive failures, and the time (ms) of the next attempt.

    The settings are `remote.log.manager.task.retry.*`.
    """

    def __init__(self, settings: DynamicConfig, environment: Environment) -> None:
        self._settings = settings
        self._environment = environment
        self._failures: dict[Partition, tuple[int, int]] = {}

    def is_waiting(self, partition: Partition) -> bool:
        return self._environment.monotonic_ms() < self._failures.get(partition, (0, 0))[1]

    def note_failure(self, partition: Partition) -> None:
        config = self._settings.config
        count = self._failures.get(partition, (0, 0))[0]
        pause_ms = config.integer("remote.log.manager.task.retry.backoff.ms") << min(count, 20)
        pause_ms = min(pause_ms, config.integer("remote.log.manager.task.retry.backoff.max.ms"))
        jitter = config.real("remote.log.manager.task.retry.jitter")
        pause_ms = round(pause_ms * self._environment.random.uniform(1 - jitter, 1 + jitter))
        self._failures[partition] = (count + 1, self._environment.monotonic_ms() + pause_ms)

    def note_success(self, partition: Partition) -> None:
        self._failures.pop(partition, None)

    def forget_unserved(self, is_served: Callable[[Partition], bool]) -> None:
        """Forget the partitions that this broker does not serve any more."""
        self._failures = {each: pause for each, pause in self._failures.items() if is_served(each)}
