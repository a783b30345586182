"""The last record of each key, chosen among encoded records, by both forms of the map of keys."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import NEXT_OFFSET, Record
from moldau.protocol.record_reader import decode_run
from moldau.tables.decoding import newest_records
from moldau.tables.decoding.newest_records import SeenKeys
from tests.unit.storage.compaction.runs import encoded, forms, plain_form, runs

pytestmark = pytest.mark.slow

numbered = st.builds(
    Record,
    key=st.integers(0, 40).map(lambda number: b"key %d" % number),
    value=st.just(b"v"),
    timestamp=st.just(5),
    headers=st.just(()),
    offset=st.just(NEXT_OFFSET),
)


@pytest.fixture(params=forms(), ids=lambda form: "python" if form is plain_form() else "c")
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The map of keys in this form; its first map has room for 8 keys."""
    found: ModuleType = request.param
    monkeypatch.setattr(newest_records, "OffsetMap", found.OffsetMap)
    monkeypatch.setattr(newest_records, "FIRST_MAP_SIZE_MIN", 10 * found.ENTRY_SIZE)
    return found


def chosen(batches: list[list[Record]], *, keeps_tombstones: bool) -> list[tuple[int, bytes | None]]:
    """(offset, key) of the chosen records; the batches are in order."""
    met = SeenKeys(0, keeps_tombstones=keeps_tombstones)
    base_offset = sum(map(len, batches))
    found = []
    for records in reversed(batches):
        base_offset -= len(records)
        batch, body = encoded(records, base_offset)
        kept, count = met.unseen_records(memoryview(body), len(records), base_offset)
        found += [(each.offset, each.key) for each in decode_run(bytes(kept), count, parse_header(batch))]
    return sorted(found)


def expected(batches: list[list[Record]], *, keeps_tombstones: bool) -> list[tuple[int, bytes | None]]:
    records = [record for batch in batches for record in batch]
    last = {record.key: offset for offset, record in enumerate(records) if record.key is not None}
    return sorted((at, key) for key, at in last.items() if keeps_tombstones or records[at].value is not None)


@settings(max_examples=200)
@given(st.lists(runs | st.lists(numbered, min_size=1, max_size=30), max_size=8), st.booleans())
def test_the_last_record_of_each_key_is_chosen(batches: list[list[Record]], keeps_tombstones: bool) -> None:
    wanted = expected(batches, keeps_tombstones=keeps_tombstones)
    with pytest.MonkeyPatch.context() as patch:
        for each in forms():
            patch.setattr(newest_records, "OffsetMap", each.OffsetMap)
            patch.setattr(newest_records, "FIRST_MAP_SIZE_MIN", 10 * each.ENTRY_SIZE)
            assert chosen(batches, keeps_tombstones=keeps_tombstones) == wanted


@pytest.mark.usefixtures("form")
def test_more_keys_than_the_first_maps_hold() -> None:
    batches = [[Record(b"key %d" % (number % 700), b"v") for number in range(at, at + 50)] for at in range(0, 2000, 50)]
    assert chosen(batches, keeps_tombstones=True) == expected(batches, keeps_tombstones=True)


@pytest.mark.usefixtures("form")
def test_a_run_where_nothing_is_new_is_empty() -> None:
    met = SeenKeys(0, keeps_tombstones=True)
    _, body = encoded([Record(b"a", b"1"), Record(b"b", b"2")], 10)
    kept, count = met.unseen_records(body, 2, 10)
    assert (bytes(kept), count) == (body, 2)
    assert met.unseen_records(encoded([Record(b"b", b"0"), Record(b"a", b"0")], 0)[1], 2, 0)[1] == 0


@pytest.mark.usefixtures("form")
def test_a_record_that_goes_past_its_batch() -> None:
    _, body = encoded([Record(b"a", b"1"), Record(b"b", b"2")], 0)
    with pytest.raises(MalformedMessage):
        SeenKeys(0, keeps_tombstones=True).unseen_records(body[:-2], 2, 0)
