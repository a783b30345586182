"""Columns of framed values, decoded batch after batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from moldau.tables.refusals import Refused
from moldau.tables.values.registry import SchemaSource, ValueNotDecoded

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

JSON_FORM: Final = {b"moldau.form": b"json"}
"""The metadata of a column of texts that are JSON."""
OnError: TypeAlias = Literal["fail", "null"]
PLACE: Final = ("topic", "partition", "offset")
"""The columns that name a value in an error."""


def values(
    rows: pa.Table | pa.RecordBatch | pa.ChunkedArray | pa.Array,
    *,
    registry: str,
    returns: pa.DataType | None = None,
    column: str = "value",
    on_error: OnError = "fail",
) -> pa.ChunkedArray:
    """Values that a schema registry has framed, decoded by the schemas that their frames name: Avro, Protobuf, JSON.

    `rows` are rows with the column, or the column itself. `registry` is a URL or a directory. `returns` is a struct,
    whose fields are matched by name; None gives JSON. A null value gives null. A value that cannot be decoded raises
    `ValueNotDecoded`, which names its topic, partition and offset where the rows have them; with on_error="null" it
    becomes null. A registry that does not answer is `RegistryNotReached` in both cases, and a library that is not
    installed `Refused`: no value is known to be wrong then.
    """
    import pyarrow as pa

    check_on_error(on_error)
    kind = pa.string() if returns is None else returns
    if isinstance(rows, pa.Array | pa.ChunkedArray):
        rows = pa.table({column: rows})
    if column not in rows.schema.names:
        raise Refused(f"column: the rows have no column {column}")
    place = tuple(name for name in PLACE if name in rows.schema.names)
    decoding = ColumnDecoding(SchemaSource(registry), kind, on_error == "null", place)
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    decoded = (decoding.decode_column(each.column(column), *(each.column(name) for name in place)) for each in batches)
    return pa.chunked_array(decoded, kind)


def check_on_error(on_error: str) -> None:
    """Raises `Refused` for what is none of `OnError`."""
    if on_error not in ("fail", "null"):
        raise Refused(f"on_error: {on_error} is neither fail nor null")


def json_decoding(registry: str, on_error: OnError) -> ColumnDecoding:
    """What decodes values into JSON, and names one that it cannot decode by its place. Raises `Refused` for a registry
    that is neither a URL nor a directory.
    """
    import pyarrow as pa

    check_on_error(on_error)
    source = SchemaSource(registry)
    source.check()
    return ColumnDecoding(source, pa.string(), on_error == "null", PLACE)


class ColumnDecoding:
    """Decodes batches of a column in a task."""

    def __init__(self, source: SchemaSource, arrow_type: Any, is_lenient: bool, place: tuple[str, ...]) -> None:
        self._source = source
        self._type = arrow_type
        self._is_lenient = is_lenient
        self._place = place
        self._decode: Callable[[bytes], object] | None = None

    def decode_column(self, values: Any, *places: Any) -> Any:
        """An Arrow array of the type of the result. Raises `ValueNotDecoded`, and as `FramedValues.decoder`."""
        import pyarrow as pa

        from moldau.tables.values.decoders import NOT_HELD

        decoded = [self._decoded(value, row, places) for row, value in enumerate(values.to_pylist())]
        try:
            return pa.array(decoded, self._type)
        except (pa.ArrowException, *NOT_HELD):
            return pa.array([self._fitting(each, row, places) for row, each in enumerate(decoded)], self._type)

    def _decoded(self, value: bytes | None, row: int, places: Sequence[Any]) -> object:
        if value is None:
            return None
        if self._decode is None:
            self._decode = self._decoder()
        try:
            return self._decode(value)
        except ValueNotDecoded as problem:
            self._fail(problem, row, places)
            return None

    def _decoder(self) -> Callable[[bytes], object]:
        """What decodes a value, into JSON or into what the type of the result holds."""
        import pyarrow as pa

        from moldau.tables.values.decoders import FramedValues, as_text
        from moldau.tables.values.shapes import shape_of

        values = FramedValues(self._source)
        form = as_text if pa.types.is_string(self._type) else shape_of(self._type, selects=True)
        return lambda value: form(values.decode(value))

    def _fitting(self, value: object, row: int, places: Sequence[Any]) -> object:
        """The value, if it fits the columns of the result. Raises `ValueNotDecoded` otherwise."""
        import pyarrow as pa

        from moldau.tables.values.decoders import NOT_HELD

        try:
            pa.array([value], self._type)
        except (pa.ArrowException, *NOT_HELD) as problem:
            self._fail(ValueNotDecoded(f"the value does not fit the columns: {problem}"), row, places)
            return None
        return value

    def _fail(self, problem: ValueNotDecoded, row: int, places: Sequence[Any]) -> None:
        if self._is_lenient:
            return
        named = ", ".join(f"{name} {each[row].as_py()}" for name, each in zip(self._place, places, strict=True))
        raise ValueNotDecoded(f"{named}: {problem}" if named else str(problem)) from None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_decode": None}
