"""The traps of the matrix: columns of values that an engine or a format may change, and the truth of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

import moldau
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from tests.support.segments import write_checkpoints, write_partition

TIME: Final = pa.timestamp("us", "UTC")
PAIR: Final = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
NULL_PAIR: Final = {"a": None, "b": None}
LARGE: Final = 100 << 20


def by_number(kind: pa.DataType, values: list[int | None]) -> pa.Array:
    """Times and dates by their number, which the types of Python do not all hold."""
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


VALUES: Final[dict[str, pa.Array]] = {
    "int64 past 2^53": pa.array([0, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63), None]),
    "uint64": pa.array([0, 1 << 63, (1 << 64) - 1, None], pa.uint64()),
    "decimal(38, 0)": pa.array([Decimal(10**38 - 1), Decimal(-1), None], pa.decimal128(38, 0)),
    "decimal(38, 10)": pa.array([Decimal("9" * 28 + ".0000000001"), None], pa.decimal128(38, 10)),
    "double: NaN, ∞, -0.0": pa.array([math.nan, math.inf, -0.0, 5e-324, None]),
    "boolean": pa.array([True, False, None]),
    "string: empty and null": pa.array(["", None, "null", "NaN", 'a\x00b\n",']),
    "bytes": pa.array([b"", None, b"\xff\x00", b"k"]),
    "uuid, fixed(16)": pa.array([bytes(16), b"\xff" * 16, None], pa.binary(16)),
    "enum, dictionary": pa.array(["a", None, ""], pa.dictionary(pa.int8(), pa.string())),
    "string_view": pa.array(["", None, "longer than twelve bytes"], pa.string_view()),
    "date": by_number(pa.date32(), [0, -719_162, 2_932_896, None]),
    "date past 9999": by_number(pa.date32(), [2_932_897, None]),
    "time": by_number(pa.time64("us"), [0, 86_399_999_999, None]),
    "timestamp in ns": by_number(pa.timestamp("ns", "UTC"), [1, -1, None]),
    "struct in struct, null at each depth": pa.array([None, NULL_PAIR, {"a": 1, "b": {"c": None}}], PAIR),
    "list of lists": pa.array([None, [], [None], [[]], [[None]], [[1, None], None]], pa.list_(pa.list_(pa.int32()))),
    "list of structs": pa.array([None, [], [None], [NULL_PAIR]], pa.list_(PAIR)),
    "large_list": pa.array([None, [], [None, 1 << 60]], pa.large_list(pa.int64())),
    "map": pa.array([None, [], [("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())),
    "map with a repeated key": pa.array([[("a", 1), ("b", 5), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
    "map of structs": pa.array([None, [("a", None)], [("a", NULL_PAIR)]], pa.map_(pa.string(), PAIR)),
    "union as a struct of branches": pa.array(
        [{"int": 1, "string": None}, {"int": None, "string": ""}, None],
        pa.struct([("int", pa.int64()), ("string", pa.string())]),
    ),
}
"""Decoded values, by type."""

RECORDS: Final[dict[str, tuple[str, int, list[Record]]]] = {
    "key: null and empty": ("key", 0, [Record(None, b"v", 1), Record(b"", b"v", 1), Record(b"\xff\x00", b"v", 1)]),
    "value: null and empty": ("value", 0, [Record(b"k", None, 1), Record(b"k", b"", 1), Record(b"k", b"\x00", 1)]),
    "value of 100 MiB": ("value", 0, [Record(b"k", b"v" * LARGE, 1)]),
    "headers: repeated, empty and null": (
        "headers",
        0,
        [
            Record(b"k", b"v", 1),
            Record(b"k", b"v", 1, (("", None), ("k", b""), ("k", b"\xff"))),
        ],
    ),
    "offset past 2^53": ("offset", (1 << 53) + 1, [Record(b"k", b"v", 1)] * 2),
    "timestamp: -1, 0, 1 and of today": (
        "timestamp",
        0,
        [Record(b"k", b"v", at) for at in (-1, 0, 1, 1_795_000_000_000)],
    ),
    "timestamp past 9999": ("timestamp", 0, [Record(b"k", b"v", 253_402_300_800_000)]),
    "timestamp in µs and ns": ("timestamp", 0, [Record(b"k", b"v", 1_795_000_000 * 10**unit) for unit in (6, 9)]),
    "an empty topic": ("key", 0, []),
    "aborted records, holes of markers": ("offset", 0, []),
}
"""Records of a topic: the column that is looked at, the first offset, the records."""


@dataclass(frozen=True, slots=True)
class Trap:
    """A table with the columns `i`, the number of the row, and `x`; for records the topic `t` of a place has the
    column `name` as well.
    """

    title: str
    table: pa.Table
    place: Path | None = None
    name: str = ""


def traps(directory: Path) -> list[Trap]:
    """All traps; the topics are written below the directory."""
    found = [Trap(title, numbered(values)) for title, values in VALUES.items()]
    for number, (title, (name, first, records)) in enumerate(RECORDS.items()):
        place = directory / f"place-{number}"
        batches = [build_batch(records, base_offset=first, partition_leader_epoch=0)] if records else []
        if title.startswith("aborted"):
            batches = transactions()
        end = write_partition(place, batches)
        write_checkpoints(place, {("t", 0): end})
        column = moldau.read_topic(place, "t", columns=[name]).read_all().column(0)
        found.append(Trap(title, numbered(column.combine_chunks()), place, name))
    return found


def transactions() -> list[bytes]:
    """An aborted transaction and a committed one; the offsets of their markers are holes."""
    found = []
    for base, commits in ((0, False), (3, True)):
        records = [Record(b"k", b"v", 1)] * 2
        whose: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "partition_leader_epoch": 0}
        found.append(build_batch(records, base_offset=base, base_sequence=base and 2, is_transactional=True, **whose))
        found.append(
            end_transaction_marker(commits=commits, coordinator_epoch=0, timestamp=1, base_offset=base + 2, **whose)
        )
    return found


def numbered(values: pa.Array) -> pa.Table:
    return pa.table({"i": pa.array(range(len(values)), pa.int32()), "x": values})


def plain(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values that can be compared, whatever layout an engine gives them: times and dates are microseconds and days,
    maps lists of pairs, NaN a text.
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain(chunk)]
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        per_unit = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[kind.unit]
        return [None if each is None else each * per_unit for each in column.view(pa.int64()).to_pylist()]
    if pa.types.is_date(kind):
        return list(column.cast(pa.date32()).view(pa.int32()).to_pylist())
    if pa.types.is_time(kind):
        return list(column.cast(pa.time64("us")).view(pa.int64()).to_pylist())
    if pa.types.is_struct(kind):
        fields = [plain(each) for each in column.flatten()]
        names = [field.name for field in kind]
        rows = [tuple(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
        return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind):
        return [None if each.values is None else pairs(each.values) for each in column]
    if pa.types.is_nested(kind):
        return [None if each.values is None else plain(each.values) for each in column]
    return [comparable(each) for each in column.to_pylist()]


def pairs(entries: pa.StructArray) -> list[Any]:
    """The pairs of a map."""
    return [tuple(pair) for pair in zip(plain(entries.field(0)), plain(entries.field(1)), strict=True)]


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else "-0.0" if value == 0 and math.copysign(1, value) < 0 else value
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
