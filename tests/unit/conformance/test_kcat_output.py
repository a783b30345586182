"""Records out of what kcat prints."""

from __future__ import annotations

from tests.conformance.drivers.kcat_output import records_in
from tests.conformance.record import Record


def test_lengths_tell_a_value_with_line_ends_from_the_next_record() -> None:
    output = bytearray(b"1 7 1000 2 5 \nk1a\nb\nc\n1 8 1001 -1 -1 x=1,y=a=b\n\n")
    assert list(records_in(output)) == [
        Record(b"a\nb\nc", b"k1", (), 1000, 1, 7),
        Record(None, None, (("x", b"1"), ("y", b"a=b")), 1001, 1, 8),
    ]
    assert not output


def test_a_record_that_has_not_come_in_full_stays() -> None:
    output = bytearray(b"0 0 5 1 10 \nkabc")
    assert list(records_in(output)) == []
    assert output == b"0 0 5 1 10 \nkabc"
