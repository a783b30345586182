"""Reads offset records from the bytes of a batch: the inner loop of a coordinator's loading.

This is ordinary typed Python that mypyc can compile (`building/hot_path.py`); both forms give the same results. It
reads only the most frequent form of record: a commit without record headers and with empty metadata, whose value has
version 3, or version 4 with or without the topic's id. It stops at any other record, which the caller reads.

A record: varint size of what follows; int8 attributes; varlong timestamp delta; varint offset delta; varint key size;
key: int16 version 0 or 1, group, topic, int32 partition; varint value size; value; varint count of headers.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.coordinator.group.records import CommittedOffset, Offsets
from moldau.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from mypy_extensions import i64

Place: TypeAlias = tuple[Offsets, str]
"""The place at which an offset is stored: the dictionary of its group's offsets, and its topic's name, which is part of
the key.
"""

# Formats of an offset commit from the key's partition to the end of the value. One byte is skipped: the size of the
# value. The metadata is empty: size 0 in version 3, and 1 in version 4. Version 4 ends with tagged fields, of which tag
# 0 is the topic's id.
TAIL_3: Final = Struct(">ixhqihq")
TAIL_4: Final = Struct(">ixhqiBqB")
TAIL_4_WITH_ID: Final = Struct(">ixhqiBqBBB16s")
PARTITION_SIZE: Final = 4
VALUE_SIZE: Final = 24
VALUE_SIZE_WITH_ID: Final = 42
AROUND_VALUE_SIZE: Final = PARTITION_SIZE + 1 + 1
"""The bytes of a record around the value: the key's partition and the value's size before it, and the count of headers
after it."""
UUID_SIZE: Final = 16
VALUE_VERSION: Final = PARTITION_SIZE + 2
"""The position of the low byte of the value's version, relative to the position of the key's partition."""


def walk_offsets(
    run: bytes, at: i64, count: i64, places: dict[bytes, Place], new_place: Callable[[bytes], Place]
) -> tuple[int, int]:
    """Read up to `count` offset records from position `at` on, and store the offsets. Returns the position after the
    records that were read, and their number. Reading stops at a record of any other form.

    `places` has the dictionary and the topic for an offset, by the encoded key without its partition; `new_place` makes
    a missing entry. Raises `MalformedMessage` as `new_place` does.
    """
    end: i64 = len(run)
    begin: i64 = at
    walked: i64 = 0
    try:
        while walked < count:
            size: i64 = run[at]  # The size takes one byte or two.
            at += 1
            if size >= 0x80:
                high: i64 = run[at]
                if high >= 0x80:
                    break
                size = size & 0x7F | high << 7
                at += 1
            if size & 1:
                break
            record_end: i64 = at + (size >> 1)
            if record_end > end:
                break
            at += 1  # Skip the attributes: no bit of them is defined.
            if run[at] >= 0x80:  # Skip the timestamp delta of one or two bytes.
                at += 1
            if run[at] >= 0x80:
                break
            at += 1
            if run[at] >= 0x80:  # Skip the offset delta of one or two bytes.
                at += 1
            if run[at] >= 0x80:
                break
            at += 1
            key_size: i64 = run[at]  # The size takes one byte or two.
            at += 1
            if key_size >= 0x80:
                high = run[at]
                if high >= 0x80:
                    break
                key_size = key_size & 0x7F | high << 7
                at += 1
            names_end: i64 = at + (key_size >> 1) - PARTITION_SIZE
            if key_size & 1 or names_end < at + 2 or run[at] != 0 or run[at + 1] > 1:
                break
            value_size: i64 = record_end - names_end - AROUND_VALUE_SIZE
            if (
                value_size < VALUE_SIZE
                or run[names_end + PARTITION_SIZE] != value_size << 1
                or run[record_end - 1] != 0
            ):
                break
            found = read_partition_and_offset(run, names_end, value_size)
            if found is None:
                break
            names = run[at:names_end]
            place = places.get(names)
            if place is None:
                place = new_place(names)
            offsets, topic = place
            offsets[topic, found[0]] = found[1]
            begin = at = record_end
            walked += 1
    except IndexError:
        pass
    return begin, walked


def read_partition_and_offset(run: bytes, at: i64, value_size: i64) -> tuple[int, CommittedOffset] | None:
    """Decode the partition and the committed offset of a record; `at` is the position of the key's partition. Returns
    None if the value has none of the formats `TAIL_3`, `TAIL_4` and `TAIL_4_WITH_ID`. The caller has checked that the
    record ends within the buffer."""
    topic_id = ZERO_UUID
    if value_size == VALUE_SIZE_WITH_ID:
        partition, version, offset, epoch, metadata_size, commit_ms, tags, tag, tag_size, topic_id = (
            TAIL_4_WITH_ID.unpack_from(run, at)
        )
        if version != 4 or metadata_size != 1 or tags != 1 or tag != 0 or tag_size != UUID_SIZE:
            return None
    elif value_size != VALUE_SIZE:
        return None
    elif run[at + VALUE_VERSION] == 4:
        partition, version, offset, epoch, metadata_size, commit_ms, tags = TAIL_4.unpack_from(run, at)
        if version != 4 or metadata_size != 1 or tags != 0:
            return None
    else:
        partition, version, offset, epoch, metadata_size, commit_ms = TAIL_3.unpack_from(run, at)
        if version != 3 or metadata_size != 0:
            return None
    # The class's constructor takes twice the time of the tuple's constructor.
    return partition, tuple.__new__(CommittedOffset, (offset, epoch, "", commit_ms, None, topic_id))
