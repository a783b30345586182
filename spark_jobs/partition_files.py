"""The partitions in log directories, each with the range of offsets that may be read.

The end is the high watermark that the broker last wrote to its checkpoint (every few seconds, and when it stops).
Batches above it in the files may still be truncated by a later leader, so they are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.checkpoints.offset_checkpoint import HIGH_WATERMARKS, LOG_STARTS, TopicPartition, read_offsets
from storage.files.log_paths import parse_partition_directory
from storage.files.port import FileSystem
from storage.segment.segment_listing import ListedSegment, list_segments

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""Internal topics: read when they are named, and never matched by a pattern."""


LISTINGS_MAX = 10
"""How often a directory is listed again: retention may delete a file between listing it and asking for its size."""


class Refused(ValueError):
    """The query cannot be run with these options; the message names the option and the reason."""


class PartitionFiles(NamedTuple):
    """A partition, as its files and the checkpoints were when they were read."""

    topic: str
    partition: int
    segments: tuple[ListedSegment, ...]
    log_start_offset: int
    high_watermark: int
    """Exclusive end of what may be read; the log start where no checkpoint names the partition."""
    is_checkpointed: bool

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def find_partitions(fs: FileSystem, directories: Sequence[str]) -> dict[TopicPartition, str]:
    """The directory of each live replica under the log directories. Raises `Refused`."""
    found: dict[TopicPartition, str] = {}
    for directory in directories:
        if not fs.is_directory(directory):
            raise Refused(f"path: {directory} is not a directory")
        for name in fs.list_directory(directory):
            parsed = parse_partition_directory(name)
            if parsed is None or parsed.suffix:
                continue
            key = (parsed.topic, parsed.partition)
            if key in found:
                raise Refused(
                    f"path: {name} is in {directory} and is {found[key]} too: name the directories of one broker"
                )
            found[key] = f"{directory}/{name}"
    return found


def open_partitions(fs: FileSystem, places: dict[TopicPartition, str]) -> list[PartitionFiles]:
    """Find the offset ranges of the partitions in these directories, in the order given. Raises `CorruptCheckpoint`.

    The checkpoints are read before the files are listed, so that everything below the high watermark is in the files.
    """
    log_directories = dict.fromkeys(place.rpartition("/")[0] for place in places.values())
    high_watermarks = {path: read_offsets(fs, path, HIGH_WATERMARKS) for path in log_directories}
    log_starts = {path: read_offsets(fs, path, LOG_STARTS) for path in log_directories}
    opened = []
    for key, place in places.items():
        log_directory = place.rpartition("/")[0]
        segments = _segments_now(fs, place)
        first_offset = segments[0].base_offset if segments else 0
        log_start_offset = max(first_offset, log_starts[log_directory].get(key, 0))
        high_watermark = high_watermarks[log_directory].get(key)
        opened.append(
            PartitionFiles(
                *key,
                segments=segments,
                log_start_offset=log_start_offset,
                high_watermark=max(log_start_offset, high_watermark or 0),
                is_checkpointed=high_watermark is not None,
            )
        )
    return opened


def _segments_now(fs: FileSystem, place: str) -> tuple[ListedSegment, ...]:
    for _ in range(LISTINGS_MAX):
        try:
            return tuple(list_segments(fs, place))
        except FileNotFoundError:
            if not fs.exists(place):
                break
    raise Refused(f"{place} is being deleted")
