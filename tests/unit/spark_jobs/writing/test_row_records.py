"""Columns that make records, and those that do not."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from moldau.spark_jobs.writing.row_records import HEADERS, check_schema, records_of
from moldau.tables.client.producer import OutgoingRecord
from moldau.tables.refusals import Refused


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


def test_rows_become_records() -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None]
    header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["k", None]),
            pa.array([None, b"\xff"], pa.binary()),
            pa.array([3, None], pa.int32()),
            pa.array(headers, header_type),
        ],
        names=["key", "value", "partition", "headers"],
    )
    assert list(records_of(rows, "t")) == [
        OutgoingRecord("t", 3, b"k", None, (("a", b"1"), ("b", None))),
        OutgoingRecord("t", None, None, b"\xff", ()),
    ]


def test_the_option_goes_before_the_column() -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["v", "w"], "topic": ["a", "b"]})
    assert [each.topic for each in records_of(rows, None)] == ["a", "b"]
    assert [each.topic for each in records_of(rows, "c")] == ["c", "c"]
    nulls = pa.RecordBatch.from_pydict({"value": ["v"], "topic": pa.array([None], pa.string())})
    with pytest.raises(Refused, match="a row has null as its topic"):
        list(records_of(nulls, None))


def test_columns_of_other_names_are_not_looked_at() -> None:
    known = {"value": StringType(), "key": BinaryType(), "headers": HEADERS, "partition": IntegerType()}
    check_schema(schema(**known, id=LongType(), Value=LongType()), "t")
    rows = {"value": ["v"], "id": [7], "Value": [8]}
    assert list(records_of(pa.RecordBatch.from_pydict(rows), "t")) == [OutgoingRecord("t", None, None, b"v", ())]


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ({"key": StringType()}, "t", "there is no column value; the columns are key"),
        ({"value": LongType()}, "t", "value is bigint, not string or binary"),
        ({"value": StringType(), "partition": LongType()}, "t", "partition is bigint, not int"),
        (
            {"value": StringType(), "headers": ArrayType(StringType())},
            "t",
            "headers is array<string>, not array<struct",
        ),
        ({"value": StringType()}, None, "neither the option topic nor a column topic"),
        ({"value": StringType(), "topic": LongType()}, None, "neither the option topic nor a column topic"),
    ],
)
def test_columns_that_make_no_records_are_refused(columns: dict[str, object], topic: str | None, said: str) -> None:
    with pytest.raises(Refused, match=said):
        check_schema(schema(**columns), topic)
