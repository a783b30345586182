"""A compacted topic as its users see it: keys that are written again and again and deleted, and the table at the end.

Every record has its own name in a header; a deletion is a record without a value. What was acknowledged last at a key
is in the table at the end, unless something later that nobody was told of took its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from moldau.protocol.record_builder import Record
from tests.support.history import History, Key, Told

NAME_HEADER: Final = "name"
TIMESTAMP: Final = 1_767_225_600_000
DELETES: Final = 0.2
"""The share of the records that delete their key."""


class KeyedTable:
    """The records that the producers of one topic wrote, by key."""

    def __init__(self, random: Random, keys: int) -> None:
        """`keys`: how many of them each partition has."""
        self._random = random
        self._keys = keys
        self._written: dict[str, tuple[bytes, bool]] = {}
        """The key of each record by the record's name, and whether it deletes the key."""

    def record(self, name: str) -> Record:
        """The record of this name, for a key that is drawn."""
        key, deletes = f"key-{self._random.randrange(self._keys)}".encode(), self._random.random() < DELETES
        self._written[name] = key, deletes
        value = None if deletes else b"value of " + name.encode()
        return Record(key=key, value=value, timestamp=TIMESTAMP, headers=((NAME_HEADER, name.encode()),))

    def problems(self, history: History, starts: Mapping[Key, int] = {}) -> list[str]:
        """The violations in the complete readings of the topic, at the end of a run. `starts`: where a partition's log
        begins, if retention has deleted what was before."""
        found = []
        for reading in history.readings:
            if reading.is_complete:
                table = {self._written[str(name)][0]: str(name) for _, name in reading.records}
                sends = [sent for sent in history.sends if sent.key == reading.key]
                acknowledged = {
                    self._written[str(sent.value)][0]: sent
                    for sent in sorted(sends, key=lambda each: each.offset)
                    if sent.told is Told.ACKNOWLEDGED and sent.offset >= 0
                }
                in_doubt = {str(sent.value) for sent in sends if sent.told is Told.UNKNOWN or sent.offset < 0}
                start_offset = starts.get(reading.key, 0)
                for key, sent in acknowledged.items():
                    if sent.offset < start_offset:
                        continue
                    name = table.get(key)
                    is_gone = name is None and self._may_be_gone(key, str(sent.value), in_doubt)
                    if name != sent.value and name not in in_doubt and not is_gone:
                        text = f"{key!r} holds {name} at the end; {sent.value} was acknowledged at {sent.offset}"
                        found.append(f"{reading.key[0]}-{reading.key[1]}: {text}")
        return found

    def _may_be_gone(self, key: bytes, latest: str, in_doubt: set[str]) -> bool:
        """Whether the latest record of a key may be a deletion, of which compaction leaves nothing at last."""
        return self._written[latest][1] or any(self._written[name] == (key, True) for name in in_doubt)


def name_of(record: Record) -> str:
    """The name that a record was written under."""
    return next(value.decode() for key, value in record.headers if key == NAME_HEADER and value is not None)
