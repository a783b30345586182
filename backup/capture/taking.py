"""Takes a capture: sampled and masked records of some topics from a window of time, as a backup in one file.

source.ask ─▶ topics ─▶ each log: batches ─▶ window, sample, masks ─▶ pieces ─┐
                 └────▶ __consumer_offsets ─▶ positions, commits ─────────────┴▶ metadata, capture.json, manifest
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Final, NamedTuple

from moldau.backup.capture.captured_log import CaptureFilter, LogCapture
from moldau.backup.capture.commits import GroupCommitCollector
from moldau.backup.capture.metadata import OFFSETS_TOPIC, captured_metadata
from moldau.backup.cutting import CutPiece, LogCutter, MemoryContent
from moldau.backup.manifest import BackupManifest, PartitionBackup, PartitionKey, Piece, TopicBackup
from moldau.backup.sources.port import BackupSource, LogEnds, LogStartMoved, SourceLog
from moldau.backup.store import BackupStore
from moldau.backup.taking import DamagedLog
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.snapshot.batches import load_snapshot
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c
from moldau.protocol.record_batch import NO_LEADER_EPOCH, NO_TIMESTAMP, BatchHeader, parse_header
from moldau.storage.files.port import Offload
from moldau.storage.log_config import INT64_MAX
from moldau.tables.values.masks import MaskRule, Masks

CAPTURE_KEY: Final = "capture.json"
"""The key of the object `capture.json`: the rules of the capture, and the offsets that groups committed in its time
window.
"""
FORMAT_VERSION: Final = 1
READ_SIZE: Final = 4 << 20
PIECE_SIZE: Final = 16 << 20
COMMITS_MAX: Final = 1_000_000
"""The most commits that the object `capture.json` lists."""
INTERNAL_TOPIC_PREFIX: Final = "__"
SCHEMAS_TOPIC: Final = "_schemas"
"""The topic of a schema registry. It is captured whole, unless a pattern in `CaptureRules.topics` matches it."""


class NothingToCapture(Exception):
    """Raised if no topic of the cluster, or no record, matches the rules of the capture."""


class CaptureStopped(Exception):
    """Raised in the thread that reads a log, if the capture was cancelled meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRules:
    """The rules of a capture: its topics, window, sample and masks."""

    topics: Sequence[str]
    """The patterns (with wildcards) of the names of captured topics. They never match internal topics."""
    from_ms: int = -1
    """The start of the time window in ms since 1970. -1 captures each log from its start, without committed offsets
    from before the window.
    """
    to_ms: int = INT64_MAX
    """The end of the time window in ms since 1970 (exclusive)."""
    sample_ratio: float = 1.0
    """The fraction (0 to 1) of the keys whose records are captured."""
    masks: Sequence[MaskRule] = ()
    mask_texts: Sequence[str] = ()
    """The mask rules as the user wrote them. They are stored in `capture.json` for its readers."""

    def matches_topic(self, topic: str) -> bool:
        """Whether one of the patterns in `topics` matches the topic."""
        return not topic.startswith(INTERNAL_TOPIC_PREFIX) and any(
            fnmatchcase(topic, pattern) for pattern in self.topics
        )

    def filter_of(self, topic: str) -> CaptureFilter:
        """Return the filter for the records of a topic. A topic that no pattern matches is captured whole."""
        if not self.matches_topic(topic):
            return CaptureFilter(masks=Masks((), topic))
        return CaptureFilter(
            from_ms=self.from_ms, to_ms=self.to_ms, sample_ratio=self.sample_ratio, masks=Masks(self.masks, topic)
        )


class CaptureResult(NamedTuple):
    manifest: BackupManifest
    record_count: int
    commit_count: int
    position_count: int
    """The number of offsets that groups had committed when the time window began."""


@dataclass(frozen=True, slots=True)
class CaptureShell:
    """The clock, the executor and the progress report that a capture uses."""

    now_ms: Callable[[], int]
    offload: Offload
    report_progress: Callable[[int, int], None]
    """Called with the number of bytes read and the number of bytes captured so far."""


async def take_capture(
    store: BackupStore, source: BackupSource, rules: CaptureRules, shell: CaptureShell
) -> CaptureResult:
    """Capture the topics of a source into an empty store. Raises `NothingToCapture`, `DamagedLog`,
    `RemoteStorageError`, and what `source` raises.
    """
    asked = await shell.offload(source.list_log_ends)
    image = await shell.offload(lambda: _image(asked))
    logs = [log for log in asked.logs if rules.matches_topic(log.key.topic) or log.key.topic == SCHEMAS_TOPIC]
    topics = frozenset(log.key.topic for log in logs if rules.matches_topic(log.key.topic))
    if not topics:
        raise NothingToCapture(f"no topic of the cluster is named {' or '.join(rules.topics)}")
    run = _Run(store, rules, shell)
    await store.claim_for_cluster(source.cluster_id)
    for log in sorted(logs, key=lambda each: each.key):
        await run.capture(log)
    if not run.record_count:
        raise NothingToCapture("no record is in the window")
    commits = GroupCommitCollector(topics, rules.from_ms, rules.to_ms)
    offset_logs = [log for log in asked.logs if log.key.topic == OFFSETS_TOPIC]
    for log in offset_logs:
        await shell.offload(lambda log=log: _note_commits(commits, log))  # type: ignore[misc]
    batch = commits.batch_of_positions(asked.ends_known_ms)
    if batch is not None:
        await run.add_positions(offset_logs[0].key, batch)
    await store.storage.put(CAPTURE_KEY, capture_json(rules, commits))
    names = sorted({key.topic for key in run.parts})
    metadata = await store.put_metadata(captured_metadata(image, names, asked.ends_known_ms))
    manifest = BackupManifest(
        await store.new_backup_id(asked.began_ms),
        source.cluster_id,
        asked.began_ms,
        asked.ends_known_ms,
        shell.now_ms(),
        metadata,
        _topics_of(run.parts),
    )
    await store.put_manifest(manifest)
    return CaptureResult(
        manifest, run.record_count, len(commits.commits_in_window), len(commits.positions_at_window_start())
    )


def capture_json(rules: CaptureRules, commits: GroupCommitCollector) -> bytes:
    """Encode the object `capture.json`. Its commits are sorted by time; each is (time, group, topic, partition,
    offset).
    """
    fields = {
        "format_version": FORMAT_VERSION,
        "topics": list(rules.topics),
        "from_ms": None if rules.from_ms < 0 else rules.from_ms,
        "to_ms": None if rules.to_ms == INT64_MAX else rules.to_ms,
        "share": rules.sample_ratio,
        "masks": list(rules.mask_texts),
        "commits": sorted(commits.commits_in_window)[:COMMITS_MAX],
    }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


class _Run:
    """Carries out one capture."""

    def __init__(self, store: BackupStore, rules: CaptureRules, shell: CaptureShell) -> None:
        self._store = store
        self._rules = rules
        self._shell = shell
        self._read_size = self._taken_size = 0
        self._is_stopped = False
        self.record_count = 0
        self.parts: dict[PartitionKey, PartitionBackup] = {}

    async def capture(self, log: SourceLog) -> None:
        """Capture the records of a log that the rules of the capture choose."""
        captured = LogCapture(self._rules.filter_of(log.key.topic))
        pieces = pack_batches(captured_batches(log, captured, self._note_read))
        parts = []
        coming = self._next_piece(pieces)
        try:
            while (cut := await asyncio.shield(coming)) is not None:
                await self._put(log.key, cut)
                parts.append(cut)
                coming = self._next_piece(pieces)
        except MalformedMessage as malformed:
            raise DamagedLog(f"{log.key} in {log.place}: {malformed}") from None
        except LogStartMoved:
            raise DamagedLog(f"{log.key}: retention removed its begin meanwhile: try again") from None
        except asyncio.CancelledError:
            self._is_stopped = True
            raise
        finally:
            # A thread may run the generator, which can be closed only after that.
            await asyncio.gather(coming, return_exceptions=True)
            pieces.close()
        offset = captured.start_offset if captured.start_offset is not None else log.end_offset
        self._note(log.key, parts, offset)
        if self._rules.matches_topic(log.key.topic):
            self.record_count += captured.record_count

    async def add_positions(self, key: PartitionKey, batch: bytes) -> None:
        """Store the committed offsets at the window's start as the only partition of `__consumer_offsets`."""
        cuts = list(pack_batches(iter([batch])))
        key = key._replace(partition=0)
        for cut in cuts:
            await self._put(key, cut)
        self._note(key, cuts, 0)

    async def _put(self, key: PartitionKey, cut: CutPiece[MemoryContent]) -> None:
        await self._store.put_piece(key, cut)
        cut.content.discard()
        self._taken_size += cut.size
        self._shell.report_progress(self._read_size, self._taken_size)

    def _note(self, key: PartitionKey, cuts: Sequence[CutPiece[MemoryContent]], offset: int) -> None:
        """Note the pieces of a partition. `offset`: the start and end offset of the partition if it has no pieces."""
        first = cuts[0].piece.first_offset if cuts else offset
        end, epoch = (cuts[-1].piece.end_offset, cuts[-1].last_epoch) if cuts else (offset, NO_LEADER_EPOCH)
        self.parts[key] = PartitionBackup(key.partition, first, end, epoch, tuple(cut.piece for cut in cuts))

    def _next_piece(self, pieces: Iterator[CutPiece[MemoryContent]]) -> asyncio.Future[CutPiece[MemoryContent] | None]:
        return asyncio.ensure_future(self._shell.offload(lambda: next(pieces, None)))

    def _note_read(self, size: int) -> None:
        if self._is_stopped:
            raise CaptureStopped
        self._read_size += size


def captured_batches(
    log: SourceLog, captured: LogCapture, note_read: Callable[[int], None]
) -> Generator[bytes, None, None]:
    """Yield the captured batches of one log. Blocks while the source reads. Raises `MalformedMessage`, and what the
    source raises.
    """
    batches = stored_batches(log, note_read)
    try:
        while not captured.needs_no_more_batches and (stored := next(batches, None)) is not None:
            taken = captured.captured_batch(*stored)
            if taken is not None:
                yield taken
    finally:
        batches.close()
    yield from captured.abort_markers(log.end_offset)


def stored_batches(
    log: SourceLog, note_read: Callable[[int], None]
) -> Generator[tuple[BatchHeader, BytesLike], None, None]:
    """Yield the batches of a log with their headers. Blocks while the source reads. Raises `MalformedMessage`, and what
    the source raises.
    """
    reader = log.open_reader()
    try:
        cutter = LogCutter(reader, log.start_offset, log.end_offset, MemoryContent, READ_SIZE)
        while (cut := cutter.cut_next_piece()) is not None:
            note_read(cut.size)
            for part in cut.content.parts:
                view = memoryview(part)
                for position, header in iterate_batches(part):
                    yield header, view[position : position + header.size]
    finally:
        reader.close()


def pack_batches(batches: Iterator[bytes]) -> Generator[CutPiece[MemoryContent], None, None]:
    """Pack batches, in the order of their offsets, into pieces of at least `PIECE_SIZE` bytes; the last may be
    smaller."""
    following: int | None = None
    content = MemoryContent()
    first, crc, max_timestamp, epoch = 0, 0, NO_TIMESTAMP, NO_LEADER_EPOCH
    for batch in batches:
        header = parse_header(batch, 0, True)
        if not content.size:
            first = header.base_offset if following is None else following
        content.write(batch)
        crc = crc32c(batch, crc)
        max_timestamp, epoch = max(max_timestamp, header.max_timestamp), header.partition_leader_epoch
        following = header.next_offset
        if content.size >= PIECE_SIZE:
            yield CutPiece(Piece(first, following, content.size, crc, max_timestamp), content, epoch)
            content, crc, max_timestamp = MemoryContent(), 0, NO_TIMESTAMP
    if content.size and following is not None:
        yield CutPiece(Piece(first, following, content.size, crc, max_timestamp), content, epoch)


def _note_commits(commits: GroupCommitCollector, log: SourceLog) -> None:
    for header, batch in stored_batches(log, lambda _: None):
        commits.add_batch(header, batch)
    commits.end_partition()


def _image(asked: LogEnds) -> MetadataImage:
    end_offset, epoch, data = asked.metadata
    return load_snapshot(data, SnapshotId(end_offset, epoch)).replay.image


def _topics_of(parts: Mapping[PartitionKey, PartitionBackup]) -> tuple[TopicBackup, ...]:
    return tuple(
        TopicBackup(name, topic_id, tuple(part for _, part in each))
        for (name, topic_id), each in groupby(sorted(parts.items()), key=lambda item: item[0][:2])
    )
