"""The columns of a query that writes to topics, and the records of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructField, StructType

from moldau.protocol.record_builder import RecordHeader
from moldau.tables.client.producer import OutgoingRecord
from moldau.tables.refusals import Refused

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_TEXT: Final = (BinaryType, StringType)
HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def check_schema(schema: StructType, topic: str | None) -> None:
    """Check that the columns of a query can be written as records. Columns of other names are ignored, as in Spark's
    Kafka connector. Raises `Refused`."""
    columns: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if "value" not in columns:
        raise Refused(f"schema: there is no column value; the columns are {', '.join(columns) or 'none'}")
    for name in ("key", "value"):
        if name in columns and not isinstance(columns[name], _TEXT):
            raise Refused(f"schema: {name} is {columns[name].simpleString()}, not string or binary")
    if "headers" in columns and columns["headers"].simpleString() != HEADERS.simpleString():
        raise Refused(f"schema: headers is {columns['headers'].simpleString()}, not {HEADERS.simpleString()}")
    if "partition" in columns and not isinstance(columns["partition"], IntegerType):
        raise Refused(f"schema: partition is {columns['partition'].simpleString()}, not int")
    if topic is None and not isinstance(columns.get("topic"), StringType):
        raise Refused("topic: neither the option topic nor a column topic of strings is given")


def records_of(batch: pa.RecordBatch, topic: str | None) -> Iterator[OutgoingRecord]:
    """Yield the records of the rows of a batch, in their order. Raises `Refused` for a row without a topic."""
    count = batch.num_rows
    names = set(batch.schema.names)

    def column(name: str) -> list[object]:
        return batch.column(name).to_pylist() if name in names else [None] * count

    topics = [topic] * count if topic is not None else column("topic")
    rows = zip(topics, column("partition"), column("key"), column("value"), column("headers"), strict=True)
    for name, partition, key, value, headers in rows:
        if not isinstance(name, str) or not name:
            raise Refused("topic: a row has null as its topic")
        assert partition is None or isinstance(partition, int)
        yield OutgoingRecord(name, partition, encoded_value(key), encoded_value(value), headers_of(headers))


def encoded_value(value: object) -> bytes | None:
    """A key or value as bytes: text in UTF-8, bytes as they are; None for None."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]


def headers_of(value: object) -> tuple[RecordHeader, ...]:
    """The headers of a row. Raises `Refused` for a header without a key."""
    if not isinstance(value, list):
        return ()
    headers = []
    for each in value:
        if each is None or each["key"] is None:
            raise Refused("headers: a row has null as a header, or as its key")
        headers.append((each["key"], each["value"]))
    return tuple(headers)
