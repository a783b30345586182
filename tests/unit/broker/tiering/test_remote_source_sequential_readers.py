"""A fetch that goes on where another one ended is of a sequential reader."""

from __future__ import annotations

from moldau.broker.tiering.remote_source import PLACES_MAX, ReaderPlace, SequentialReaders

AT_0 = ReaderPlace(bytes(16), 0, 0)
SEGMENT = b"s" * 16


def test_reads_in_a_row_are_counted() -> None:
    readers = SequentialReaders()
    assert readers.streak_at(AT_0) is None
    for number in range(5):
        assert (
            readers.record_fetch(AT_0._replace(offset=10 * number), 10 * number + 10, SEGMENT, 100 * number)
            == number + 1
        )
    came = readers.streak_at(AT_0._replace(offset=50))
    assert came is not None and (came.streak, came.segment_id, came.position) == (5, SEGMENT, 400)
    assert readers.record_fetch(AT_0._replace(offset=55), 60, SEGMENT, 0) == 1, "a reader that jumped"
    assert readers.streak_at(AT_0._replace(partition=1, offset=50)) is None


def test_a_second_reader_does_not_shorten_the_row_of_the_first() -> None:
    readers = SequentialReaders()
    readers.record_fetch(AT_0, 10, SEGMENT, 0)
    readers.record_fetch(AT_0._replace(offset=10), 20, SEGMENT, 0)
    readers.record_fetch(AT_0._replace(offset=15), 20, SEGMENT, 0)
    came = readers.streak_at(AT_0._replace(offset=20))
    assert came is not None and came.streak == 2


def test_places_are_forgotten_at_the_limit() -> None:
    readers = SequentialReaders()
    for number in range(PLACES_MAX + 1):
        readers.record_fetch(AT_0._replace(partition=number), 10, SEGMENT, 0)
    assert readers.streak_at(AT_0._replace(partition=0, offset=10)) is None
    assert readers.streak_at(AT_0._replace(partition=1, offset=10)) is not None
