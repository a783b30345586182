"""Kafka's text checkpoints: a version, the number of lines, and the lines. The checkpoints of a log directory have one
offset for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from moldau.storage.files.port import FileSystem, write_atomically

VERSION = 0


class CorruptCheckpoint(ValueError):
    """A file does not have the format of a checkpoint. The message has the path and the reason."""


def format_checkpoint(lines: list[str]) -> bytes:
    """The content of a checkpoint file with these lines, after the version and the number of lines."""
    return "".join([f"{VERSION}\n{len(lines)}\n", *(f"{line}\n" for line in lines)]).encode()


def parse_checkpoint(data: bytes, path: str) -> list[str]:
    """Return the lines of a checkpoint file without its two header lines. Raises `CorruptCheckpoint` if the text does
    not have the format of a checkpoint.

    An empty file has no lines: Apache Kafka creates its checkpoints empty before it first writes them.
    """
    if not data:
        return []
    try:
        version, count, *lines = data.decode().splitlines()
    except (UnicodeDecodeError, ValueError):
        raise CorruptCheckpoint(f"{path}: not a checkpoint") from None
    if version != str(VERSION):
        raise CorruptCheckpoint(f"{path}: version {version!r} is not {VERSION}")
    if not count.isdecimal() or int(count) != len(lines):
        raise CorruptCheckpoint(f"{path}: {len(lines)} lines, but {count!r} in the second line")
    return lines


RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"

TopicPartition: TypeAlias = tuple[str, int]
OffsetsByPartition: TypeAlias = dict[TopicPartition, int]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_checkpoint([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def decode_offsets(data: bytes, path: str) -> OffsetsByPartition:
    """Decode the content of a checkpoint file into offsets by partition. Raises `CorruptCheckpoint`."""
    offsets: OffsetsByPartition = {}
    for line in parse_checkpoint(data, path):
        fields = line.split(" ")
        if len(fields) != 3 or not fields[1].isdecimal() or not fields[2].removeprefix("-").isdecimal():
            raise CorruptCheckpoint(f"{path}: {line!r} is not a topic, a partition and an offset")
        key = (fields[0], int(fields[1]))
        if key in offsets:
            raise CorruptCheckpoint(f"{path}: {fields[0]}-{fields[1]} stands there twice")
        offsets[key] = int(fields[2])
    return offsets


def read_offsets(fs: FileSystem, directory: str, name: str) -> OffsetsByPartition:
    """Return the offsets by partition in the checkpoint file `name`; empty if there is no file. Raises OSError and
    `CorruptCheckpoint`."""
    path = f"{directory}/{name}"
    return decode_offsets(fs.read(path), path) if fs.exists(path) else {}


def write_offsets(fs: FileSystem, directory: str, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write the checkpoint file `name` with these offsets and sync it. Blocks for the disk, so it is not called on the
    event loop. Raises OSError."""
    write_atomically(fs, f"{directory}/{name}", encode_offsets(offsets))
