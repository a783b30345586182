"""`moldau_value`: a column of framed values as a struct, or as JSON.

from moldau.spark_jobs.values.moldau_value import moldau_value

rows.select(moldau_value("value", registry="http://registry:8081", returns="id bigint, name string"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from moldau.spark_jobs.refusals import Refused
from moldau.spark_jobs.values.registry import SchemaSource, ValueNotDecoded

if TYPE_CHECKING:
    from pyspark.sql import Column

PLACE: Final = ("topic", "partition", "offset")


def moldau_value(
    value: str = "value",
    *,
    registry: str,
    returns: str = "string",
    on_error: Literal["fail", "null"] = "fail",
    place: Sequence[str] = PLACE,
) -> Column:
    """The values of a binary column, decoded by the schemas that their frames name.

    `registry` is a URL or a directory; `returns` the columns of the result as Spark writes them (`id bigint, name
    string`): fields are matched by name, and a field that a value lacks is null; `string` gives JSON. A null value
    gives null. A value that cannot be decoded fails the query with `ValueNotDecoded`, which names it by the columns of
    `place` (empty where the rows do not have them); with on_error="null" it becomes null.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas import functions as kinds
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import _parse_datatype_string

    if on_error not in ("fail", "null"):
        raise Refused(f"on_error: {on_error} is neither fail nor null")
    data_type = _parse_datatype_string(returns)
    decoding = ColumnDecoding(
        SchemaSource(registry), to_arrow_type(data_type, timezone="UTC"), on_error == "null", tuple(place)
    )
    arrow_udf: Any = kinds.arrow_udf  # its overloads know no variable arguments
    decode = arrow_udf(typed_function(decoding), data_type)
    column: Column = decode(F.col(value), *(F.col(name) for name in place)).alias(value)
    return column


def typed_function(decoding: ColumnDecoding) -> Any:
    """The function that Spark calls, with type annotations, by which Spark recognises the kind of function."""
    import pyarrow as pa  # type: ignore[import-untyped]

    def decode(values: Any, *places: Any) -> Any:
        return decoding.decode_column(values, *places)

    decode.__annotations__ = {"values": pa.Array, "places": pa.Array, "return": pa.Array}
    return decode


class ColumnDecoding:
    """Decodes batches of a column in a task."""

    def __init__(self, source: SchemaSource, arrow_type: Any, is_lenient: bool, place: tuple[str, ...]) -> None:
        self._source = source
        self._type = arrow_type
        self._is_lenient = is_lenient
        self._place = place
        self._values: Any = None

    def decode_column(self, values: Any, *places: Any) -> Any:
        """An Arrow array of the type of the result. Raises `ValueNotDecoded`."""
        import pyarrow as pa

        decoded = [self._decoded(values, row, places) for row in range(len(values))]
        try:
            return pa.array(decoded, self._type)
        except (pa.ArrowException, TypeError, ValueError):
            return pa.array([self._fitting(each, row, places) for row, each in enumerate(decoded)], self._type)

    def _decoded(self, values: Any, row: int, places: Sequence[Any]) -> object:
        import pyarrow as pa

        from moldau.spark_jobs.values.decoders import FramedValues, as_text

        value = values[row].as_py()
        if value is None:
            return None
        if self._values is None:
            self._values = FramedValues(self._source)
        try:
            found = self._values.decode(value)
            return as_text(found) if pa.types.is_string(self._type) else found
        except ValueNotDecoded as problem:
            self._fail(problem, row, places)
            return None

    def _fitting(self, value: object, row: int, places: Sequence[Any]) -> object:
        """The value, if it fits the columns of the result. Raises `ValueNotDecoded` otherwise."""
        import pyarrow as pa

        try:
            pa.array([value], self._type)
        except (pa.ArrowException, TypeError, ValueError) as problem:
            self._fail(ValueNotDecoded(f"the value does not fit the columns: {problem}"), row, places)
            return None
        return value

    def _fail(self, problem: ValueNotDecoded, row: int, places: Sequence[Any]) -> None:
        if self._is_lenient:
            return
        named = ", ".join(f"{name} {each[row].as_py()}" for name, each in zip(self._place, places, strict=True))
        raise ValueNotDecoded(f"{named}: {problem}" if named else str(problem)) from None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_values": None}
