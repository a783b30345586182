"""The columns of each table, declared in words that are translated into Arrow's and Spark's types. Every column may be
null."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from moldau.tables.options.read_options import ReadOptions
from moldau.tables.refusals import Refused, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


class Column(NamedTuple):
    """A column of a table: its name, and its kind, which is one of `arrow_types`."""

    name: str
    kind: str


Columns: TypeAlias = tuple[Column, ...]


def columns_of_words(declared: str) -> Columns:
    """Parse columns from words `name:kind`."""
    fields = [word.partition(":") for word in declared.split()]
    return tuple(Column(name, kind) for name, _, kind in fields)


STRUCTS: Final = {
    "headers": columns_of_words("key:string value:binary"),
    "partitions": columns_of_words("topic:string partition:int"),
    "members": columns_of_words("memberId:string groupInstanceId:string clientId:string clientHost:string"),
}
"""The kinds of columns that are lists of structs, with the fields of the structs."""
RECORDS: Final = columns_of_words(
    "key:binary value:binary topic:string partition:int offset:long timestamp:timestamp timestampType:int"
)
"""The columns of Spark's Kafka connector, without `headers`, which the option includeHeaders adds."""
HEADERS: Final = Column("headers", "headers")
BATCHES: Final = columns_of_words(
    "topic:string partition:int baseOffset:long lastOffset:long records:int bytes:long codec:string "
    "baseTimestamp:timestamp maxTimestamp:timestamp timestampType:int producerId:long producerEpoch:int "
    "baseSequence:int leaderEpoch:int isTransactional:boolean isControl:boolean isAborted:boolean "
    "deleteHorizon:timestamp position:long"
)
COLUMNS: Final = {
    "records": RECORDS,
    "batches": BATCHES,
    "latest": RECORDS,
    "offsets": columns_of_words(
        "group:string topic:string partition:int offset:long leaderEpoch:int metadata:string "
        "commitTimestamp:timestamp expireTimestamp:timestamp"
    ),
    "groups": columns_of_words(
        "group:string type:string protocolType:string generation:int protocol:string leader:string "
        "stateTimestamp:timestamp members:members"
    ),
    "transactions": columns_of_words(
        "transactionalId:string producerId:long producerEpoch:int state:string timeoutMs:int partitions:partitions "
        "startTimestamp:timestamp updateTimestamp:timestamp"
    ),
    "topics": columns_of_words(
        "topic:string topicId:string partition:int broker:int path:string logStartOffset:long highWatermark:long "
        "lastStableOffset:long segments:int bytes:long"
    ),
    "segments": columns_of_words(
        "topic:string partition:int baseOffset:long endOffset:long bytes:long tier:string path:string "
        "isGrowing:boolean largestTimestamp:timestamp"
    ),
}
"""The columns of each table, by the name of the table."""


def table_columns(options: ReadOptions) -> Columns:
    """The columns of the table that the options name. The `records` table has its headers only with
    `includeHeaders`."""
    columns = COLUMNS[options.table]
    return (*columns, HEADERS) if options.table == "records" and options.include_headers else columns


def every_column(options: ReadOptions) -> Columns:
    """The columns of the table that may be requested by name. For `records` these include the headers."""
    return (*RECORDS, HEADERS) if options.table == "records" else COLUMNS[options.table]


def chosen_columns(options: ReadOptions) -> Columns:
    """The columns that are read: those that the option `columns` names, in upper or lower case, or else those of the
    table. Raises `Refused`."""
    if not options.columns:
        return table_columns(options)
    known = {column.name.lower(): column for column in every_column(options)}
    for name in options.columns:
        if name.lower() not in known:
            names = [column.name for column in known.values()]
            meant = did_you_mean(name, names)
            raise Refused(f"columns: there is no column {name}{meant}; the columns are {', '.join(names)}")
    return tuple(known[name.lower()] for name in options.columns)


def arrow_types() -> dict[str, pa.DataType]:
    """The Arrow type of each kind of column."""
    import pyarrow as pa

    types = {
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    for kind, fields in STRUCTS.items():
        struct = pa.struct([pa.field(name, types[field]) for name, field in fields])
        types[kind] = pa.list_(pa.field("element", struct))
    return types


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Make the Arrow schema for these columns."""
    import pyarrow as pa

    types = arrow_types()
    return pa.schema([pa.field(name, types[kind]) for name, kind in columns])
