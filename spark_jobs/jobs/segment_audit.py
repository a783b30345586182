"""Auditing one segment, as a task does it: every batch against its checksum, the offsets, the indexes beside it.

| checked           | how                                                                                            |
|-------------------|------------------------------------------------------------------------------------------------|
| batches           | the framing, and the CRC-32C of each; after a wrong one the audit goes on with the next batch  |
| offsets           | each batch begins past the one before it, and lies within its segment                          |
| holes             | if no cleaner has been, each batch begins where the one before it ends, and the last batch |
|                   | ends where the next segment begins; elsewhere the indexes name no batch past the end           |
| offset index      | entries ascend; each position is that of a batch, which does not begin past the entry's offset |
| time index        | entries ascend; no batch up to an entry's offset has a later timestamp than the entry          |
| transaction index | entries can be decoded; each marker of an aborted transaction has one                          |
| remote objects    | the size and the checksum of each index are those of the manifest, which is whole              |
"""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

from moldau.protocol.primitives import BytesLike, MalformedMessage, crc32c
from moldau.protocol.record_batch import MAGIC, BatchHeader, crc_is_valid
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.log_paths import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from moldau.storage.segment.transaction_index import CorruptTransactionIndex, decode_entries
from moldau.storage.tiered.layout import ObjectKind
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, SegmentManifest, decode_manifest
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound
from moldau.tables.decoding.segment_batches import stored_batches
from moldau.tables.origins.blocking_storage import storage_at
from moldau.tables.origins.local_segments import damage_at_end
from moldau.tables.origins.open_transactions import is_abort
from moldau.tables.origins.port import OFFSET_MAX, Slice, upgrade_old_message
from moldau.tables.origins.tiered_segments import TieredSegments
from moldau.tables.refusals import DataLost

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
OFFSET_DIGITS: Final = 20
PROBLEMS_MAX: Final = 100
"""The most problems that the audit reports of one segment."""
INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class Problem(NamedTuple):
    """A problem that an audit has found. `check`: the kind of the failed check; `offset`: -1 if no offset is known."""

    check: str
    path: str
    offset: int
    message: str


class BatchMark(NamedTuple):
    """The fields of a batch that the audit keeps."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    crc: int


@dataclass(slots=True)
class SegmentFindings:
    """The result of the audit of a segment."""

    batches: list[BatchMark] = field(default_factory=list)
    records_count: int = 0
    size: int = 0
    """The bytes of the batches that were read."""
    crc: int = 0
    """The CRC-32C of the batches that were read, one after another."""
    aborts: list[int] = field(default_factory=list)
    """The offsets of the markers of aborted transactions."""
    problems: list[Problem] = field(default_factory=list)
    is_gone: bool = False
    """Whether retention or compaction removed the segment after the audit was planned. Nothing else is then reported of
    it.
    """

    def add(self, position: int, header: BatchHeader, piece: BytesLike, inside: int) -> None:
        """Count a batch, and keep its fields. If the batch is the marker of an aborted transaction, keep its offset."""
        self.size += header.size
        self.crc = crc32c(memoryview(piece)[inside : inside + header.size], self.crc)
        self.records_count += header.records_count
        self.batches.append(
            BatchMark(position, header.base_offset, header.last_offset, header.max_timestamp, header.crc)
        )
        if header.is_control and header.is_transactional:
            self.aborts += [header.base_offset] if is_abort(bytes(piece[inside : inside + header.size])) else []

    def report(self, check: str, path: str, offset: int, message: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(check, path, offset, message))


def audit_segment(wanted: Slice) -> SegmentFindings:
    """Audit a segment: check a slice that starts at the segment's beginning, and its indexes. Damaged objects are among
    the findings. Raises OSError and other `RemoteStorageError`s."""
    findings = SegmentFindings()
    try:
        audit_batches(wanted, findings)
        audit_indexes(wanted, findings)
    except DataLost as lost:
        if not is_damaged_object(wanted):
            return SegmentFindings(is_gone=True)
        findings.report("objects", wanted.path, wanted.start_offset, str(lost))
    return findings


def is_damaged_object(wanted: Slice) -> bool:
    """Whether a segment that cannot be read is an object that a manifest still names. If retention or the cleaner had
    removed it, they would have removed the manifest first. Raises `RemoteStorageError`."""
    if not isinstance(wanted.source, TieredSegments):
        return False
    try:
        _manifest_of(wanted.source, wanted.path.removesuffix(LOG_SUFFIX))
    except DataLost:
        return False
    return True


def base_offset_of(wanted: Slice) -> int:
    """The base offset of the segment of a slice, from the name of its file or object. The slice itself may start at a
    later offset, if remote segments overlap."""
    return int(posixpath.basename(wanted.path)[:OFFSET_DIGITS])


def audit_batches(wanted: Slice, findings: SegmentFindings) -> None:
    """Check the batches of a slice. Raises `DataLost` if the segment was removed, and OSError."""
    path, next_offset, end_position = wanted.path, base_offset_of(wanted), wanted.start_position
    gaps: list[tuple[int, int]] = []
    is_cleaned = not wanted.is_dense
    file = wanted.source.open(wanted)
    try:
        for position, header, piece, inside in stored_batches(file, wanted):
            end_position = position + header.size
            findings.add(position, header, piece, inside)
            is_valid = crc_is_valid(piece, inside, header)
            if is_valid and header.magic != MAGIC:
                header = upgrade_old_message((position, header, piece, inside))[1]
            base, last = header.base_offset, header.last_offset
            if not is_valid:
                findings.report("checksum", path, base, f"the checksum of the batch at position {position} is wrong")
            if base < next_offset or last < base:
                findings.report(
                    "offsets",
                    path,
                    base,
                    f"the batch at position {position} has offsets {base} to {last}, where {next_offset} is the first",
                )
            elif base > next_offset:
                gaps.append((next_offset, base))
            if not 0 <= header.records_count <= last - base + 1:
                findings.report("offsets", path, base, f"{header.records_count} records in offsets {base} to {last}")
            is_cleaned = is_cleaned or header.records_count <= last - base
            next_offset = max(next_offset, last + 1)
        if end_position != wanted.end_position:
            raise MalformedMessage(f"no whole batch at position {end_position}")
    except MalformedMessage as malformed:
        findings.report("framing", path, next_offset, str(malformed))
        return
    finally:
        file.close()
    if is_cleaned:
        damage = damage_at_end(wanted.segment, next_offset - 1)
        if damage is not None:
            findings.report("holes", path, next_offset, damage)
        gaps.clear()
    segment_end = wanted.segment.batches_end
    if segment_end == OFFSET_MAX:
        segment_end = next_offset
    if next_offset > segment_end:
        findings.report(
            "offsets", path, segment_end, f"the segment goes on to {next_offset}, and the next begins at {segment_end}"
        )
    elif next_offset < segment_end and not is_cleaned:
        gaps.append((next_offset, segment_end))
    for start, end in gaps:
        findings.report("holes", path, start, f"offsets {start} to {end} are missing")


def audit_indexes(wanted: Slice, findings: SegmentFindings) -> None:
    """Check the indexes of a segment. Raises `DataLost` if they were removed together with the segment."""
    is_readable = not any(each.check == "framing" for each in findings.problems)
    if isinstance(wanted.source, TieredSegments):
        audit_objects(wanted, wanted.source, findings)
    for suffix in INDEX_SUFFIXES:
        path = wanted.path.removesuffix(LOG_SUFFIX) + suffix
        try:
            data = index_bytes(wanted, suffix)
        except CorruptObject as corrupt:
            findings.report("objects", path, -1, str(corrupt))
            continue
        if data is None:
            if suffix == TRANSACTION_INDEX_SUFFIX:
                audit_aborts(path, b"", findings)
            elif not wanted.segment.is_growing:
                findings.report("indexes", path, -1, "the index is missing")
            continue
        if suffix == TRANSACTION_INDEX_SUFFIX:
            audit_aborts(path, data, findings)
        elif is_readable:
            check = offset_index_problems if suffix == OFFSET_INDEX_SUFFIX else time_index_problems
            for offset, message in check(wanted, findings.batches, data):
                findings.report("indexes", path, offset, message)


def audit_objects(wanted: Slice, source: TieredSegments, findings: SegmentFindings) -> None:
    """Compare the objects of a remote segment that are not indexes with its manifest. Raises `DataLost` if the segment
    was removed."""
    stem = wanted.path.removesuffix(LOG_SUFFIX)
    for kind in (ObjectKind.PRODUCER_SNAPSHOT, ObjectKind.LEADER_EPOCHS):
        try:
            _object_bytes(source, stem, kind)
        except CorruptObject as corrupt:
            findings.report("objects", stem + kind.value, -1, str(corrupt))
    _audit_manifest_end(source, stem, findings)
    summary = _manifest_of(source, stem).objects[ObjectKind.LOG]
    is_longer = len(storage_at(source.address).get(wanted.path, summary.size, 1)) > 0
    if is_longer or (findings.size == summary.size and findings.crc != summary.crc32c):
        message = f"{wanted.path} does not have the size and the checksum that its manifest states"
        findings.report("objects", wanted.path, -1, message)


def _audit_manifest_end(source: TieredSegments, stem: str, findings: SegmentFindings) -> None:
    """Report a manifest that does not end with a line feed. A JSON parser would not notice that its object was cut
    there."""
    key = stem + ObjectKind.MANIFEST.value
    if not _manifest_bytes(source, key).endswith(b"}\n"):
        findings.report("objects", key, -1, f"{key} does not end as a manifest does")


def audit_aborts(path: str, data: bytes, findings: SegmentFindings) -> None:
    """Compare a transaction index with the markers of aborted transactions in its segment."""
    try:
        named = {each.last_offset for each in decode_entries(path, data)}
    except CorruptTransactionIndex as corrupt:
        findings.report("indexes", path, -1, str(corrupt.strerror))
        return
    for offset in findings.aborts:
        if offset not in named:
            findings.report("indexes", path, offset, f"the index does not name the transaction aborted at {offset}")


def index_bytes(wanted: Slice, suffix: str) -> bytes | None:
    """The content of an index; None if it does not exist. Raises `DataLost` if the segment does not exist either,
    `CorruptObject` if an object differs from its manifest, and OSError."""
    name = wanted.path.removesuffix(LOG_SUFFIX)
    if isinstance(wanted.source, TieredSegments):
        return _object_bytes(wanted.source, name, ObjectKind(suffix))
    files = LocalFiles()
    try:
        file = files.open(name + suffix, read_only=True)
    except FileNotFoundError:
        if not files.exists(wanted.path):
            raise DataLost(f"{wanted}: {wanted.path} was deleted after the audit was planned") from None
        return None
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def cleaned_end_of(remote: Slice) -> int:
    """The offset (exclusive) up to which compaction has cleaned a remote segment; 0 if it has not cleaned it, or if the
    segment is local. Raises `DataLost` and `RemoteStorageError`."""
    if not isinstance(remote.source, TieredSegments):
        return 0
    return _manifest_of(remote.source, remote.path.removesuffix(LOG_SUFFIX)).cleaned_end_offset


def _manifest_of(source: TieredSegments, stem: str) -> SegmentManifest:
    key = stem + ObjectKind.MANIFEST.value
    return decode_manifest(key, _manifest_bytes(source, key))


def _manifest_bytes(source: TieredSegments, key: str) -> bytes:
    try:
        return bytes(storage_at(source.address).get(key, 0, MANIFEST_SIZE_MAX))
    except ObjectNotFound as gone:
        raise DataLost(str(gone)) from None


def _object_bytes(source: TieredSegments, stem: str, kind: ObjectKind) -> bytes | None:
    storage, key = storage_at(source.address), stem + kind.value
    summary = _manifest_of(source, stem).objects.get(kind)
    if summary is None:
        return None
    try:
        data = bytes(storage.get(key, 0, summary.size + 1))
    except ObjectNotFound:
        raise CorruptObject(f"{key} is missing") from None
    if (len(data), crc32c(data, 0)) != summary:
        raise CorruptObject(f"{key} does not have the size and the checksum that its manifest states")
    return data


def entries_of(entry: Struct, data: bytes) -> list[tuple[int, ...]]:
    """The entries of an index up to the zeros that Apache Kafka preallocates. An incomplete entry at the end is left
    out."""
    whole = data[: len(data) - len(data) % entry.size]
    found: list[tuple[int, ...]] = []
    for values in entry.iter_unpack(whole):
        if not any(values):
            break
        found.append(values)
    return found


def offset_index_problems(wanted: Slice, batches: list[BatchMark], data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (offset, message) for each wrong entry of an offset index. Entries past the end of the slice are not
    checked."""
    by_position = {each.position: each for each in batches}
    base_offset = base_offset_of(wanted)
    before = (-1, -1)
    for delta, position in entries_of(OFFSET_ENTRY, data):
        offset = base_offset + delta
        if delta < before[0] or position <= before[1]:
            yield offset, f"entry ({delta}, {position}) does not come after {before}"
        before = (delta, position)
        if position >= wanted.end_position:
            continue
        batch = by_position.get(position)
        if batch is None:
            yield offset, f"an entry of offset {offset} names position {position}, where no batch begins"
        elif batch.base_offset > offset:
            yield offset, f"an entry of offset {offset} names a batch that begins at offset {batch.base_offset}"


def time_index_problems(wanted: Slice, batches: list[BatchMark], data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (offset, message) for each wrong entry of a time index. Entries past the last batch are not checked."""
    ends = [each.last_offset for each in batches]
    latest = list(accumulate((each.max_timestamp for each in batches), max))
    base_offset = base_offset_of(wanted)
    before = (-2, -1)
    for timestamp, delta in entries_of(TIME_ENTRY, data):
        offset = base_offset + delta
        if timestamp < before[0] or delta < before[1]:
            yield offset, f"entry ({timestamp}, {delta}) does not come after {before}"
        before = (timestamp, delta)
        slot = bisect_right(ends, offset)
        if slot and offset <= ends[-1] and latest[slot - 1] > timestamp:
            yield (
                offset,
                f"the entry of time {timestamp} at offset {offset} comes after a batch of time {latest[slot - 1]}",
            )
