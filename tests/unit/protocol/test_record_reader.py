"""Records that are chosen by their values are those of a whole decode, and the same bytes are malformed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import HEADER_SIZE, parse_header
from moldau.protocol.record_builder import NEXT_OFFSET, Record, build_batch
from moldau.protocol.record_reader import decode_records

PARTS = st.one_of(st.none(), st.binary(max_size=4), st.binary(min_size=64, max_size=200))
RECORDS = st.lists(
    st.builds(
        Record,
        key=PARTS,
        value=PARTS,
        timestamp=st.integers(0, 1 << 40),
        headers=st.lists(st.tuples(st.sampled_from(["", "name"]), PARTS), max_size=2).map(tuple),
        offset=st.just(NEXT_OFFSET),
    ),
    min_size=1,
    max_size=70,
)


def is_wanted(value: bytes | None) -> bool:
    return value is None or sum(value) % 2 == 0


@given(RECORDS, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3), st.integers(0, 3))
@settings(max_examples=600, deadline=None)
def test_wanted_records_are_those_of_a_whole_decode(
    records: list[Record], changes: list[tuple[int, int]], cut: int
) -> None:
    batch = build_batch(records)
    header = parse_header(batch, 0, True)
    body = bytearray(batch[HEADER_SIZE:])
    for at, byte in changes:
        body[at % len(body)] = byte
    body = body[: len(body) - cut]
    expected: list[Record] | str
    found: list[Record] | str
    try:
        expected = [each for each in decode_records(bytes(body), header) if is_wanted(each.value)]
    except MalformedMessage as problem:
        expected = str(problem)
    try:
        found = list(decode_records(bytes(body), header, is_wanted))
    except MalformedMessage as problem:
        found = str(problem)
    assert found == expected
