"""Reading the records of `__consumer_offsets` by the million, as at the start of a coordinator.

Nearly all of them are offsets of the same groups and topics over and over, with a value of one of three shapes. Those
are read here with a look-up and one unpacking each; `records.change_of` reads every other, and each name once.
"""

from __future__ import annotations

from struct import Struct

from coordinator.group.records import LEGACY_OFFSET_KEY, OFFSET_KEY, Change, CommittedOffset, OffsetChange, change_of
from protocol.record_builder import Record

_OFFSET_KEYS = frozenset({LEGACY_OFFSET_KEY.to_bytes(2, "big"), OFFSET_KEY.to_bytes(2, "big")})
_PARTITION_SIZE = 4
# Values with empty metadata: version, offset, leader epoch, size of the metadata, commit time; from version 4 on sizes
# are one more in a varint, and a section of tags ends the value, with the topic's id in tag 0.
_VALUE_3 = Struct(">hqihq")
_VALUE_4 = Struct(">hqiBqB")
_VALUE_4_WITH_ID = Struct(">hqiBqBBB16s")
_EMPTY_3, _EMPTY_4 = 0, 1
_UUID_SIZE = 16


class ChangeReader:
    """Remembers the names it has met: equal ones are then one object."""

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}
        """Group and topic by the key without its partition."""

    def read(self, record: Record) -> Change | None:
        """As `records.change_of`."""
        key, value = record.key, record.value
        if key is None or value is None or key[:2] not in _OFFSET_KEYS:
            return change_of(record)
        names = self._names.get(key[:-_PARTITION_SIZE])
        if names is None:
            change = change_of(record)
            if isinstance(change, OffsetChange):
                self._names[key[:-_PARTITION_SIZE]] = (change.group_id, change.topic)
            return change
        committed = read_short_value(value)
        if committed is None:
            return change_of(record)
        return OffsetChange(names[0], names[1], int.from_bytes(key[-_PARTITION_SIZE:], "big", signed=True), committed)


def read_short_value(value: bytes) -> CommittedOffset | None:
    """An offset without metadata in version 3 or 4; None for all else, and for what is malformed."""
    if len(value) == _VALUE_4.size:
        if value[1] == 4:
            version, offset, epoch, metadata_size, commit_ms, tags_count = _VALUE_4.unpack(value)
            if version == 4 and metadata_size == _EMPTY_4 and tags_count == 0:
                return CommittedOffset(offset, epoch, "", commit_ms)
        else:
            version, offset, epoch, metadata_size, commit_ms = _VALUE_3.unpack(value)
            if version == 3 and metadata_size == _EMPTY_3:
                return CommittedOffset(offset, epoch, "", commit_ms)
    elif len(value) == _VALUE_4_WITH_ID.size:
        version, offset, epoch, metadata_size, commit_ms, *tag, topic_id = _VALUE_4_WITH_ID.unpack(value)
        if version == 4 and metadata_size == _EMPTY_4 and tag == [1, 0, _UUID_SIZE]:
            return CommittedOffset(offset, epoch, "", commit_ms, None, topic_id)
    return None
