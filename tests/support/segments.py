"""Partitions written as a broker leaves them, for those who read the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from moldau.protocol.compression import Codec
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.checkpoints.text_checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    TopicPartition,
    write_offsets,
)
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig

EPOCH = 0
SMALL_SEGMENTS = LogConfig(segment_bytes=20_000, index_interval_bytes=1_000)


def write_partition(
    directory: Path,
    batches: Iterable[bytes],
    *,
    topic: str = "t",
    partition: int = 0,
    config: LogConfig = SMALL_SEGMENTS,
) -> int:
    """Append batches that have their offsets to a partition of a log directory; where the log then ends. A new log
    starts with the first batch.
    """
    log = Log.open(LocalFiles(), f"{directory}/{topic}-{partition}", config, clean_shutdown=True, now_ms=0)
    for batch in batches:
        if log.end_offset == 0 and (first_offset := parse_header(batch, 0).base_offset):
            log.truncate_fully_and_start_at(first_offset, 0)
        result = log.append_as_follower(batch, EPOCH, 0)
        assert not result.error, result
    end_offset = log.end_offset
    log.close(0, clean=True)
    return end_offset


def write_checkpoints(
    directory: Path,
    high_watermarks: Mapping[TopicPartition, int],
    log_starts: Mapping[TopicPartition, int] | None = None,
) -> None:
    """Write the checkpoints with the offsets that may be read."""
    write_offsets(LocalFiles(), str(directory), HIGH_WATERMARK_CHECKPOINT, high_watermarks)
    write_offsets(LocalFiles(), str(directory), LOG_START_CHECKPOINT, log_starts or {})


def mixed_batches(count: int, records_count: int, *, first_offset: int = 0, gap: int = 0) -> list[bytes]:
    """Batches of all codecs one after another, with nulls, headers and both kinds of time; `gap` is between two."""
    batches = []
    offset = first_offset
    for number in range(count):
        append_time = 1_700_000_000_000 + number if number % 4 == 3 else None
        records = [mixed_record(offset + index) for index in range(records_count)]
        batches.append(
            build_batch(
                records,
                base_offset=offset,
                codec=Codec(number % len(Codec)),
                log_append_time_ms=append_time,
                partition_leader_epoch=EPOCH,
                last_offset=offset + records_count - 1,
            )
        )
        offset += records_count + gap
    return batches


def mixed_record(offset: int) -> Record:
    """What a record at an offset holds: now and then no key, no value, headers, or a large value."""
    key = None if offset % 7 == 0 else f"key-{offset % 50}".encode()
    value = None if offset % 11 == 0 else f"value {offset} ".encode() * (1 + offset % 13 * 20)
    headers = (("trace", b"\x00\xff"), ("", b""), ("nothing", None)) if offset % 9 == 0 else ()
    return Record(key, value, 1_600_000_000_000 + offset * 37 - offset % 5 * 1_000, headers)
