"""The common parts of the remote cleaner and the remote eraser: a directory for downloads and results, and the
replacement of segments by rewritten ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.tiering.opening import OpenStorage
from moldau.broker.tiering.remote_log_metadata import RemoteLogMetadataWriter
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.compaction.remote_cleaning import GroupCleaned
from moldau.storage.compaction.request import LogChanged
from moldau.storage.files.port import File
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.storage.tiered.index_cache import CACHE_DIRECTORY, RemoteIndexCache
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.metadata.cleaning_groups import OFFSET_SPAN_MAX, cleaned_lineage, merged_epochs
from moldau.storage.tiered.metadata.lineage import Lineage, read_lineage
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment, SegmentState, SegmentUpdate
from moldau.storage.tiered.port import Content, CorruptObject
from moldau.storage.tiered.segment_copy import (
    NO_LINEAGE,
    FileContent,
    download_segment,
    get_checked_object,
    get_manifest,
    put_segment,
)

ID_SIZE: Final = 16


class RemoteWorkplace:
    """Gives directories in which remote segments are rewritten, and downloads segments into them. Its methods are
    called on the event loop.
    """

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        replicas: Replicas,
        opened: OpenStorage,
        indexes: RemoteIndexCache,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._replicas = replicas
        self._opened = opened
        self._indexes = indexes

    @property
    def is_open(self) -> bool:
        """Whether the remote storage has been checked, so that it may be used."""
        return self._opened.is_checked

    def check(self, partition: Partition, epoch: int) -> None:
        """Raise `LogChanged` unless this broker leads the partition in the leader epoch `epoch`, the topic is tiered,
        and the log has not failed.
        """
        leads = partition in self._replicas and partition.is_leader and partition.leader_epoch == epoch
        if not leads or not is_tiered(partition) or partition.log.failure is not None:
            raise LogChanged(partition.log.directory)

    @asynccontextmanager
    async def directory(self, purpose: str, partition: Partition) -> AsyncIterator[str]:
        """A context manager that gives an empty directory for files, which is removed at the end of the context.
        `purpose` becomes a part of its name. Raises OSError.
        """
        name = f"{purpose}-{uuid_text(partition.topic_id)}-{partition.index}"
        path = f"{self._settings.config.log_dirs[0]}/{CACHE_DIRECTORY}/{name}"
        try:
            await self._environment.offload(partial(self._empty, path))
            yield path
        finally:
            await self._environment.offload(partial(self._remove, path))

    def _empty(self, path: str) -> None:
        self._remove(path)
        self._environment.fs.make_directories(path)

    def _remove(self, path: str) -> None:
        if self._environment.fs.exists(path):
            self._environment.fs.remove_tree(path)

    async def download(self, followed: FollowedRemoteLog, segment: RemoteSegment, path: str) -> None:
        """Download the records of a segment into a file, and compare their checksum. Raises what `download_segment`
        raises.
        """
        opened, environment = self._opened, self._environment
        await download_segment(
            opened.storage, opened.cluster_id, followed.key, segment, environment.fs, path, environment.offload
        )

    async def aborted(self, followed: FollowedRemoteLog, segment: RemoteSegment) -> list[AbortedTransaction]:
        """The aborted transactions in the transaction index of a segment. Raises `RemoteStorageError` and OSError."""
        if not segment.has_transaction_index:
            return []
        opened = self._opened
        indexes = await self._indexes.open_indexes(
            opened.storage, opened.cluster_id, followed.key, segment, followed.remote_log
        )
        try:
            return list(indexes.transaction_index.entries())
        finally:
            await self._indexes.release_indexes(indexes)


class ReplacementWriter:
    """Replaces remote segments by a cleaned or erased segment that was made of them. Its methods are called on the
    event loop.

            COPY_SEGMENT_STARTED with the lineage ──▶ objects, the manifest last ──▶ COPY_SEGMENT_FINISHED

    The replay of the last record replaces the ancestors (the segments that it was made of), unless one of them was
    replaced or deleted in the meantime (decision 14). A segment of which cleaning removes nothing gets one record with
    its new lineage, and no new objects.
    """

    def __init__(
        self, node_id: int, environment: Environment, opened: OpenStorage, writer: RemoteLogMetadataWriter
    ) -> None:
        self._node_id = node_id
        self._environment = environment
        self._opened = opened
        self._writer = writer

    async def write(
        self,
        followed: FollowedRemoteLog,
        ancestors: Sequence[RemoteSegment],
        cleaned: GroupCleaned,
        check: Callable[[], None],
    ) -> int:
        """Replace the ancestors by the cleaned segment. Returns the number of replaced segments.

        `check` raises if this broker does not lead any more. Raises `RemoteStorageError`, `MetadataNotWritten` and
        OSError; then an unfinished copy may be left.
        """
        if cleaned.is_unchanged and len(ancestors) == 1:
            known = read_lineage(ancestors[0].custom_metadata) or NO_LINEAGE
            await self.keep(
                followed, ancestors[0].segment_id, known._replace(cleaned_end_offset=cleaned.cleaned_end_offset)
            )
            return 0
        lineage = cleaned_lineage(ancestors, cleaned.cleaned_end_offset)
        await self.replace(followed, ancestors, cleaned, self._environment.entropy(ID_SIZE), lineage, check)
        return len(ancestors)

    async def keep(self, followed: FollowedRemoteLog, segment_id: bytes, lineage: Lineage) -> None:
        """Give a segment a new lineage, without new objects. Raises `MetadataNotWritten`."""
        await self._write_finished(followed, segment_id, lineage.encode())

    async def replace(
        self,
        followed: FollowedRemoteLog,
        ancestors: Sequence[RemoteSegment],
        cleaned: GroupCleaned,
        segment_id: bytes,
        lineage: Lineage,
        check: Callable[[], None],
    ) -> None:
        """Write a rewritten segment to remote storage, and let it replace its ancestors. Raises what `write` raises."""
        has_aborted = bool(await self._size(cleaned, ObjectKind.TRANSACTION_INDEX))
        segment = replace(
            replacement(ancestors, cleaned, segment_id, lineage),
            broker_id=self._node_id,
            event_timestamp_ms=self._environment.wall_ms(),
            has_transaction_index=has_aborted,
        )
        if segment.size > OFFSET_SPAN_MAX:
            raise CorruptObject(f"the cleaned segment at offset {segment.start_offset} has {segment.size} bytes")
        file = self._environment.fs.open(cleaned.paths[ObjectKind.LOG.value], read_only=True)
        followed.under_way.add(segment.segment_id)
        try:
            contents = await self._contents(followed, ancestors, cleaned, has_aborted, file)
            check()
            await self._writer.write(followed, segment)
            check()
            await put_segment(
                self._opened.storage,
                self._opened.cluster_id,
                followed.key,
                segment,
                contents,
                lineage=lineage,
                ancestors=tuple(each.segment_id for each in ancestors),
            )
            check()
            await self._write_finished(followed, segment.segment_id, None)
        finally:
            followed.under_way.discard(segment.segment_id)
            file.close()

    async def _write_finished(self, followed: FollowedRemoteLog, segment_id: bytes, lineage: bytes | None) -> None:
        now_ms, state = self._environment.wall_ms(), SegmentState.COPY_SEGMENT_FINISHED
        await self._writer.write(followed, SegmentUpdate(segment_id, self._node_id, now_ms, state, lineage))

    async def _size(self, cleaned: GroupCleaned, kind: ObjectKind) -> int:
        path = cleaned.paths.get(kind.value)
        return await self._environment.offload(partial(self._environment.fs.file_size, path)) if path else 0

    async def _contents(
        self,
        followed: FollowedRemoteLog,
        ancestors: Sequence[RemoteSegment],
        cleaned: GroupCleaned,
        has_aborted: bool,
        file: File,
    ) -> dict[ObjectKind, Content]:
        """The contents of the objects of a rewritten segment. Producer snapshot and leader epochs are those of the last
        ancestor.
        """
        environment, opened = self._environment, self._opened

        async def read(size: int, position: int) -> bytes:
            return await environment.offload(partial(file.pread, size, position))

        contents: dict[ObjectKind, Content] = {
            ObjectKind.LOG: FileContent(read, cleaned.size) if cleaned.size else b"",
        }
        kinds = [ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX]
        for kind in (*kinds, ObjectKind.TRANSACTION_INDEX) if has_aborted else kinds:
            contents[kind] = bytes(await environment.offload(partial(environment.fs.read, cleaned.paths[kind.value])))
        last = max(ancestors, key=lambda each: each.last_offset)
        manifest = await get_manifest(opened.storage, opened.cluster_id, followed.key, last)
        for kind in (ObjectKind.PRODUCER_SNAPSHOT, ObjectKind.LEADER_EPOCHS):
            contents[kind] = await get_checked_object(opened.storage, followed.key, last, manifest, kind)
        return contents


def replacement(
    ancestors: Sequence[RemoteSegment], cleaned: GroupCleaned, segment_id: bytes, lineage: Lineage
) -> RemoteSegment:
    """The metadata of the segment that replaces its ancestors. It has exactly their range of offsets and their leader
    epochs.
    """
    latest = max(each.max_timestamp_ms for each in ancestors)
    return RemoteSegment(
        segment_id,
        min(each.start_offset for each in ancestors),
        max(each.last_offset for each in ancestors),
        broker_id=-1,
        max_timestamp_ms=cleaned.max_timestamp_ms if cleaned.max_timestamp_ms >= 0 else latest,
        event_timestamp_ms=-1,
        epochs=merged_epochs(ancestors),
        size=cleaned.size,
        custom_metadata=lineage.encode(),
    )
