"""Takes a backup: reuses pieces of earlier backups, copies the rest, and writes the manifest last.

list log ends ─▶ reuse stored pieces ─▶ cut ─▶ put ─▶ … ─▶ manifest
                      └── unfinished/<id>.json, written at intervals: the next run reuses the pieces
                          of a killed run like those of an earlier backup
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from moldau.backup.cutting import PIECE_SIZE, CutPiece, LogCutter, MemoryContent
from moldau.backup.layout import piece_key
from moldau.backup.manifest import BackupManifest, MetadataPiece, PartitionBackup, PartitionKey, TopicBackup
from moldau.backup.sources.port import (
    ATTEMPTS_MAX,
    BackupSource,
    LogDeleted,
    LogEnds,
    LogReader,
    LogStartMoved,
    SourceLog,
)
from moldau.backup.store import BackupStore, UnfinishedRun
from moldau.backup.throttle import CopyThrottle
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import NO_LEADER_EPOCH
from moldau.storage.files.port import Offload
from moldau.storage.tiered.port import StorageUnavailable, Upload

Content: TypeAlias = MemoryContent | Upload
UNFINISHED_MANIFEST_BYTES_MIN: Final = 256 << 20
"""The minimum bytes of new pieces between two unfinished manifests of a run. After a crash the next run copies at most
these bytes again. More frequent manifests would cost time, because each one is made durable.
"""
PIECES_IN_WRITING_MAX: Final = 3
"""The maximum number of pieces of a log that are being written while the next piece is cut, without the oldest one.
They are files of the store, and take no memory."""
UNFINISHED_MANIFEST_DIVISOR: Final = 256
"""The unfinished manifests of a run take less than 1/`UNFINISHED_MANIFEST_DIVISOR` of the bytes that the run copies."""
SMALL_PIECES_MAX: Final = 16
"""The number of small pieces at the end of a partition from which on they are copied again as one piece. Otherwise a
log that grows slowly would get one piece for each backup."""
LOG_START_MOVES_MAX: Final = 10
"""The maximum number of times that the start of a log may move while a run copies the log."""


class DamagedLog(Exception):
    """Raised if a log of the source has a damaged batch below its end. The message names the partition and the location
    of its log."""


class BackupProgress(NamedTuple):
    logs_done: int
    log_count: int
    copied_size: int
    """The bytes of the pieces that the backup copied."""
    kept_size: int
    """The bytes of the pieces that the backup reuses from earlier ones."""


class BackupResult(NamedTuple):
    """The result of taking a backup."""

    manifest: BackupManifest
    progress: BackupProgress
    piece_count: int
    """The number of pieces that were copied."""
    places: dict[PartitionKey, str]
    """The location of each log in the source, as text."""


@dataclass(frozen=True, slots=True)
class BackupShell:
    """The clock, executor, throttle and progress report that a backup uses."""

    now_ms: Callable[[], int]
    """The wall clock."""
    offload: Offload
    throttle: CopyThrottle
    report_progress: Callable[[BackupProgress], None]


async def take_backup(
    store: BackupStore, source: BackupSource, shell: BackupShell, *, piece_size: int = PIECE_SIZE
) -> BackupResult:
    """Take a backup. If a topic is deleted meanwhile, the backup begins again, and keeps the pieces that it has copied.
    Raises `RemoteStorageError`, `DamagedLog`, and what `source` raises."""
    await store.claim_for_cluster(source.cluster_id)
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await _attempt(store, source, shell, piece_size)
        except LogDeleted:
            continue
    return await _attempt(store, source, shell, piece_size)


async def _attempt(store: BackupStore, source: BackupSource, shell: BackupShell, piece_size: int) -> BackupResult:
    asked = await shell.offload(source.list_log_ends)
    run = _Run(store, source.cluster_id, asked, await store.new_backup_id(asked.began_ms), shell, piece_size)
    await run.begin()
    try:
        await run.copy(source.readers_max)
    except (asyncio.CancelledError, LogDeleted):
        await run.note()
        raise
    return await run.complete()


class _Run:
    """Carries out one backup."""

    def __init__(
        self, store: BackupStore, cluster_id: str, asked: LogEnds, backup_id: str, shell: BackupShell, piece_size: int
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._asked = asked
        self._backup_id = backup_id
        self._shell = shell
        self._piece_size = piece_size
        self._metadata = MetadataPiece(0, 0, 0, 0)
        self._parts: dict[PartitionKey, PartitionBackup] = {}
        """The part of each log that this backup has so far."""
        self._ended: list[UnfinishedRun] = []
        """The unfinished runs that were in the store when this run began."""
        self._left: set[str] = set()
        """The keys of all objects in the store, if an earlier run was stopped. An object that the earlier run had
        copied is not copied again, even if its unfinished manifest does not name the object."""
        self._logs_done = self._piece_count = self._copied_size = self._kept_size = 0
        self._note_due = 0
        """The copied size (bytes) at which the unfinished manifest is written next."""

    async def begin(self) -> None:
        """Select the pieces of earlier backups and runs to reuse, and write an unfinished manifest that protects them
        from removal by other runs. Starts again without the latest backup if that is removed meanwhile.
        """
        self._metadata = await self._store.put_metadata(self._asked.metadata)
        is_there = False
        while not is_there:
            latest = await self._store.read_latest_manifest()
            self._ended = [
                each for each in await self._store.unfinished_runs() if each.manifest.backup_id != self._backup_id
            ]
            earlier = [each.manifest for each in self._ended] + ([latest] if latest else [])
            self._parts = await self._shell.offload(partial(reused_parts, self._asked.logs, earlier))
            await self.note()
            is_there = latest is None or latest.backup_id in await self._store.backup_ids()
        if self._ended:
            self._left = {each.key async for each in self._store.list_objects()}
        self._kept_size = sum(piece.size for part in self._parts.values() for piece in part.pieces)

    async def copy(self, readers: int) -> None:
        """Copy the parts of the logs that no reused piece covers. `readers`: the number of logs that are copied at the
        same time.
        """
        remaining = iter(self._asked.logs)

        async def work() -> None:
            for log in remaining:
                await self._copy_log(log)
                self._logs_done += 1
                self._report()

        tasks = [asyncio.ensure_future(work()) for _ in range(readers)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def complete(self) -> BackupResult:
        """Write the manifest of the backup, and remove the unfinished manifests."""
        manifest = self._manifest()
        await self._store.put_manifest(manifest)
        await self._store.remove_unfinished(self._ended, self._backup_id)
        places = {log.key: log.place for log in self._asked.logs}
        return BackupResult(manifest, self._progress(), self._piece_count, places)

    async def _copy_log(self, log: SourceLog) -> None:
        # A piece in memory can be put again if the store fails for a moment, and need not be put if it is there.
        new_content: Callable[[], Content] = MemoryContent if self._left else self._store.new_content
        for _ in range(LOG_START_MOVES_MAX):
            reader = log.open_reader()
            try:
                await self._copy_from(log, reader, new_content)
                return
            except StorageUnavailable:
                if new_content is MemoryContent:
                    raise
                new_content = MemoryContent
            except LogStartMoved as moved:
                start = min(moved.start_offset, log.end_offset)
                self._parts[log.key] = without_deleted_pieces(self._parts[log.key], start)
            except MalformedMessage as malformed:
                raise DamagedLog(f"{log.key} in {log.place}: {malformed}") from None
            finally:
                reader.close()
        raise DamagedLog(f"{log.key} in {log.place}: its start moved {LOG_START_MOVES_MAX} times while it was copied")

    async def _copy_from(self, log: SourceLog, reader: LogReader, new_content: Callable[[], Content]) -> None:
        """Copy a log from the end of the reused part on. The next piece is cut while earlier ones are stored."""
        start_offset = self._parts[log.key].end_offset
        cutter = LogCutter(reader, start_offset, log.end_offset, new_content, self._piece_size)
        puts: deque[tuple[CutPiece[Content], asyncio.Future[None]]] = deque()
        coming = asyncio.ensure_future(self._shell.offload(cutter.cut_next_piece))
        try:
            while (cut := await asyncio.shield(coming)) is not None:
                await self._shell.throttle.wait_for_bytes(cut.size)
                coming = asyncio.ensure_future(self._shell.offload(cutter.cut_next_piece))
                puts.append((cut, asyncio.ensure_future(self._put(log.key, cut))))
                if isinstance(cut.content, MemoryContent) or len(puts) > PIECES_IN_WRITING_MAX:
                    await self._add(log.key, *puts.popleft())
            while puts:
                await self._add(log.key, *puts.popleft())
        finally:
            # No thread reads or writes any more when the caller closes the reader, and no incomplete file stays.
            (last, *_) = await asyncio.gather(coming, *[put for _, put in puts], return_exceptions=True)
            if isinstance(last, CutPiece):
                last.content.discard()

    async def _put(self, key: PartitionKey, cut: CutPiece[Content]) -> None:
        try:
            if cut.size and piece_key(key, cut.piece) not in self._left:
                await self._store.put_piece(key, cut)
        finally:
            cut.content.discard()

    async def _add(self, key: PartitionKey, cut: CutPiece[Content], put: Awaitable[None]) -> None:
        """Add a piece to its log, when it is stored."""
        await asyncio.shield(put)
        if piece_key(key, cut.piece) in self._left:
            self._kept_size += cut.size
        elif cut.size:
            self._copied_size, self._piece_count = self._copied_size + cut.size, self._piece_count + 1
        part = self._parts[key]
        self._parts[key] = part._replace(
            end_offset=cut.piece.end_offset, last_epoch=cut.last_epoch, pieces=(*part.pieces, cut.piece)
        )
        self._report()
        if self._copied_size >= self._note_due:
            self._note_due = (
                self._copied_size + UNFINISHED_MANIFEST_BYTES_MIN
            )  # No other log's piece begins a manifest meanwhile.
            await self.note()

    async def note(self) -> None:
        """Write the unfinished manifest, from which the next run can reuse the pieces of this one."""
        size = await self._store.put_unfinished(self._manifest())
        self._note_due = self._copied_size + max(UNFINISHED_MANIFEST_BYTES_MIN, UNFINISHED_MANIFEST_DIVISOR * size)

    def _manifest(self) -> BackupManifest:
        parts = sorted(self._parts.items())
        topics = [
            TopicBackup(name, topic_id, tuple(part for _, part in each))
            for (name, topic_id), each in groupby(parts, key=lambda item: item[0][:2])
        ]
        asked = self._asked
        return BackupManifest(
            self._backup_id,
            self._cluster_id,
            asked.began_ms,
            asked.ends_known_ms,
            self._shell.now_ms(),
            self._metadata,
            tuple(topics),
            asked.transaction_log_ends,
        )

    def _progress(self) -> BackupProgress:
        return BackupProgress(self._logs_done, len(self._asked.logs), self._copied_size, self._kept_size)

    def _report(self) -> None:
        self._shell.report_progress(self._progress())


def reused_parts(logs: Sequence[SourceLog], earlier: Sequence[BackupManifest]) -> dict[PartitionKey, PartitionBackup]:
    """Return, for each log, the pieces of earlier backups that this backup reuses. Blocks while the logs are read."""
    known: dict[PartitionKey, list[PartitionBackup]] = {}
    for manifest in earlier:
        for key, part in manifest.partitions():
            known.setdefault(key, []).append(part)
    return {log.key: reused_part(log, known.get(log.key, ())) for log in logs}


def reused_part(log: SourceLog, earlier: Sequence[PartitionBackup]) -> PartitionBackup:
    """Return the part of an earlier backup that the new backup of a log reuses. It is from the backup that reaches
    furthest, of those with the same batches as the log. It is empty if there is none."""
    for part in sorted(earlier, key=lambda each: each.end_offset, reverse=True):
        pieces = tuple(each for each in part.pieces if each.end_offset <= log.end_offset)
        if not pieces or pieces[0].first_offset > log.start_offset:
            continue
        end_offset = pieces[-1].end_offset
        if not log.has_epoch_up_to(part.last_epoch, end_offset):
            continue
        found = without_deleted_pieces(part._replace(end_offset=end_offset, pieces=pieces), log.start_offset)
        return without_small_last_pieces(found)
    return PartitionBackup(log.key.partition, log.start_offset, log.start_offset, NO_LEADER_EPOCH, ())


def without_deleted_pieces(part: PartitionBackup, start_offset: int) -> PartitionBackup:
    """Return the backup of a partition without the pieces that lie below the log start offset `start_offset`."""
    pieces = tuple(each for each in part.pieces if each.end_offset > start_offset)
    if not pieces:
        return PartitionBackup(part.partition, start_offset, start_offset, NO_LEADER_EPOCH, ())
    return part._replace(start_offset=start_offset, pieces=pieces)


def without_small_last_pieces(part: PartitionBackup) -> PartitionBackup:
    """Return the backup of a partition without the small pieces at its end, if there are at least `SMALL_PIECES_MAX` of
    them. The caller copies their batches again, as one piece.
    """
    count = size = 0
    for piece in reversed(part.pieces):
        if size + piece.size >= PIECE_SIZE or piece.first_offset < part.start_offset:
            break
        count, size = count + 1, size + piece.size
    if count < SMALL_PIECES_MAX:
        return part
    first = part.pieces[-count].first_offset
    return part._replace(end_offset=first, pieces=part.pieces[:-count])
