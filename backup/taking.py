"""Taking a backup: pieces of earlier backups are reused, the rest is copied, and the manifest is written last.

source.ask ─▶ vector ─▶ pieces that are there stay ─▶ cut ─▶ put ─▶ … ─▶ manifest
                                   └── unfinished/<id>.json, written now and then: a run that is killed is taken
                                       over by the next one as if it had been an earlier backup
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from moldau.backup.cutting import PIECE_SIZE, CutPiece, Cutter, HeldContent
from moldau.backup.layout import piece_key
from moldau.backup.manifest import Manifest, MetadataPiece, PartitionBackup, PartitionKey, TopicBackup
from moldau.backup.sources.port import Asked, LogReader, LogStartMoved, Source, SourceLog
from moldau.backup.store import BackupStore, UnfinishedRun
from moldau.backup.throttle import Throttle
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import NO_LEADER_EPOCH
from moldau.storage.tiered.port import StorageUnavailable, Upload

T = TypeVar("T")
Content: TypeAlias = HeldContent | Upload
NOTED_EVERY: Final = 256 << 20
"""The least bytes of new pieces between two unfinished manifests of a run. The run that follows a killed one reads at
most these bytes again, and a manifest that is durable takes the time of some pieces."""
WRITTEN_AHEAD_MAX: Final = 3
"""The most pieces of a log that wait for the disk of the store, besides the one that waits longest, while the next one
is cut. They are files of the store, and take no memory."""
NOTES_SHARE: Final = 256
"""The unfinished manifests of a run take less than one part in this many of the bytes that the run copies."""
SMALL_PIECES_MAX: Final = 16
"""The number of small pieces at the end of a partition from which on they are copied again as one piece. Without this,
a log that grows little between backups would have one piece for each backup."""
STARTS_MAX: Final = 10
"""The most times that the start of a log may move while a run copies the log."""


class DamagedLog(Exception):
    """A log of the source has a damaged batch below its end. The message names the partition and the location of its
    log."""


class Progress(NamedTuple):
    """The progress of a backup."""

    logs_done: int
    log_count: int
    copied_size: int
    """The bytes of the pieces that the backup copied."""
    kept_size: int
    """The bytes of the pieces that the backup reuses from earlier ones."""


class Taken(NamedTuple):
    """The result of taking a backup."""

    manifest: Manifest
    progress: Progress
    piece_count: int
    """The number of pieces that were copied."""
    places: dict[PartitionKey, str]
    """The location of each log in the source."""


class Offload(Protocol):
    """Runs a blocking function on an executor thread, as `asyncio.to_thread` does."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class Shell:
    """The clock, the executor, the throttle and the progress report that a backup uses."""

    now_ms: Callable[[], int]
    """The wall clock."""
    offload: Offload
    throttle: Throttle
    report: Callable[[Progress], None]


async def take_backup(store: BackupStore, source: Source, shell: Shell, *, piece_size: int = PIECE_SIZE) -> Taken:
    """Take a backup. Raises `RemoteStorageError`, `DamagedLog`, and what `source` raises."""
    await store.claim(source.cluster_id)
    asked = await shell.offload(source.ask)
    run = _Run(store, source.cluster_id, asked, await store.new_id(asked.began_ms), shell, piece_size)
    await run.begin()
    try:
        await run.copy(source.readers_max)
    except asyncio.CancelledError:
        await run.note()
        raise
    return await run.complete()


class _Run:
    """Takes one backup."""

    def __init__(
        self, store: BackupStore, cluster_id: str, asked: Asked, backup_id: str, shell: Shell, piece_size: int
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
        """Reuse the pieces of earlier backups and runs, and write an unfinished manifest, so that no other run removes
        these pieces. If the latest backup is removed before that, start again without it."""
        self._metadata = await self._store.put_metadata(self._asked.metadata)
        is_there = False
        while not is_there:
            latest = await self._store.latest()
            self._ended = [
                each for each in await self._store.unfinished() if each.manifest.backup_id != self._backup_id
            ]
            earlier = [each.manifest for each in self._ended] + ([latest] if latest else [])
            self._parts = await self._shell.offload(partial(carried_over, self._asked.logs, earlier))
            await self.note()
            is_there = latest is None or latest.backup_id in await self._store.backup_ids()
        if self._ended:
            self._left = {each.key async for each in self._store.objects()}
        self._kept_size = sum(piece.size for part in self._parts.values() for piece in part.pieces)

    async def copy(self, readers: int) -> None:
        """Copy the parts of the logs that no reused piece has. `readers`: the number of logs that are copied at the
        same time."""
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

    async def complete(self) -> Taken:
        """Write the manifest of the backup, and remove the unfinished manifests."""
        manifest = self._manifest()
        await self._store.put_manifest(manifest)
        await self._store.forget_unfinished(self._ended, self._backup_id)
        places = {log.key: log.place for log in self._asked.logs}
        return Taken(manifest, self._progress(), self._piece_count, places)

    async def _copy_log(self, log: SourceLog) -> None:
        # A piece in memory can be put again if the store fails for a moment, and need not be put if it is there.
        new_content: Callable[[], Content] = HeldContent if self._left else self._store.new_content
        for _ in range(STARTS_MAX):
            reader = log.open()
            try:
                await self._copy_from(log, reader, new_content)
                return
            except StorageUnavailable:
                if new_content is HeldContent:
                    raise
                new_content = HeldContent
            except LogStartMoved as moved:
                start = min(moved.start_offset, log.end_offset)
                self._parts[log.key] = started_at(self._parts[log.key], start)
            except MalformedMessage as malformed:
                raise DamagedLog(f"{log.key} in {log.place}: {malformed}") from None
            finally:
                reader.close()
        raise DamagedLog(f"{log.key} in {log.place}: its start moved {STARTS_MAX} times while it was copied")

    async def _copy_from(self, log: SourceLog, reader: LogReader, new_content: Callable[[], Content]) -> None:
        """Copy a log from the end of the part that this backup has. The next piece is cut while others are put."""
        start_offset = self._parts[log.key].end_offset
        cutter = Cutter(reader, start_offset, log.end_offset, new_content, self._piece_size)
        puts: deque[tuple[CutPiece[Content], asyncio.Future[None]]] = deque()
        coming = asyncio.ensure_future(self._shell.offload(cutter.next_piece))
        try:
            while (cut := await asyncio.shield(coming)) is not None:
                await self._shell.throttle.spend(cut.size)
                coming = asyncio.ensure_future(self._shell.offload(cutter.next_piece))
                puts.append((cut, asyncio.ensure_future(self._put(log.key, cut))))
                if isinstance(cut.content, HeldContent) or len(puts) > WRITTEN_AHEAD_MAX:
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
        """Add a piece to the part of its log, once it is in the store."""
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
            self._note_due = self._copied_size + NOTED_EVERY  # No other log's piece begins a manifest meanwhile.
            await self.note()

    async def note(self) -> None:
        """Write the unfinished manifest, from which the next run can reuse the pieces of this one."""
        size = await self._store.put_unfinished(self._manifest())
        self._note_due = self._copied_size + max(NOTED_EVERY, NOTES_SHARE * size)

    def _manifest(self) -> Manifest:
        parts = sorted(self._parts.items())
        topics = [
            TopicBackup(name, topic_id, tuple(part for _, part in each))
            for (name, topic_id), each in groupby(parts, key=lambda item: item[0][:2])
        ]
        asked = self._asked
        return Manifest(
            self._backup_id,
            self._cluster_id,
            asked.began_ms,
            asked.asked_ms,
            self._shell.now_ms(),
            self._metadata,
            tuple(topics),
            asked.decided,
        )

    def _progress(self) -> Progress:
        return Progress(self._logs_done, len(self._asked.logs), self._copied_size, self._kept_size)

    def _report(self) -> None:
        self._shell.report(self._progress())


def carried_over(logs: Sequence[SourceLog], earlier: Sequence[Manifest]) -> dict[PartitionKey, PartitionBackup]:
    """Return the part of each log that a new backup reuses from earlier ones. It blocks for the calls of the logs."""
    known: dict[PartitionKey, list[PartitionBackup]] = {}
    for manifest in earlier:
        for key, part in manifest.partitions():
            known.setdefault(key, []).append(part)
    return {log.key: carried(log, known.get(log.key, ())) for log in logs}


def carried(log: SourceLog, earlier: Sequence[PartitionBackup]) -> PartitionBackup:
    """Return the part of one log that a new backup reuses: the longest of the earlier parts that agree with the log."""
    for part in sorted(earlier, key=lambda each: each.end_offset, reverse=True):
        pieces = tuple(each for each in part.pieces if each.end_offset <= log.end_offset)
        if not pieces or pieces[0].first_offset > log.start_offset:
            continue
        end_offset = pieces[-1].end_offset
        if not log.has(part.last_epoch, end_offset):
            continue
        found = started_at(part._replace(end_offset=end_offset, pieces=pieces), log.start_offset)
        return without_small_end(found)
    return PartitionBackup(log.key.partition, log.start_offset, log.start_offset, NO_LEADER_EPOCH, ())


def started_at(part: PartitionBackup, start_offset: int) -> PartitionBackup:
    """Return a part of a log without the pieces that end at or before `start_offset`, the new start of the log."""
    pieces = tuple(each for each in part.pieces if each.end_offset > start_offset)
    if not pieces:
        return PartitionBackup(part.partition, start_offset, start_offset, NO_LEADER_EPOCH, ())
    return part._replace(start_offset=start_offset, pieces=pieces)


def without_small_end(part: PartitionBackup) -> PartitionBackup:
    """Return a part of a log without the small pieces at its end, if there are at least `SMALL_PIECES_MAX` of them.
    They are copied again as one piece."""
    count = size = 0
    for piece in reversed(part.pieces):
        if size + piece.size >= PIECE_SIZE or piece.first_offset < part.start_offset:
            break
        count, size = count + 1, size + piece.size
    if count < SMALL_PIECES_MAX:
        return part
    first = part.pieces[-count].first_offset
    return part._replace(end_offset=first, pieces=part.pieces[:-count])
