"""Planning a read: slices of .log files, found with the offset indexes, are packed into tasks by their size."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from spark_jobs.options import EARLIEST, LATEST, OffsetChoice, ReadOptions, TopicSelection
from spark_jobs.partition_files import INTERNAL_TOPICS, PartitionFiles, Refused, find_partitions, open_partitions
from storage.checkpoints.offset_checkpoint import TopicPartition
from storage.files.port import FileSystem
from storage.segment.segment_listing import ListedSegment, PositionRange, locate, split

TASK_SIZE = 32 << 20
"""Bytes of .log files for one task. Starting a task takes Spark about 40 ms; decoding so many bytes takes several times
as long."""


class Slice(NamedTuple):
    """Whole batches of one .log file, and the offsets [start_offset, end_offset) of the records to take from them."""

    path: str
    topic: str
    partition: int
    start_position: int
    end_position: int
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_position - self.start_position


Task: TypeAlias = tuple[Slice, ...]


class OffsetRange(NamedTuple):
    """The offsets to read of one partition: [start, end)."""

    files: PartitionFiles
    start_offset: int
    end_offset: int


class DataLost(Refused):
    """Records of the requested offsets have been deleted."""


def plan(fs: FileSystem, options: ReadOptions) -> list[Task]:
    """The tasks of a read. Raises `Refused`; `CorruptCheckpoint` and OSError of the files."""
    return tasks_of(fs, ranges_of(fs, options), options)


def ranges_of(fs: FileSystem, options: ReadOptions) -> list[OffsetRange]:
    """The range of offsets to read of each selected partition. Raises as `plan`."""
    places = selected(find_partitions(fs, options.directories), options.subscription)
    partitions = open_partitions(fs, places)
    for name, choice in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        check_names_all(name, choice, places)
    return [range_of(files, options) for files in partitions]


def tasks_of(fs: FileSystem, ranges: Sequence[OffsetRange], options: ReadOptions) -> list[Task]:
    """Cut ranges into slices and pack these into tasks, in order."""
    size = sum(segment.size for each in ranges for segment in each.files.segments)
    task_size = TASK_SIZE if options.tasks_min is None else min(TASK_SIZE, -(-size // options.tasks_min))
    tasks: list[Task] = []
    for pieces in pieces_of(ranges, options.records_per_task_max):
        slices = [each for piece in pieces for each in slices_of(fs, piece, max(task_size, 1))]
        tasks += packed(slices, task_size)
    return tasks


def selected(found: Mapping[TopicPartition, str], subscription: TopicSelection) -> dict[TopicPartition, str]:
    """The selected partitions, in order, with their directories."""
    if subscription.partitions:
        for topic, partition in subscription.partitions:
            if (topic, partition) not in found:
                raise Refused(f"assign: {topic}-{partition} is not in these log directories")
        return {key: found[key] for key in sorted(subscription.partitions)}
    topics = {topic for topic, _ in found}
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        wanted = {topic for topic in topics - INTERNAL_TOPICS if pattern.fullmatch(topic)}
    else:
        wanted = set(subscription.topics)
        for topic in subscription.topics:
            if topic not in topics:
                raise Refused(f"subscribe: no partition of {topic} is in these log directories")
    chosen = {key: found[key] for key in sorted(found) if key[0] in wanted}
    warn_of_gaps(chosen)
    return chosen


def warn_of_gaps(chosen: Mapping[TopicPartition, str]) -> None:
    """Warn where partition numbers have a gap: with a partition 2 there are 0 and 1, perhaps in another directory."""
    highest: dict[str, int] = {}
    for topic, partition in chosen:
        highest[topic] = max(partition, highest.get(topic, 0))
    for topic, last in highest.items():
        missing = [str(partition) for partition in range(last) if (topic, partition) not in chosen]
        if missing:
            warn(f"{topic}: partitions {', '.join(missing)} are not in these log directories and are not read")


def check_names_all(name: str, choice: OffsetChoice, wanted: Mapping[TopicPartition, str]) -> None:
    """As in the connector, offsets in JSON are given for every partition and for no other."""
    if isinstance(choice, str):
        return
    for problem, keys in (("does not name", wanted.keys() - choice.keys()), ("names", choice.keys() - wanted.keys())):
        if keys:
            topic, partition = min(keys)
            raise Refused(f"{name} {problem} {topic}-{partition}: it is to name the partitions that are read")


def range_of(files: PartitionFiles, options: ReadOptions) -> OffsetRange:
    """The range of offsets to read of a partition, never past its high watermark."""
    if not files.is_checkpointed and files.segments:
        warn(
            f"{files}: the broker has not written down its high watermark yet (it does so every few seconds and when "
            "it stops): nothing of it is read"
        )
    start, end = files.log_start_offset, files.high_watermark
    if not isinstance(options.starting, str):
        chosen = options.starting[files.key]
        start = start if chosen == EARLIEST else chosen
    if not isinstance(options.ending, str):
        chosen = options.ending[files.key]
        end = end if chosen == LATEST else chosen
    if start < files.log_start_offset:
        lost(options, f"{files}: offset {start} is asked for, and the log starts at {files.log_start_offset}")
    if end > files.high_watermark:
        lost(options, f"{files}: records before {end} are asked for, and the high watermark is {files.high_watermark}")
    start = max(start, files.log_start_offset)
    return OffsetRange(files, start, max(start, min(end, files.high_watermark)))


def lost(options: ReadOptions, message: str) -> None:
    """Raise `DataLost`; with failOnDataLoss=false warn, and read the records that are there."""
    if options.fails_on_data_loss:
        raise DataLost(f"{message}; failOnDataLoss=false reads what is there")
    warn(message)


def pieces_of(ranges: Sequence[OffsetRange], records_max: int | None) -> Iterator[list[OffsetRange]]:
    """Split ranges into groups for minPartitions; a task never has slices of two groups. One group without a count."""
    if records_max is None:
        yield list(ranges)
        return
    for files, start, end in ranges:
        for piece_start in range(start, end, records_max):
            yield [OffsetRange(files, piece_start, min(end, piece_start + records_max))]


def slices_of(fs: FileSystem, piece: OffsetRange, slice_size: int) -> Iterator[Slice]:
    """The slices with the records of a range."""
    files, start_offset, end_offset = piece
    for segment in files.segments:
        following = segment.next_base_offset
        if segment.base_offset >= end_offset or (following is not None and following <= start_offset):
            continue
        try:
            positions = positions_of(fs, segment, start_offset, end_offset)
            cuts = (
                split(fs, segment, positions, slice_size) if positions.start_position < positions.end_position else []
            )
        except FileNotFoundError:  # retention is deleting the segment: the task reports the loss when it reads
            cuts = [PositionRange(0, segment.size)]
        for cut in cuts:
            yield Slice(segment.path(), files.topic, files.partition, *cut, start_offset, end_offset)


def positions_of(fs: FileSystem, segment: ListedSegment, start_offset: int, end_offset: int) -> PositionRange:
    """The position range of the batches with offsets in [start, end) in a segment."""
    start = end = None
    if start_offset > segment.base_offset:
        start = locate(fs, segment, start_offset)
        if start is None:
            return PositionRange(segment.size, segment.size)
    following = segment.next_base_offset
    if following is None or end_offset < following:
        end = locate(fs, segment, end_offset)
    end_position = segment.size
    if end is not None:
        end_position = end.position if end.base_offset >= end_offset else end.position + end.size
    return PositionRange(start.position if start else 0, end_position)


def packed(slices: Sequence[Slice], task_size: int) -> Iterator[Task]:
    """Neighbours together until they fill a task."""
    cuts = [0]
    size = 0
    for index, each in enumerate(slices):
        size += each.size
        if size >= task_size:
            cuts.append(index + 1)
            size = 0
    if cuts[-1] != len(slices):
        cuts.append(len(slices))
    for first, after in pairwise(cuts):
        yield tuple(slices[first:after])


def warn(message: str) -> None:
    """Warn on the standard error of the driver, once for each message."""
    warnings.warn(f"moldau: {message}", UserWarning, stacklevel=2)
