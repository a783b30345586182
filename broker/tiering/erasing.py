"""Carries out erase orders in remote storage (decision 36): the leader of a partition rewrites its remote segments
without the erased records.

    a segment that is read, and was not searched for the order
      ──▶ downloaded, checksum compared ──▶ a process searches it, and rewrites it (`storage/erasure/erasing.py`)
            holds no record of the order  ──▶ COPY_SEGMENT_FINISHED again, with the erased end offset past the order
            holds one ──▶ COPY_SEGMENT_STARTED ──▶ objects ──▶ receipt entry ──▶ COPY_SEGMENT_FINISHED replaces it
    a segment that was replaced, or whose copy or deletion is unfinished
      ──▶ deleted at once, without the grace time for readers; a pin holds it

The erased end offset in the lineage of each segment is the only state, and every replica reads it. An order is
forgotten when each readable remote segment with offsets of the order has an erased end offset past the order, and the
segment with the order itself is copied. A leader that is elected meanwhile continues the order. Each step checks again
whether this broker leads in the same leader epoch.

DIVERGES: Apache Kafka rewrites no remote segment. Its records are used as they are: a reader of Apache Kafka puts the
new segment in the place of the one that begins at the same offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.erasing_process import ErasingProcess
from moldau.broker.replicas.log_eraser import RUNS_OF_PASS_MAX, OrderInProgress
from moldau.broker.replicas.log_rewriting import IoThrottle
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.tiering.copying import PartitionBackoffs, SegmentCopier
from moldau.broker.tiering.remote_log_metadata import MetadataNotWritten, RemoteLogMetadataReader
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.broker.tiering.rewriting import ID_SIZE, RemoteWorkplace, ReplacementWriter
from moldau.protocol.erase_orders import Run, packed_runs_of, runs_of
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.compaction.remote_cleaning import GroupCleaned
from moldau.storage.compaction.request import LogChanged
from moldau.storage.files.log_paths import CLEANED_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, offset_name
from moldau.storage.files.port import write_atomically
from moldau.storage.log.log_start import try_roll
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log.segment_swap import SegmentSize
from moldau.storage.segment.transaction_index import ENTRY, VERSION
from moldau.storage.tiered.metadata.cleaning_groups import replacing_lineage
from moldau.storage.tiered.metadata.lineage import erased_end_offset, read_lineage
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState
from moldau.storage.tiered.port import RemoteStorageError
from moldau.storage.tiered.segment_copy import NO_LINEAGE

if TYPE_CHECKING:
    from moldau.protocol.erase_orders import EraseOrder
    from moldau.storage.erasure.erasing import EraseEvent, EraseRequest, SegmentErased
    from moldau.storage.erasure.receipts import OrderReceipt

log = logging.getLogger("moldau.eraser")

SEGMENTS_AT_ONCE: Final = 200
"""The number of segments that are examined before other callbacks of the event loop run."""


class ErasedState(NamedTuple):
    """The state that a partition had when nothing was left to erase. The partition is examined again only when its
    state has changed.
    """

    metadata_offset: int
    copied_end_offset: int
    orders: tuple[int, ...]
    leader_epoch: int | None
    """The leader epoch of the partition; None if this broker did not lead it."""


class RemoteEraser:
    """Carries out the erase orders of one partition at a time. `LogEraser` calls its methods on the event loop."""

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        replicas: Replicas,
        reader: RemoteLogMetadataReader,
        workplace: RemoteWorkplace,
        copier: SegmentCopier,
        replacements: ReplacementWriter,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._replicas = replicas
        self._reader = reader
        self._workplace = workplace
        self._copier = copier
        self._replacements = replacements
        self._backoff = PartitionBackoffs(settings, environment)
        self._seen: dict[Partition, ErasedState] = {}

    async def go_on(self, partition: Partition, process: ErasingProcess) -> None:
        """Carry out in remote storage, as far as possible now, the erase orders that the local log of a partition has
        carried out. `process` rewrites segments. An error is logged, and the partition is tried again only after a
        backoff.
        """
        if self._backoff.is_waiting(partition):
            return
        try:
            if await self._go_on(partition, process):
                self._backoff.note_success(partition)
            else:
                self._backoff.note_failure(partition)
        except LogChanged:
            pass  # Another broker leads, or the log was truncated: the next call looks again.
        except (RemoteStorageError, MetadataNotWritten, MalformedMessage, OSError) as error:
            self._backoff.note_failure(partition)
            log.error(
                "an erase order of %s-%d was not carried out in remote storage, and is tried again: %s",
                partition.topic,
                partition.index,
                error,
            )

    async def _go_on(self, partition: Partition, process: ErasingProcess) -> bool:
        """Carry out the erase orders of a partition in remote storage as far as possible now. Returns False if pins
        hold all segments that are left.
        """
        self._seen = {each: seen for each, seen in self._seen.items() if each in self._replicas}
        its_log, orders = partition.log, partition.log.erase_orders
        followed = self._reader.get(remote_partition(partition)) if is_tiered(partition) else None
        if not is_tiered(partition):
            for offset in tuple(orders.tiered):
                self._forget(partition, offset)
            return True
        if followed is None or not followed.is_complete or not self._workplace.is_open:
            return True
        copied_end_offset = followed.end_offset(its_log.epochs, its_log.end_offset)
        leader_epoch = partition.leader_epoch if partition.is_leader else None
        seen = ErasedState(followed.next_offset, copied_end_offset, tuple(orders.tiered), leader_epoch)
        if self._seen.get(partition) == seen:
            return True
        is_pinned = False
        for offset in tuple(orders.tiered):
            order = erase_order_at(its_log.segments, offset)
            left = [] if order is None else await self._left(followed, offset, runs_of(order))
            if offset not in orders.tiered:
                raise LogChanged(its_log.directory)
            is_searched = all(_is_for_deletion(followed, each) for each in left)
            (orders.searched.add if is_searched else orders.searched.discard)(offset)
            if order is not None and left and leader_epoch is not None:
                of_pass = await self._orders_from(partition, offset, order)
                if await self._erase(partition, followed, leader_epoch, of_pass, left, process):
                    return True  # The next call looks again.
                is_pinned = True
            if not is_searched:
                break
            if followed.next_offset != seen.metadata_offset:
                return True
            if order is not None and leader_epoch is not None:
                await self._searched(partition, offset, order, is_done=not left)
            if copied_end_offset > offset or order is None:
                self._forget(partition, offset)
        if not is_pinned:
            self._seen[partition] = seen
        return not is_pinned

    async def _left(self, followed: FollowedRemoteLog, order_offset: int, runs: Sequence[Run]) -> list[RemoteSegment]:
        """The remote segments, in any state but deleted, that may have a record which an erase order erases, and were
        not searched for such records yet. `order_offset` is the offset of the order, and `runs` are the offsets that it
        erases.
        """
        from moldau.storage.erasure.erasing import runs_overlap

        def may_hold(segment: RemoteSegment) -> bool:
            is_behind = erased_end_offset(segment.custom_metadata) <= order_offset
            return is_behind and runs_overlap(runs, segment.start_offset, segment.last_offset + 1)

        remote_log, last_offset = followed.remote_log, runs[-1].last
        others = [segment for segment, _ in remote_log.superseded_copies()]
        others += remote_log.unfinished_copies() + remote_log.segments_in_deletion()
        found = {each.segment_id: each for each in filter(may_hold, others)}
        for epoch in sorted(each.epoch for each in remote_log.epoch_starts()):
            offset = runs[0].first
            while offset <= last_offset:
                segments = remote_log.segments_from(epoch, offset, SEGMENTS_AT_ONCE)
                found |= {each.segment_id: each for each in filter(may_hold, segments)}
                if len(segments) < SEGMENTS_AT_ONCE:
                    break
                offset = max(offset, segments[-1].last_offset) + 1
                await asyncio.sleep(0)
        return sorted(found.values(), key=lambda each: (each.start_offset, each.segment_id))

    def _forget(self, partition: Partition, offset: int) -> None:
        partition.log.erase_orders.remove_order(offset)
        partition.log.directory_is_dirty = True  # The next flush writes the checkpoint of orders.

    async def _receipt(self, partition: Partition, offset: int, order: EraseOrder) -> OrderReceipt:
        from moldau.storage.erasure.receipts import TierReceipt, read_or_new_receipt

        fs, directory = self._environment.fs, partition.log.directory
        receipt = await self._environment.offload(partial(read_or_new_receipt, fs, directory, order, offset))
        receipt.tier = receipt.tier or TierReceipt()
        return receipt

    async def _orders_from(self, partition: Partition, offset: int, order: EraseOrder) -> list[OrderInProgress]:
        """The erase order at an offset of the log, and those after it that the local files have carried out as well,
        with their receipts: as many as one pass may have.
        """
        found = [OrderInProgress(offset, order, await self._receipt(partition, offset, order))]
        runs_count = len(order.runs)
        later_offsets = [each for each in partition.log.erase_orders.tiered if each > offset]
        for each in later_offsets:
            later = erase_order_at(partition.log.segments, each)
            runs_count += 0 if later is None else len(later.runs)
            if later is None or runs_count > RUNS_OF_PASS_MAX:
                break
            found.append(OrderInProgress(each, later, await self._receipt(partition, each, later)))
        return found

    async def _write(self, partition: Partition, receipt: OrderReceipt) -> None:
        from moldau.storage.erasure.receipts import write_receipt

        fs, directory = self._environment.fs, partition.log.directory
        await self._environment.offload(partial(write_receipt, fs, directory, receipt))

    async def _searched(self, partition: Partition, offset: int, order: EraseOrder, *, is_done: bool) -> None:
        """Take the steps that follow once no remote segment that is still read has a record that an erase order erases.
        `offset` is the order's own offset in the partition's log.

        If no object in remote storage at all has such a record (`is_done`), the time is written into the order's
        receipt as the end of its work. If the active segment of a leader's log contains the order, the log is rolled,
        so that the segment can be copied to remote storage.
        """
        receipt = await self._receipt(partition, offset, order)
        assert receipt.tier is not None
        if is_done and receipt.tier.done_ms is None:
            receipt.tier.done_ms, receipt.tier.pinned = self._environment.wall_ms(), []
            await self._write(partition, receipt)
            log.info(
                "erase order %s of %s is carried out in remote storage of %s-%d: %d segments were rewritten here",
                receipt.order_id,
                order.principal,
                partition.topic,
                partition.index,
                len(receipt.tier.objects),
            )
        if partition.is_leader and partition.log.active.base_offset <= offset:
            try_roll(partition.log, self._environment.wall_ms())

    async def _erase(
        self,
        partition: Partition,
        followed: FollowedRemoteLog,
        epoch: int,
        orders: Sequence[OrderInProgress],
        left: Sequence[RemoteSegment],
        process: ErasingProcess,
    ) -> bool:
        """Rewrite or delete each remote segment in `left`, because it may have a record that the first of the erase
        orders erases. A rewritten segment is without the records of all of them, so that it is downloaded once.
        Returns False if pins, which forbid the deletion, hold all segments.
        """
        receipt = orders[0].receipt
        tier = receipt.tier
        assert tier is not None
        pinned: list[str] = []
        for segment in left:
            self._workplace.check(partition, epoch)
            if segment.segment_id in followed.under_way or followed.is_being_removed:
                continue
            is_remain = segment.state is SegmentState.COPY_SEGMENT_STARTED
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED and not _is_replaced(followed, segment):
                await self._rewrite(partition, followed, epoch, segment, orders, process)
                if not _is_replaced(followed, segment):
                    continue
            if not await self._copier.remove(followed, segment, is_remain=is_remain):
                pinned.append(uuid_text(segment.segment_id))
        if pinned != tier.pinned:
            tier.pinned = pinned
            await self._write(partition, receipt)
        return len(pinned) < len(left)

    async def _rewrite(
        self,
        partition: Partition,
        followed: FollowedRemoteLog,
        epoch: int,
        segment: RemoteSegment,
        orders: Sequence[OrderInProgress],
        process: ErasingProcess,
    ) -> None:
        """Search one remote segment for records of erase orders, and replace it if it has any."""
        from moldau.storage.erasure.erasing import SegmentErased
        from moldau.storage.erasure.receipts import add_object_to_receipt

        environment, workplace = self._environment, self._workplace
        check = partial(workplace.check, partition, epoch)
        known = read_lineage(segment.custom_metadata) or NO_LINEAGE
        erased: SegmentErased | None = None
        async with workplace.directory("erasing", partition) as directory:
            await self._download(followed, segment, directory)
            check()
            runs = tuple(packed_runs_of(each.order) for each in orders)
            request = _request(partition, segment, runs, directory, self._settings)
            throttle = IoThrottle(self._settings, environment)

            async def on_event(event: EraseEvent) -> None:
                nonlocal erased
                check()
                if isinstance(event, SegmentErased):
                    erased = event
                else:
                    await throttle.pace(event)

            await process.carry_out(request, on_event)
            check()
            erased_end_offset = orders[-1].offset + 1
            if erased is None:
                lineage = known._replace(erased_end_offset=erased_end_offset)
                await self._replacements.keep(followed, segment.segment_id, lineage)
                return
            new_id = environment.entropy(ID_SIZE)
            for each, of_order in zip(orders, erased.erased, strict=True):
                if of_order.records_count:
                    assert each.receipt.tier is not None
                    add_object_to_receipt(each.receipt.tier, segment, new_id, erased, of_order)
                    await self._write(partition, each.receipt)
            lineage = replacing_lineage([segment], known.cleaned_end_offset, erased_end_offset)
            await self._replacements.replace(followed, [segment], _rewritten(erased), new_id, lineage, check)

    async def _download(self, followed: FollowedRemoteLog, segment: RemoteSegment, directory: str) -> None:
        """Download the records and the aborted transactions of a remote segment, and write them as the files of a local
        segment.
        """
        path = f"{directory}/{offset_name(segment.start_offset, LOG_SUFFIX)}"
        await self._workplace.download(followed, segment, path)
        entries = [ENTRY.pack(VERSION, *each) for each in await self._workplace.aborted(followed, segment)]
        if entries:
            path = f"{directory}/{offset_name(segment.start_offset, TRANSACTION_INDEX_SUFFIX)}"
            await self._environment.offload(partial(write_atomically, self._environment.fs, path, b"".join(entries)))


def _is_for_deletion(followed: FollowedRemoteLog, segment: RemoteSegment) -> bool:
    """Whether no reader will read a segment any more. If a pin holds the segment, the leader deletes it when the pin
    ends.
    """
    return segment.state is SegmentState.DELETE_SEGMENT_STARTED or _is_replaced(followed, segment)


def _is_replaced(followed: FollowedRemoteLog, segment: RemoteSegment) -> bool:
    return any(each.segment_id == segment.segment_id for each, _ in followed.remote_log.superseded_copies())


def _request(
    partition: Partition, segment: RemoteSegment, runs: tuple[bytes, ...], directory: str, settings: DynamicConfig
) -> EraseRequest:
    """The erase request for a remote segment that was downloaded into a directory of its own."""
    from moldau.storage.erasure.erasing import EraseRequest, SegmentToErase

    config = partition.log.config
    return EraseRequest(
        directory=directory,
        truncation_count=0,
        segments=(SegmentToErase(SegmentSize(segment.start_offset, segment.size), segment.last_offset + 1, None),),
        orders=runs,
        index_interval_bytes=config.index_interval_bytes,
        expanded_bytes_max=config.expanded_bytes_max,
        expanded_record_bytes_max=config.expanded_record_bytes_max,
        compression_type=config.compression_type,
        compression_level=config.compression_level,
        io_buffer_size=settings.config.integer("log.cleaner.io.buffer.size"),
    )


def _rewritten(erased: SegmentErased) -> GroupCleaned:
    cleaned = erased.cleaned
    return GroupCleaned(
        number=0,
        cleaned_end_offset=0,
        size=cleaned.size,
        max_timestamp_ms=erased.max_timestamp,
        is_unchanged=False,
        paths={suffix: cleaned.path(suffix) + CLEANED_SUFFIX for suffix in cleaned.suffixes},
    )
