"""Logs to be cleaned, a driver that cleans them as a broker does, and what consumers see of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.compaction.cleaning import clean_segments
from moldau.storage.compaction.request import (
    BytesProcessed,
    CleanablePart,
    CleanerLimits,
    CleaningDone,
    CleaningEvent,
    CleaningRequest,
    cleanable_part,
    cleaning_request,
)
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.files.port import FileSystem
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig

NOW_MS = 1_000_000
SALT = bytes(range(32))
LIMITS = CleanerLimits(dedupe_buffer_size=24 * 1000, io_buffer_size=700)
COMPACTED = LogConfig(
    segment_bytes=700, index_interval_bytes=150, cleanup_policy=("compact",), delete_retention_ms=1000
)
Pair = tuple[str | None, str | None]
NO_PRODUCER = (-1, -1, -1)


class Stored(NamedTuple):
    """A batch of a log as it is stored, with its records."""

    header: BatchHeader
    records: list[Record]
    data: bytes


def send(
    log: Log,
    *pairs: Pair,
    producer: tuple[int, int, int] = NO_PRODUCER,
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
    timestamp: int = NOW_MS,
    now_ms: int = NOW_MS,
) -> int:
    """Append a batch of (key, value) pairs; its base offset. `producer` is (id, epoch, base sequence)."""
    data = build_batch(
        [
            Record(None if key is None else key.encode(), None if value is None else value.encode(), timestamp + number)
            for number, (key, value) in enumerate(pairs)
        ],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
    )
    is_unchecked = is_transactional or any(key is None for key, _ in pairs)
    origin = AppendOrigin.COORDINATOR if is_unchecked else AppendOrigin.CLIENT
    result = log.append_as_leader(bytearray(data), 0, now_ms, origin=origin)
    assert result.error == 0, result
    return result.base_offset


def end_transaction(log: Log, producer_id: int, epoch: int, *, commits: bool, now_ms: int = NOW_MS) -> int:
    """Append the marker that ends a producer's transaction; its offset."""
    marker = end_transaction_marker(
        commits=commits, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, timestamp=now_ms
    )
    result = log.append_as_leader(marker, 0, now_ms, origin=AppendOrigin.COORDINATOR)
    assert result.error == 0, result
    return result.base_offset


def stored(log: Log) -> list[Stored]:
    """All local batches of a log, as a follower reads them; order and checksums are checked."""
    found: list[Stored] = []
    offset = max(log.log_start_offset, log.local_start_offset)
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        assert isinstance(read, LogRead), read
        if read.slice is None:
            break
        data = read.slice.read()
        for position, header in iterate_batches(data):
            assert crc_is_valid(data, position, header)
            batch = data[position : position + header.size]
            if header.last_offset >= offset:
                assert not found or header.base_offset > found[-1].header.last_offset
                found.append(Stored(header, list(records_of(batch)), batch))
                offset = header.next_offset
    return found


def offsets(log: Log) -> list[int]:
    """The offsets of all records, control records included."""
    return [record.offset for each in stored(log) for record in each.records]


def committed(log: Log, from_offset: int = 0, high_watermark: int | None = None) -> list[Record]:
    """What a read_committed consumer gets from an offset on: it goes by the transaction index, as clients do."""
    end = log.last_stable_offset(log.end_offset if high_watermark is None else high_watermark)
    aborted = sorted(log.aborted_transactions(from_offset, end), key=lambda each: each.first_offset)
    skipped: set[int] = set()
    seen: list[Record] = []
    for header, records, _ in stored(log):
        if header.last_offset < from_offset or header.base_offset >= end:
            continue
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipped.add(aborted.pop(0).producer_id)
        if header.is_control:
            if any(record.key == b"\x00\x00\x00\x00" for record in records):
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            seen += [record for record in records if record.offset >= from_offset]
    return seen


def table(log: Log, from_offset: int = 0) -> dict[bytes, bytes]:
    """The latest committed value of each key; a tombstone removes it."""
    return apply({}, committed(log, from_offset))


def apply(known: dict[bytes, bytes], records: Iterable[Record]) -> dict[bytes, bytes]:
    """A table after more records."""
    result = dict(known)
    for record in records:
        if record.key is not None:
            result.pop(record.key, None)
            if record.value is not None:
                result[record.key] = record.value
    return result


def part_of(log: Log, now_ms: int = NOW_MS) -> CleanablePart:
    """What can be cleaned if everything is replicated."""
    return cleanable_part(log, log.first_dirty_offset, log.last_stable_offset(log.end_offset), now_ms)


def request_of(log: Log, now_ms: int = NOW_MS, limits: CleanerLimits = LIMITS) -> CleaningRequest:
    return cleaning_request(log, part_of(log, now_ms), limits, SALT, now_ms)


def clean_log(
    fs: FileSystem, log: Log, now_ms: int = NOW_MS, limits: CleanerLimits = LIMITS, owner: LogDirectory | None = None
) -> CleaningDone | None:
    """One round, as a broker drives it: flush, clean, swap, sync, note, checkpoint. None if nothing is dirty."""
    log.flush(now_ms)
    if owner is not None:
        checkpoint(owner)
    request = request_of(log, now_ms, limits)
    if request.first_dirty_offset >= request.first_uncleanable_offset:
        return None
    return drive(fs, log, request, clean_segments(fs, request), now_ms, owner)


def drive(
    fs: FileSystem,
    log: Log,
    request: CleaningRequest,
    events: Iterable[CleaningEvent],
    now_ms: int,
    owner: LogDirectory | None = None,
) -> CleaningDone:
    """Take the events of a cleaning to its end."""
    to_remove: list[str] = []
    done: CleaningDone | None = None
    for event in events:
        if isinstance(event, CleaningDone):
            done = event
        elif not isinstance(event, BytesProcessed):
            removed = log.swap_cleaned(event, now_ms)
            assert removed is not None
            to_remove += removed
    assert done is not None
    fs.sync_directory(log.directory)
    log.note_cleaned(done.next_dirty_offset, request.truncation_count)
    if owner is not None:
        checkpoint(owner)
    for path in dict.fromkeys(to_remove):
        fs.unlink(path)
    return done


def checkpoint(owner: LogDirectory) -> None:
    work = owner.begin_checkpoint({key: log.end_offset for key, log in owner.logs.items()}.get)
    work.write_files()
    owner.finish_checkpoint(work)
