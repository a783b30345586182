"""Determines the range of offsets that a query reads of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.options.offset_choices import EARLIEST, LATEST, OffsetChoice, Timestamps
from moldau.tables.options.read_options import ReadOptions
from moldau.tables.planning.partition_view import PartitionView
from moldau.tables.planning.snapshot import Snapshot, check_unchanged, partition_in
from moldau.tables.refusals import DataLost, Refused, SnapshotChanged, warn


class OffsetRange(NamedTuple):
    """The offsets to read of one partition: [start_offset, end_offset)."""

    view: PartitionView
    start_offset: int
    end_offset: int

    @property
    def key(self) -> TopicPartition:
        return self.view.key

    @property
    def size(self) -> int:
        """An estimate of the bytes to read: the bytes of the partition's segments, times the share of its offsets that
        are in the range."""
        view = self.view
        return view.size * (self.end_offset - self.start_offset) // max(1, view.high_watermark - view.log_start_offset)


def ranges_of(
    views: Sequence[PartitionView], options: ReadOptions, snapshot: Snapshot | None, keys: Sequence[TopicPartition]
) -> list[OffsetRange]:
    """Return the range of offsets of each partition. It ends at the high watermark at the latest; if only committed
    records are read, at the last stable offset.

    `keys`: all partitions that the options select, which offsets in JSON have to name. Raises `Refused`, and OSError
    and `MalformedMessage` of the files.
    """
    for side, choice in (("starting", options.starting), ("ending", options.ending)):
        check_names_all(side, choice, keys)
    return [range_of(view, options, snapshot) for view in views]


def check_names_all(side: str, choice: OffsetChoice, wanted: Iterable[TopicPartition]) -> None:
    """Check that offsets or times in JSON are given for every partition and for no other, as Spark's Kafka connector
    requires. `side`: `starting` or `ending`. Raises `Refused`."""
    name = f"{side}Offsets"
    if isinstance(choice, Timestamps):
        if isinstance(choice.times, int):
            return
        name, choice = f"{side}OffsetsByTimestamp", choice.times
    if isinstance(choice, str):
        return
    keys = set(wanted)
    for problem, wrong in (("does not name", keys - choice.keys()), ("names", choice.keys() - keys)):
        if wrong:
            topic, partition = min(wrong)
            raise Refused(f"{name} {problem} {topic}-{partition}: it is to name the partitions that are read")


def range_of(view: PartitionView, options: ReadOptions, snapshot: Snapshot | None) -> OffsetRange:
    """Return the range of offsets of one partition. Requested offsets that the log does not have are reported as data
    loss."""
    if not view.is_checkpointed and view.has_segments:
        warn(
            f"{view}: the broker has not written down its high watermark yet (it does so every few seconds and when "
            "it stops): nothing of it is read"
        )
    log_start, limit, what = limits_of(view, options, snapshot)
    start = start_of(view, options, log_start, limit)
    end = end_of(view, options, limit)
    log_end = view.high_watermark if snapshot is None else partition_in(snapshot, view).high_watermark
    if start > log_end:  # Between the last stable offset and this one nothing is committed yet, and nothing is lost.
        report_data_loss(options, f"{view}: offset {start} is asked for, and the log ends at {log_end}")
    if start < log_start:
        report_data_loss(options, f"{view}: offset {start} is asked for, and the log starts at {log_start}")
    if end > limit:
        report_data_loss(options, f"{view}: records before {end} are asked for, and the {what} is {limit}")
    start = max(start, log_start)
    end = max(start, min(end, limit))
    if snapshot is not None and start < end:
        change = check_unchanged(snapshot, view, start)
        if change is not None:
            report_data_loss(options, f"{view}: not as in the snapshot: {change}", SnapshotChanged)
    return OffsetRange(view, start, end)


def limits_of(view: PartitionView, options: ReadOptions, snapshot: Snapshot | None) -> tuple[int, int, str]:
    """The offsets of a partition that may be read: the first one, the end (exclusive), and the name of that end for
    messages."""
    if snapshot is not None:
        known = partition_in(snapshot, view)
        if options.is_committed:
            return known.log_start_offset, known.last_stable_offset, "last stable offset of the snapshot"
        return known.log_start_offset, known.high_watermark, "high watermark of the snapshot"
    if options.is_committed:
        return view.log_start_offset, view.last_stable_offset(), "last stable offset"
    return view.log_start_offset, view.high_watermark, "high watermark"


def start_of(view: PartitionView, options: ReadOptions, log_start: int, limit: int) -> int:
    choice = options.starting
    if isinstance(choice, str):
        return log_start
    if not isinstance(choice, Timestamps):
        return log_start if choice[view.key] == EARLIEST else choice[view.key]
    timestamp = choice.of(view.key)
    found = offset_at(view, timestamp, limit)
    if found is None and not options.unmatched_start_is_latest:
        raise Refused(
            f"{view}: no record has the starting time {timestamp} or a later one; with "
            "startingOffsetsByTimestampStrategy=latest nothing of this partition is read"
        )
    return limit if found is None else max(found, log_start)


def end_of(view: PartitionView, options: ReadOptions, limit: int) -> int:
    choice = options.ending
    if isinstance(choice, str):
        return limit
    if not isinstance(choice, Timestamps):
        return limit if choice[view.key] == LATEST else choice[view.key]
    found = offset_at(view, choice.of(view.key), limit)
    return limit if found is None else found


def offset_at(view: PartitionView, timestamp: int, limit: int) -> int | None:
    """The first offset below `limit` whose record is at or after `timestamp` (ms); None if there is none."""
    found = view.offset_at(timestamp)
    return None if found is None or found >= limit else found


def report_data_loss(
    options: ReadOptions, message: str, kind: type[DataLost] = DataLost, otherwise: str = "reads what is there"
) -> None:
    """Raise `DataLost`; with failOnDataLoss=false print a warning instead, so that the query reads the records that
    exist. `kind`: the subclass of `DataLost` to raise. `otherwise`: the end of the message, which says what the query
    does with failOnDataLoss=false."""
    if options.fails_on_data_loss:
        raise kind(f"{message}; failOnDataLoss=false {otherwise}")
    warn(message)
