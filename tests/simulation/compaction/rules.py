"""What must hold of a compacted log at any moment, by what was ever appended to it.

each batch     is one that was appended, with its offsets, producer, sequences and epochs; its records are of it
untouched      what was never cleanable, or is younger than min.compaction.lag.ms, is there whole
latest         the latest committed record of each key is there; a tombstone for delete.retention.ms at least
horizons       that of a batch never changes
nothing back   if a tombstone is gone, no older record of its key is there
clean part     before the first dirty offset each key has one committed record
transactions   while records of one are there, so is its marker; a read_committed consumer gets no aborted record,
               from no offset; the last stable offset is not past an open transaction
producers      the log, and the batches that are left of it, know the epoch and last sequence of each producer
lookups        by offset and by timestamp agree with the batches
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from tests.simulation.compaction.oracle import NO_SEQUENCE, Oracle, View

LOOKUPS: Final = 4
CONSUMERS: Final = 2


class Violation(Exception):
    """A rule is broken."""


class Held(NamedTuple):
    """A batch of the log."""

    header: BatchHeader
    records: list[Record]


@dataclass(slots=True)
class Looked:
    """A log at one moment, and what it is held against."""

    log: Log
    oracle: Oracle
    view: View
    held: list[Held]
    now_ms: int

    @property
    def left(self) -> View:
        """What the batches of the log tell that are left."""
        view = View(self.oracle.start_offset)
        for header, _ in self.held:
            view.take(self.oracle.by_offset[header.base_offset])
        view.end_offset = self.log.end_offset
        return view

    @property
    def offsets(self) -> dict[int, Record]:
        return {record.offset: record for each in self.held if not each.header.is_control for record in each.records}


def check(
    partition: Partition, oracle: Oracle, horizons: dict[int, int], now_ms: int, random: Random, *, is_copy: bool
) -> None:
    """Raises `Violation`. A copy was fetched from a log that had been cleaned, so that it may lack more. `horizons` are
    the delete horizons that were seen in this log; those of now are added."""
    try:
        _check(partition.log, partition.high_watermark, oracle, horizons, now_ms, random, is_copy=is_copy)
    except Violation as violation:
        raise Violation(f"{partition.topic}: {violation}") from None


def _check(
    log: Log,
    high_watermark: int,
    oracle: Oracle,
    horizons: dict[int, int],
    now_ms: int,
    random: Random,
    *,
    is_copy: bool,
) -> None:
    seen = Looked(log, oracle, oracle.up_to(log.end_offset) if is_copy else oracle.view, held_by(log), now_ms)
    check_batches(seen)
    check_horizons(seen.held, horizons)
    if not is_copy:
        check_untouched(seen)
    offsets = seen.offsets
    check_latest(seen, offsets, is_copy=is_copy)
    check_clean_part(seen, offsets)
    check_transactions(seen, offsets)
    check_producers(seen)
    check_stable_offset(seen, high_watermark)
    begins = [random.choice(oracle.batches).base_offset for _ in oracle.batches[:CONSUMERS]]
    for offset in (log.log_start_offset, *begins):
        check_consumer(seen, offset, high_watermark)
    check_lookups(seen, random)


def held_by(log: Log) -> list[Held]:
    """All batches, as a consumer fetches them."""
    found: list[Held] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.end_offset, at_least_one=True)
        if not isinstance(read, LogRead):
            raise Violation(f"a fetch at {offset} is answered with {read.name}")
        if read.slice is None:
            break
        data = read.slice.read()
        for position, header in iterate_batches(data):
            if not crc_is_valid(data, position, header):
                raise Violation(f"the checksum at {header.base_offset} is wrong")
            if header.last_offset < offset:
                continue
            if found and header.base_offset <= found[-1].header.last_offset:
                raise Violation(f"{header.base_offset} comes after {found[-1].header.last_offset}")
            found.append(Held(header, [*records_of(data, position, header)]))
            offset = header.next_offset
    return found


def stored_offsets(log: Log) -> list[int]:
    """The base offsets of all batches in the segments: those before the log start offset as well, which the cleaner
    cleans like all others and for which it keeps markers."""
    data = [segment.file().pread(segment.size, 0) for segment in log.segments]
    return [header.base_offset for each in data for _, header in iterate_batches(each)]


def check_batches(seen: Looked) -> None:
    for header, records in seen.held:
        batch = seen.oracle.by_offset.get(header.base_offset)
        if batch is None:
            raise Violation(f"a batch at {header.base_offset} that nothing was appended as")
        expected = batch.last_offset, batch.producer_id, batch.producer_epoch, batch.base_sequence
        told = header.last_offset, header.producer_id, header.producer_epoch, header.base_sequence
        kinds = header.is_control, header.is_transactional, header.partition_leader_epoch
        if told != expected or kinds != (batch.is_marker, batch.is_transactional, batch.leader_epoch):
            raise Violation(f"{header} at {header.base_offset} was appended as {batch}")
        for record in records:
            known = batch.records[record.offset - batch.base_offset]
            if (record.key, record.value, record.timestamp) != (known.key, known.value, known.timestamp):
                raise Violation(f"{record} at {record.offset} was appended as {known}")
        if records and header.max_timestamp != max(record.timestamp for record in records):
            raise Violation(f"{header.max_timestamp} is not the largest timestamp at {header.base_offset}")
    log = seen.log
    if seen.held and seen.held[-1].header.next_offset != log.end_offset:
        raise Violation(f"the last batch ends at {seen.held[-1].header.next_offset}, the log at {log.end_offset}")
    if not seen.held and seen.view.end_offset > log.log_start_offset:
        raise Violation(f"no batch is left of a log that ends at {log.end_offset}")


def check_horizons(held: list[Held], known: dict[int, int]) -> None:
    """`known`: by base offset, the delete horizons (ms) that batches had before."""
    for header, _ in held:
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None and known.setdefault(header.base_offset, horizon_ms) != horizon_ms:
            told = f"{horizon_ms}; it was {known[header.base_offset]}"
            raise Violation(f"the delete horizon of the batch at {header.base_offset} is {told}")


def check_untouched(seen: Looked) -> None:
    log, held = seen.log, {each.header.base_offset: len(each.records) for each in seen.held}
    young_ms = seen.now_ms - log.config.min_compaction_lag_ms
    for batch in reversed(seen.oracle.batches):
        is_young = log.config.min_compaction_lag_ms > 0 and max(each.timestamp for each in batch.records) > young_ms
        if batch.base_offset < log.log_start_offset:
            break
        if not (is_young or batch.base_offset >= seen.oracle.cleanable_end):
            continue
        if held.get(batch.base_offset) != len(batch.records):
            why = f"younger than {log.config.min_compaction_lag_ms} ms" if is_young else "never cleanable"
            raise Violation(f"{held.get(batch.base_offset)} of {batch} are left, which was {why}")


def check_latest(seen: Looked, offsets: dict[int, Record], *, is_copy: bool) -> None:
    log, view = seen.log, seen.view
    held_keys: dict[bytes | None, list[int]] = {}
    for offset, record in offsets.items():
        held_keys.setdefault(record.key, []).append(offset)
    for key, offset in view.latest.items():
        if offset in offsets or offset < log.log_start_offset:
            continue
        record = view.committed[offset]
        if is_copy and seen.oracle.view.latest[key] != offset:
            continue  # the leader may have dropped it in favour of one that the copy has not got yet
        if record.value is not None:
            raise Violation(f"{record} at {offset} is not there, the latest of its key")
        older = [each for each in held_keys.get(key, ()) if each in view.committed and each < offset]
        if older:
            raise Violation(f"the tombstone at {offset} is gone, and {offsets[older[-1]]} at {older[-1]} is there")
        since_ms = seen.oracle.cleanable_since_ms(offset)
        if since_ms is None or seen.now_ms < since_ms + log.config.delete_retention_ms:
            raise Violation(f"the tombstone at {offset}, cleanable since {since_ms}, is gone at {seen.now_ms}")


def check_clean_part(seen: Looked, offsets: dict[int, Record]) -> None:
    clean: dict[bytes | None, int] = {}
    for offset, record in offsets.items():
        if offset < (seen.log.first_dirty_offset or 0) and offset in seen.view.committed:
            other = clean.setdefault(record.key, offset)
            if other != offset:
                raise Violation(f"{record.key!r} is at {other} and {offset} of the clean part")


def check_transactions(seen: Looked, offsets: dict[int, Record]) -> None:
    markers = {each.header.base_offset for each in seen.held if each.header.is_control and each.records}
    for offset in offsets:
        marker = seen.view.markers.get(offset)
        if marker is not None and marker not in markers:
            raise Violation(f"the record at {offset} is there, the marker of its transaction at {marker} is not")


def check_stable_offset(seen: Looked, high_watermark: int) -> None:
    """A marker decides its transaction once it is below the high watermark; a process that began later may know it as
    decided already."""
    told, start_offset = seen.log.last_stable_offset(high_watermark), seen.log.log_start_offset
    undecided = [max(first, start_offset) for first, marker in seen.view.ended if marker >= high_watermark]
    highest = min(high_watermark, max(seen.left.first_open_offset, start_offset))
    lowest = min((highest, max(seen.view.first_open_offset, start_offset), *undecided))
    if not lowest <= told <= highest:
        raise Violation(f"last stable offset {told} at {high_watermark}; {lowest} to {highest} by the batches")


def check_consumer(seen: Looked, from_offset: int, high_watermark: int) -> None:
    """A read_committed consumer skips the batches of transactions that the log lists as aborted."""
    log = seen.log
    if not log.log_start_offset <= from_offset < log.end_offset:
        return
    end_offset = log.last_stable_offset(high_watermark)
    coming = sorted(log.aborted_transactions(from_offset, end_offset), key=lambda each: -each.first_offset)
    skipped: set[int] = set()
    for header, records in seen.held:
        if header.last_offset < from_offset or header.base_offset >= end_offset:
            continue
        while coming and coming[-1].first_offset <= header.last_offset:
            skipped.add(coming.pop().producer_id)
        if header.is_control:
            if records and records[0].key == b"\x00\x00\x00\x00":
                skipped.discard(header.producer_id)
            continue
        is_skipped = header.is_transactional and header.producer_id in skipped
        for record in records:
            if is_skipped == (record.offset in seen.view.committed):
                what = "does not get" if is_skipped else "gets"
                raise Violation(f"a consumer from {from_offset} {what} {record} at {record.offset}")


def check_producers(seen: Looked) -> None:
    """Of those that have written behind the start of the log. A copy may lack what its leader has removed in favour of
    a batch that the copy has not got yet."""
    log, left = seen.log, seen.left.producers
    newest = {key: each.last_offset for key, each in seen.oracle.view.producers.items()}
    markers = {each.header.base_offset for each in seen.held if each.header.is_control and each.records}
    for key, each in seen.view.producers.items():
        if each.last_data_offset < log.log_start_offset or each.last_offset != newest[key]:
            continue
        if key in seen.oracle.unsure_producers:
            continue
        fields = each.epoch, each.last_sequence
        entry = log.producers.entries.get(key)
        known = entry and (entry.producer_epoch, entry.last_sequence)
        of_batches = left.get(key) and (left[key].epoch, left[key].last_sequence)
        if each.last_sequence == NO_SEQUENCE and each.last_offset not in markers and known != fields:
            continue  # a marker has begun the epoch, and is empty: a start takes nothing of it, as in Apache Kafka
        if (known, of_batches) != (fields, fields):
            told = f"known as {known}, and by the batches that are left as {of_batches}"
            raise Violation(f"producer {key}, whose epoch and last sequence are {fields}, is {told}")


def check_lookups(seen: Looked, random: Random) -> None:
    log, held = seen.log, seen.held
    for _ in range(LOOKUPS if held else 0):
        wanted = random.choice(held).header.base_offset + random.randint(-1, 1)
        if log.log_start_offset <= wanted < log.end_offset:
            first = next(each.header.base_offset for each in held if each.header.last_offset >= wanted)
            read = log.read(wanted, 1, end_offset=log.end_offset, at_least_one=True)
            assert isinstance(read, LogRead) and read.slice is not None
            _, found = next(iter(iterate_batches(read.slice.read())))
            if found.base_offset != first:
                raise Violation(f"offset {wanted} is looked up as {found.base_offset}; the batch is at {first}")
        records = random.choice(held).records
        if records:
            timestamp = random.choice(records).timestamp + random.randint(-1, 1)
            check_timestamp(seen, timestamp)


def check_timestamp(seen: Looked, timestamp: int) -> None:
    start_offset = seen.log.log_start_offset
    matching = (
        record.offset
        for each in seen.held
        for record in each.records
        if record.timestamp >= timestamp and record.offset >= start_offset
    )
    expected, told = next(matching, None), seen.log.offset_for_timestamp(timestamp)
    if (told and told.offset) != expected:
        raise Violation(f"timestamp {timestamp} is looked up as {told}; the first record is at {expected}")
