"""Decodes columns of values, batch after batch. The values are framed and decoded by their schemas, or they are plain
JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from moldau.tables.refusals import Refused
from moldau.tables.values.frames import HEADERS, framed_column
from moldau.tables.values.registry import SchemaSource, ValueNotDecoded

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

JSON_FORM: Final = {b"moldau.form": b"json"}
"""The metadata of an Arrow field whose texts are JSON."""
FIELDS_FORM: Final = {b"moldau.form": b"fields"}
"""The metadata of an Arrow field whose structs are decoded values with a schema."""
OnError: TypeAlias = Literal["fail", "null", "keep"]
MISFIT: Final = "misfit"
"""The name of the column with the bytes of the values that could not be decoded, if they are kept."""
PLACE: Final = ("topic", "partition", "offset")
"""The columns by which an error names a value."""


def values(
    rows: pa.Table | pa.RecordBatch | pa.ChunkedArray | pa.Array,
    *,
    registry: str,
    returns: pa.DataType | None = None,
    column: str = "value",
    on_error: OnError = "fail",
) -> pa.ChunkedArray:
    """Decode values that a schema registry has framed (Avro, Protobuf, JSON) by the schemas that their frames name.

    `rows`: rows with the column `column`, or the column itself. `registry`: a URL or a directory. `returns`: the type
    of the result, a struct whose fields are matched by name; None returns JSON. A record of Avro or Protobuf that has
    none of these fields is of another type, and cannot be decoded. A null value gives null.

    A frame may be in a header of the record if the rows have the column `headers`, as `read_topic` gives it. The column
    `key` has the frames of keys, any other column those of values.

    A value that cannot be decoded raises `ValueNotDecoded`, which names its topic, partition and offset if the rows
    have them; with on_error="null" it becomes null. In both cases a registry that does not answer raises
    `RegistryNotReached`, and a library that is not installed raises `Refused`, because the values may be valid.
    """
    import pyarrow as pa

    check_on_error(on_error, keeps=False)
    kind = pa.string() if returns is None else returns
    if isinstance(rows, pa.Array | pa.ChunkedArray):
        rows = pa.table({column: rows})
    if column not in rows.schema.names:
        raise Refused(f"column: the rows have no column {column}")
    place = tuple(name for name in PLACE if name in rows.schema.names)
    decoding = ColumnDecoding(SchemaSource(registry), kind, on_error, place, column=column)
    has_headers = HEADERS in rows.schema.names and is_headers(rows.schema.field(HEADERS).type)
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    decoded = (
        decoding.decode_column(
            each.column(column),
            *(each.column(name) for name in place),
            headers=each.column(HEADERS) if has_headers else None,
        )
        for each in batches
    )
    return pa.chunked_array(decoded, kind)


def is_headers(kind: pa.DataType) -> bool:
    """Whether a column of this type holds the headers of records: lists of (key, value)."""
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return (
        is_list and pa.types.is_struct(kind.value_type) and [each.name for each in kind.value_type] == ["key", "value"]
    )


def check_on_error(on_error: str, *, keeps: bool = True) -> None:
    """Raise `Refused` if `on_error` is not one of `OnError`. `keep` is refused without `keeps`: it needs rows that get
    a column for the values that were not decoded."""
    if on_error == "keep" and not keeps:
        raise Refused("on_error: keep needs the rows of a read (read_topic), which get a column for such values")
    if on_error not in ("fail", "null", "keep"):
        raise Refused(f"on_error: {on_error} is none of fail, null and keep")


class Decoded(NamedTuple):
    """The decoded values of one batch."""

    column: Any
    """An Arrow array of the type of the result."""
    misfits: Sequence[int]
    """The indexes of the rows whose values could not be decoded, in any order. The values are null in `column`."""


class ColumnDecoding:
    """Decodes a column of values in a task, batch after batch. It can be pickled."""

    def __init__(
        self,
        source: SchemaSource | None,
        arrow_type: Any,
        on_error: OnError,
        place: tuple[str, ...],
        *,
        is_strict: bool = False,
        column: str = "value",
    ) -> None:
        """`source`: the schemas of framed values; None decodes plain JSON. `place`: the columns by which an error names
        a value. `is_strict`: whether a value with properties that the type does not name counts as misfit. Otherwise
        such properties are left out, and a result of type string is JSON. `column`: the column that is decoded.
        """
        self._source = source
        self._type = arrow_type
        self._on_error = on_error
        self._place = place
        self._is_strict = is_strict
        self._column = column
        self._decode: Callable[[bytes], object] | None = None

    @property
    def field(self) -> Any:
        """The Arrow field of the decoded column `value`."""
        import pyarrow as pa

        fields = FIELDS_FORM if pa.types.is_struct(self._type) else None
        return pa.field("value", self._type, metadata=JSON_FORM if self._gives_json() else fields)

    @property
    def keeps_misfits(self) -> bool:
        """Whether rows get the column `MISFIT`."""
        return self._on_error == "keep"

    @property
    def reads_headers(self) -> bool:
        """Whether a header may have the frame of a value."""
        return self._source is not None

    def _gives_json(self) -> bool:
        import pyarrow as pa

        return not self._is_strict and bool(pa.types.is_string(self._type))

    def decode_column(self, values: Any, *places: Any, headers: Any = None) -> Any:
        """Decode a column of bytes into an Arrow array of the type of the result. Raises `ValueNotDecoded`, and what
        `FramedValueDecoder.decoder` raises."""
        return self.decode(values, *places, headers=headers).column

    def decode(self, values: Any, *places: Any, headers: Any = None) -> Decoded:
        """Decode a column of bytes, and note the rows that could not be decoded. `places`: the columns by which an
        error names a value. `headers`: the column of headers; None if it is not known. Raises what `decode_column`
        raises."""
        import pyarrow as pa

        from moldau.tables.values.decoders import NOT_HELD

        misfits: list[int] = []
        framed = framed_column(values, headers if self.reads_headers else None, self._column)
        decoded = [self._decoded(value, row, places, misfits) for row, value in enumerate(framed)]
        try:
            column = pa.array(decoded, self._type)
        except (pa.ArrowException, *NOT_HELD):
            fitting = [self._fitting(each, row, places, misfits) for row, each in enumerate(decoded)]
            column = pa.array(fitting, self._type)
        return Decoded(column, misfits)

    def _decoded(self, value: bytes | None, row: int, places: Sequence[Any], misfits: list[int]) -> object:
        if value is None:
            return None
        if self._decode is None:
            self._decode = self._decoder()
        try:
            return self._decode(value)
        except ValueNotDecoded as problem:
            self._fail(problem, row, places, misfits)
            return None

    def _decoder(self) -> Callable[[bytes], object]:
        """Make the function that decodes a value, either into JSON or into a Python object that fits the type of the
        result."""
        import pyarrow as pa

        from moldau.tables.values.converters import converter_to
        from moldau.tables.values.decoders import FramedValueDecoder, as_text, plain_json

        form = as_text if self._gives_json() else converter_to(self._type, selects=not self._is_strict)
        decode: Callable[[bytes], object] = plain_json
        if self._source is not None:
            fields = self._type if pa.types.is_struct(self._type) else ()
            decode = partial(FramedValueDecoder(self._source).decode, wanted=frozenset(each.name for each in fields))
        return lambda value: form(decode(value))

    def _fitting(self, value: object, row: int, places: Sequence[Any], misfits: list[int]) -> object:
        """Return the value if it fits the type of the result. Otherwise raise `ValueNotDecoded`, or return None if such
        a value does not end the read."""
        import pyarrow as pa

        from moldau.tables.values.decoders import NOT_HELD

        try:
            pa.array([value], self._type)
        except (pa.ArrowException, *NOT_HELD) as problem:
            self._fail(ValueNotDecoded(f"the value does not fit the columns: {problem}"), row, places, misfits)
            return None
        return value

    def _fail(self, problem: ValueNotDecoded, row: int, places: Sequence[Any], misfits: list[int]) -> None:
        misfits.append(row)
        if self._on_error != "fail":
            return
        named = ", ".join(f"{name} {each[row].as_py()}" for name, each in zip(self._place, places, strict=True))
        raise ValueNotDecoded(f"{named}: {problem}" if named else str(problem)) from None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_decode": None}
