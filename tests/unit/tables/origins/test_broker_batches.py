"""Which batches of a reply are committed."""

from __future__ import annotations

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.messages.fetch import AbortedTransaction
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.origins.broker_batches import without_aborted


def reply(*batches: tuple[int, int, str]) -> bytes:
    """(base offset, producer, kind) of batches of one record: data, transactional or marker."""
    return b"".join(
        build_batch(
            [Record(b"k", b"v", 1)],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=kind != "data",
            is_control=kind == "marker",
        )
        for offset, producer, kind in batches
    )


def offsets(records: bytes, *aborted: tuple[int, int]) -> list[int]:
    """The offsets of the data that are left, with (producer, first offset) of aborted transactions."""
    found = list(iterate_batches(records))
    named = [AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    return [header.base_offset for _, header in without_aborted(found, named) if not header.is_control]


def test_batches_from_the_first_offset_to_the_marker_are_left_out() -> None:
    records = reply((0, 1, "part"), (1, 2, "part"), (2, 1, "data"), (3, 1, "marker"), (4, 1, "part"), (5, 2, "marker"))
    assert offsets(records) == [0, 1, 2, 4]
    assert offsets(records, (1, 0)) == [1, 2, 4]
    assert offsets(records, (2, 1), (1, 0)) == [2, 4]
    assert offsets(records, (1, 4)) == [0, 1, 2]
    assert offsets(records, (1, 0), (1, 4)) == [
        1,
        2,
    ]  # of one producer: findings/read_committed_gives_aborted_records.sh


def test_a_transaction_that_began_before_the_reply_is_left_out() -> None:
    assert offsets(reply((10, 1, "part"), (11, 1, "marker"), (12, 1, "part")), (1, 3)) == [12]
