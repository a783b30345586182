"""The walk over the records of a batch: the plain and the compiled form say what the reader of values says."""

from __future__ import annotations

import random
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from building.hot_path import ROOT
from moldau.protocol.primitives import MalformedMessage, varint
from moldau.protocol.record_batch import HEADER_SIZE, parse_header
from moldau.protocol.record_builder import Record, append_record, build_batch
from moldau.protocol.record_reader import decode_records

SOURCE = ROOT / "protocol/record_batch.py"
OFFSETS_DIFFER, KEY_IS_NULL, VALUE_IS_NULL = 1, 2, 4


@pytest.fixture(scope="module", params=["plain", "compiled"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "plain":
        spec = spec_from_file_location("plain_record_walk", SOURCE)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    import moldau.protocol.record_batch as found

    if str(found.__file__).endswith(".py"):
        pytest.skip("the record walk is not compiled here: `python -m building` says why")
    return found


def walk(kernel: ModuleType, body: bytes, count: int) -> tuple[int, int, int]:
    """The walk wherever the records lie: alone, and in the middle of a writable buffer."""
    alone: tuple[int, int, int] = kernel.walk_records(body, 0, len(body), count)
    amid = memoryview(bytearray(b"\x0e" * 7 + body + b"\x0e" * 9))
    assert kernel.walk_records(amid, 7, 7 + len(body), count) == alone
    return alone


def body_of(records: list[Record]) -> bytes:
    return build_batch(records)[HEADER_SIZE:]


def test_flags_and_times(kernel: ModuleType) -> None:
    assert walk(kernel, body_of([Record(b"a", b"1", 50), Record(b"b", b"2", 20), Record(b"c", b"3", 70)]), 3) == (
        0,
        -30,
        20,
    )
    assert walk(kernel, body_of([Record(None, b"1", 50), Record(b"b", b"2", 50)]), 2)[0] == KEY_IS_NULL
    assert walk(kernel, body_of([Record(b"a", b"1", 50), Record(b"b", None, 50)]), 2)[0] == VALUE_IS_NULL
    gap = bytearray(body_of([Record(b"a", b"1")]))
    append_record(gap, Record(b"b", b"2"), 0, 2)
    assert walk(kernel, bytes(gap), 2)[0] == OFFSETS_DIFFER


@pytest.mark.parametrize(
    "delta", [0, 1, -1, 63, -64, 64, 1 << 31, -(1 << 40), (1 << 62) + 5, (1 << 63) - 1, -(1 << 63)]
)
def test_any_timestamp_delta_is_read(kernel: ModuleType, delta: int) -> None:
    body = bytearray()
    append_record(body, Record(b"a", b"1"), delta, 0)
    assert walk(kernel, bytes(body), 1) == (0, delta, delta)


@pytest.mark.parametrize("value_size", [0, 1, 50, 8_000, 32_740, 32_760, 32_768, 32_800, 70_000, 400_000])
@pytest.mark.parametrize("headers", [(), (("h", b"x" * 40_000), ("", None))], ids=["plain", "with headers"])
def test_records_of_any_size_pass_through_the_window(
    kernel: ModuleType, value_size: int, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    rng = random.Random(value_size)
    records = [Record(b"k" * rng.randint(0, 200), bytes(value_size), index, headers) for index in range(7)]
    records.insert(3, Record(b"x" * 50_000, None, 3))
    assert walk(kernel, body_of(records), 8) == (VALUE_IS_NULL, 0, 6)


@pytest.mark.parametrize("count", [1, 200, 3_000])
def test_many_small_records_cross_many_windows(kernel: ModuleType, count: int) -> None:
    rng = random.Random(count)
    body = body_of([Record(b"k", rng.randbytes(rng.randint(0, 300)), index) for index in range(count)])
    assert walk(kernel, body, count) == (0, 0, count - 1)
    for wrong in (count - 1, count + 1):
        with pytest.raises(MalformedMessage):
            walk(kernel, body, wrong)


@pytest.mark.parametrize("value_size", [3, 40_000])
def test_every_strict_prefix_is_refused(kernel: ModuleType, value_size: int) -> None:
    body = body_of([Record(b"a", bytes(value_size), 1, (("h", b"v"),)), Record(None, b"22", 2)])
    sizes = [*range(20), *range(value_size - 40, value_size), *range(len(body) - 40, len(body))]
    for size in sorted({size for size in sizes if 0 <= size < len(body)}):
        with pytest.raises(MalformedMessage):
            walk(kernel, body[:size], 2)


def record_of(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(len(body)) + body


LARGE = bytes(40_000)
DAMAGED = {
    "a negative size": b"\x01",
    "a key of size -2": record_of(b"\0\0\0", varint(-2), varint(1), b"v", varint(0)),
    "a value of size -2": record_of(b"\0\0\0", varint(-1), varint(-2), varint(0)),
    "a huge key": record_of(b"\0\0\0", varint((1 << 31) - 1), varint(1), b"v", varint(0)),
    "a key past a large record": record_of(b"\0\0\0", varint(50_000), LARGE),
    "a value past a large record": record_of(b"\0\0\0", varint(-1), varint(50_000), LARGE),
    "a large record and a byte": record_of(b"\0\0\0", varint(-1), varint(40_000), LARGE, varint(0), b"\0"),
    "a large record without headers": record_of(b"\0\0\0", varint(-1), varint(40_000), LARGE),
    "a large record of a key of size -2": record_of(b"\0\0\0", varint(-2), varint(40_000), LARGE, varint(0)),
    "a large record of nothing": record_of(b"\xff" * 40_000),
    "a huge count of headers": record_of(b"\0\0\0", varint(-1), varint(-1), varint((1 << 31) - 1)),
    "a negative count of headers": record_of(b"\0\0\0", varint(-1), varint(-1), varint(-1)),
    "a header without a key": record_of(b"\0\0\0", varint(-1), varint(-1), varint(1), varint(-1), varint(-1)),
    "a header value of size -2": record_of(b"\0\0\0", varint(-1), varint(-1), varint(1), varint(0), varint(-2)),
    "a varint of six bytes": b"\xff\xff\xff\xff\xff\x01",
    "a varint past 32 bits": b"\xff\xff\xff\xff\x1f" + bytes(40),
    "a varlong of eleven bytes": record_of(b"\0", b"\xff" * 10 + b"\x01", b"\0", varint(-1), varint(-1), b"\0"),
    "a varlong past 64 bits": record_of(b"\0", b"\xff" * 9 + b"\x02", b"\0", varint(-1), varint(-1), b"\0"),
}


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED)
def test_a_record_whose_framing_is_wrong_is_refused(kernel: ModuleType, body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        walk(kernel, body, 1)


texts = st.none() | st.binary(max_size=100)
headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=2).map(tuple)
records = st.lists(
    st.tuples(texts, texts, st.integers(-1, 1 << 45), headers).map(lambda fields: Record(*fields)),
    min_size=1,
    max_size=6,
)
damage = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(given_records=records, damage=damage, count_delta=st.sampled_from([0, 0, 0, 1, -1]))
def test_the_walk_takes_what_the_reader_takes(
    kernel: ModuleType, given_records: list[Record], damage: list[tuple[int, int]], count_delta: int
) -> None:
    batch = build_batch(given_records)
    header = parse_header(batch)
    header.records_count += count_delta
    body = bytearray(batch[HEADER_SIZE:])
    for position, value in damage:
        body[position % len(body)] = value
    try:
        read = list(decode_records(bytes(body), header))
    except MalformedMessage:
        with pytest.raises(MalformedMessage):
            walk(kernel, bytes(body), header.records_count)
        return
    if not read:
        return
    flags, low, high = walk(kernel, bytes(body), header.records_count)
    deltas = [record.timestamp - header.base_timestamp for record in read]
    assert (low, high) == (min(deltas), max(deltas))
    assert bool(flags & OFFSETS_DIFFER) == ([record.offset for record in read] != list(range(len(read))))
    assert bool(flags & KEY_IS_NULL) == any(record.key is None for record in read)
    assert bool(flags & VALUE_IS_NULL) == any(record.value is None for record in read)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=100), count=st.integers(0, 5))
def test_random_bytes_raise_nothing_but_malformed(kernel: ModuleType, body: bytes, count: int) -> None:
    try:
        walk(kernel, body, count)
    except MalformedMessage:
        return
    assert count or not body
