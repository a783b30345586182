"""Rows as text: what JSON, CSV and the table say of values that Python or the format does not have."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import moldau
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.engines.row_formats import write_rows
from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import FIELDS_FORM, JSON_FORM
from moldau.tables.values.json_types import OTHERS
from tests.support.segments import write_checkpoints, write_partition

TIME = pa.timestamp("us", "UTC")
LAST_US = (1 << 63) // 1000 * 1000


def written(rows: pa.Table, kind: str) -> str:
    stream = io.BytesIO()
    assert write_rows(rows.to_batches(), rows.schema, kind, stream) == rows.num_rows
    return stream.getvalue().decode()


def lines(rows: pa.Table) -> list[dict[str, Any]]:
    """The JSON lines, read by a parser that takes no NaN."""

    def refuse(token: str) -> None:
        raise AssertionError(token)

    return [json.loads(line, parse_constant=refuse) for line in written(rows, "jsonl").splitlines()]


@pytest.fixture
def times(tmp_path: Path) -> pa.Table:
    """A topic whose producers took other units for milliseconds."""
    milliseconds = (-1, 0, 1_700_000_000_000, 253_402_300_799_999, 253_402_300_800_000, 10**16, 1_700_000_000 * 10**9)
    end = write_partition(tmp_path, [build_batch([Record(b"k", b"v", each) for each in milliseconds])])
    write_checkpoints(tmp_path, {("t", 0): end})
    return moldau.read_topic(tmp_path, "t", columns=["timestamp"]).read_all()


SHOWN = (
    "1969-12-31T23:59:59.999000+00:00",
    "1970-01-01T00:00:00+00:00",
    "2023-11-14T22:13:20+00:00",
    "9999-12-31T23:59:59.999000+00:00",
    253_402_300_800_000_000,
    LAST_US,
    LAST_US,
)


def test_times_of_any_64_bits(times: pa.Table, tmp_path: Path) -> None:
    """Years 1 to 9999 are ISO 8601, others microseconds; a time that 64 bits of these do not hold is the last one."""
    assert times.column(0).cast(pa.int64()).to_pylist()[4:] == list(SHOWN[4:])
    assert [row["timestamp"] for row in lines(times)] == list(SHOWN)
    told = [line.strip('"') for line in written(times, "csv").splitlines()]
    assert told == ["timestamp", *map(str, SHOWN)]
    dated = written(times.slice(0, 3), "csv").splitlines()
    assert dated == [
        '"timestamp"',
        "1969-12-31 23:59:59.999000Z",
        "1970-01-01 00:00:00.000000Z",
        "2023-11-14 22:13:20.000000Z",
    ]
    assert written(times, "table").splitlines()[2:] == [str(each) for each in SHOWN]
    for kind in ("parquet", "arrow"):
        stream = io.BytesIO(b"")
        write_rows(times.to_batches(), times.schema, kind, stream)
        read = pq.read_table if kind == "parquet" else lambda found: pa.ipc.open_stream(found).read_all()
        assert read(io.BytesIO(stream.getvalue())).equals(times)


def test_floats_have_no_statistics_that_leave_nan_out() -> None:
    stream = io.BytesIO()
    rows = pa.table(
        {"x": [3.0, math.nan], "s": [{"f": 3.0, "i": 1}, {"f": math.nan, "i": 2}], "l": [[math.nan], [3.0]]}
    )
    write_rows(rows.to_batches(), rows.schema, "parquet", stream)
    group = pq.read_metadata(stream).row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    assert [each.path_in_schema for each in columns if each.is_stats_set] == ["s.i"]
    assert math.isnan(pq.read_table(stream)["x"].to_pylist()[1])


def test_times_at_each_depth() -> None:
    year_10000 = SHOWN[4]
    rows = pa.table(
        {
            "listed": pa.array([[0, year_10000, None], None], pa.list_(TIME)),
            "inner": pa.array([{"at": [year_10000]}, {"at": None}], pa.struct([("at", pa.list_(TIME))])),
            "mapped": pa.array([[("a", year_10000)], []], pa.map_(pa.string(), TIME)),
            "nanoseconds": pa.array([1, None], pa.timestamp("ns")).cast(pa.timestamp("ns", "UTC")),
            "large": pa.array([[-LAST_US], [0]], pa.large_list(TIME)),
        }
    )
    first, second = lines(rows)
    assert first["listed"] == ["1970-01-01T00:00:00+00:00", year_10000, None] and second["listed"] is None
    assert (first["inner"], second["inner"]) == ({"at": [year_10000]}, {"at": None})
    assert (first["mapped"], second["mapped"]) == ([["a", year_10000]], [])
    assert first["large"] == [-LAST_US] and second["nanoseconds"] is None
    assert str(year_10000) in written(rows, "csv") and "null" in written(rows, "table")


def test_numbers_that_json_does_not_have() -> None:
    rows = pa.table(
        {
            "float": [math.nan, math.inf, 0.5],
            "nested": [[-math.inf, 1.0], None, []],
            "sum": pa.array([1 << 90, -1, None], pa.decimal128(38, 0)),
            "price": pa.array([Decimal("1.10"), Decimal("-0.01"), None], pa.decimal128(9, 2)),
            "id": pa.array([(1 << 64) - 1, (1 << 53) + 1, 0], pa.uint64()),
        }
    )
    assert lines(rows) == [
        {"float": "NaN", "nested": ["-Infinity", 1.0], "sum": 1 << 90, "price": "1.10", "id": (1 << 64) - 1},
        {"float": "Infinity", "nested": None, "sum": -1, "price": "-0.01", "id": (1 << 53) + 1},
        {"float": 0.5, "nested": [], "sum": None, "price": None, "id": 0},
    ]
    assert written(rows, "table").splitlines()[2].split() == [
        "NaN",
        '["-Infinity",',
        "1.0]",
        str(1 << 90),
        "1.10",
        str((1 << 64) - 1),
    ]
    assert written(rows, "csv").splitlines()[2] == f"inf,,-1,-0.01,{(1 << 53) + 1}"


def test_bytes_and_texts_of_other_layouts() -> None:
    """Those that queries and files have: of a fixed size, as views, with a dictionary."""
    columns = {
        "fixed": pa.array([b"\xff\xfe", b"ab"], pa.binary(2)),
        "view": pa.array([b"\xff", None], pa.binary_view()),
        "text": pa.array(["a", ""], pa.string_view()),
        "coded": pa.array(["a", None], pa.dictionary(pa.int8(), pa.string())),
    }
    first, second = lines(pa.table(columns))
    assert (first["fixed"], first["view"], first["text"], first["coded"]) == (
        {"base64": "//4="},
        {"base64": "/w=="},
        "a",
        "a",
    )
    assert second == {"fixed": "ab", "view": None, "text": "", "coded": None}
    assert written(pa.table(columns), "csv").splitlines()[2] == '"ab",,"",'


def test_two_columns_of_one_name() -> None:
    """As a join in SQL has them."""
    rows = pa.table([[1], [2]], ["a", "a"])
    assert written(rows, "table").splitlines()[2] == "1  2"
    assert written(rows, "csv").splitlines() == ['"a","a"', "1,2"]
    with pytest.raises(Refused, match="two columns have the name a: give each a name of its own"):
        written(rows, "jsonl")


def test_numbers_of_decoded_values_keep_their_digits_in_json_lines() -> None:
    text = '{"amount": 1.234567890123456789, "p": [1.10, 1E+400, -0.0], "q": "1.10"}'
    fields = pa.struct([("id", pa.int64()), (OTHERS, pa.string())])
    schema = pa.schema(
        [pa.field("value", pa.string(), metadata=JSON_FORM), pa.field("row", fields, metadata=FIELDS_FORM)]
    )
    rows = pa.Table.from_pylist([{"value": text, "row": {"id": 7, OTHERS: text}}], schema)
    line = f'{{"value": {text}, "row": {{"id": 7, "{OTHERS}": {text}}}}}\n'
    assert written(rows, "jsonl") == line
