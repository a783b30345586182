"""`moldau_value`: a column of framed values as a struct, or as JSON.

from moldau.spark_jobs.values.moldau_value import moldau_value

rows.select(moldau_value("value", registry="http://registry:8081", returns="id bigint, name string"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moldau.tables.values.column_decoding import PLACE, ColumnDecoding, OnError, check_on_error
from moldau.tables.values.registry import SchemaSource

if TYPE_CHECKING:
    from pyspark.sql import Column


def moldau_value(
    value: str = "value",
    *,
    registry: str,
    returns: str = "string",
    on_error: OnError = "fail",
    place: Sequence[str] = PLACE,
    headers: str | None = None,
) -> Column:
    """Decode a binary column by the schemas that the frames of its values name.

    `value`: the column. `registry`: a URL or a directory. `returns`: the columns of the result as Spark writes them
    (`id bigint, name string`), or `string`, which gives JSON. Fields are matched by name, and a field that a value
    lacks is null. A record of Avro or Protobuf that lacks all of them is of another type, and cannot be decoded. A null
    value gives null.

    A value that cannot be decoded fails the query with `ValueNotDecoded`; with on_error="null" it becomes null. The
    error names the value by the columns of `place`, which is empty if the rows do not have them. A registry that does
    not answer fails the query in both cases.

    `headers`: the column of the headers (of the option `includeHeaders`), if headers have the frames. The column `key`
    has the frames of keys, any other column those of values.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas import functions as kinds
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import _parse_datatype_string

    check_on_error(on_error, keeps=False)
    data_type = _parse_datatype_string(returns)
    decoding = ColumnDecoding(
        SchemaSource(registry), to_arrow_type(data_type, timezone="UTC"), on_error, tuple(place), column=value
    )
    arrow_udf: Any = kinds.arrow_udf  # its overloads know no variable arguments
    decode = arrow_udf(typed_function(decoding, has_headers=headers is not None), data_type)
    further = [*place, *([] if headers is None else [headers])]
    column: Column = decode(F.col(value), *(F.col(name) for name in further)).alias(value)
    return column


def typed_function(decoding: ColumnDecoding, *, has_headers: bool) -> Any:
    """The function that Spark calls to decode a column. With `has_headers` its last argument is the column of headers.
    Spark recognises the kind of a function by its type annotations."""
    import pyarrow as pa  # type: ignore[import-untyped]

    def decode(values: Any, *places: Any) -> Any:
        if has_headers:
            return decoding.decode_column(values, *places[:-1], headers=places[-1])
        return decoding.decode_column(values, *places)

    decode.__annotations__ = {"values": pa.Array, "places": pa.Array, "return": pa.Array}
    return decode
