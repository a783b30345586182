"""Of the records of a transactional id in a piece of the log, the last one counts."""

from __future__ import annotations

import pytest

from moldau.coordinator.runtime.log_reading import LogReader
from moldau.coordinator.transaction.records import TransactionChange, TransactionRecordReader, record_of
from moldau.coordinator.transaction.transaction import COMPLETE_COMMIT, EMPTY, ONGOING, Transaction
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.record_frames import type_prefix

A = frozenset({("a", 0)})


def stored(*changes: TransactionChange) -> list[bytes]:
    """A batch for each."""
    return [
        build_batch([record_of(change, 2, 0)], base_offset=offset, base_sequence=0)
        for offset, change in enumerate(changes)
    ]


def changes_of(reader: LogReader[TransactionChange], *batches: bytes) -> list[TransactionChange]:
    return [change for change, _ in reader.read(b"".join(batches))]


def test_of_each_id_the_last_change_is_read() -> None:
    empty, ongoing, complete = (
        Transaction(7, 0, 1_000, state, 5, A if state is ONGOING else frozenset(), 5)
        for state in (EMPTY, ONGOING, COMPLETE_COMMIT)
    )
    first, second, third, fourth = stored(
        TransactionChange("t", empty),
        TransactionChange("u", None),
        TransactionChange("t", ongoing),
        TransactionChange("t", complete),
    )
    reader = LogReader(0, TransactionRecordReader())
    assert changes_of(reader, first, second, third) == [TransactionChange("t", ongoing), TransactionChange("u", None)]
    assert changes_of(reader, fourth) == [TransactionChange("t", complete)]
    assert changes_of(reader) == []


def test_other_types_of_keys_are_left_out() -> None:
    batch = build_batch([Record(type_prefix(5) + b"x", b"", 0)], base_offset=0, base_sequence=0)
    assert changes_of(LogReader(0, TransactionRecordReader()), batch) == []


@pytest.mark.parametrize("record", [Record(None, b"", 0), Record(type_prefix(0) + b"\0\1t", b"\0\7", 0)])
def test_damage_is_told(record: Record) -> None:
    batch = build_batch([record], base_offset=0, base_sequence=0)
    with pytest.raises(MalformedMessage):
        changes_of(LogReader(0, TransactionRecordReader()), batch)
