"""Functions that return Arrow record batch readers. `read_topic` reads the records of topics, or the table that its
argument `table` names. `latest`, `batches`, `segments`, `topics`, `offsets`, `groups` and `transactions` read the table
of that name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from moldau.tables.reading.arguments import (
    Bound,
    Isolation,
    Place,
    Topic,
    named_columns,
    offset_bounds,
    source_options,
    with_bounds,
)
from moldau.tables.reading.scan import BATCH_ROWS, Progress, offsets_within
from moldau.tables.reading.topic_scan import VALUE, TopicScan
from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import MISFIT, PLACE, ColumnDecoding, OnError, check_on_error
from moldau.tables.values.registry import SchemaSource
from moldau.tables.values.topic_types import (
    SAMPLE,
    SAMPLE_ROWS,
    GivenSchema,
    given_type,
    json_schema_of,
    sampled_type,
)
from moldau.tables.views.schemas import chosen_columns

_END: Final = object()


def topic_scan(
    place: Place,
    topic: Topic = None,
    *,
    start: Bound = None,
    end: Bound = None,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    isolation: Isolation = "read_committed",
    snapshot: str | None = None,
    table: str = "records",
    batch_rows: int = BATCH_ROWS,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    options: Mapping[str, str] | None = None,
    registry: str | None = None,
    schema: GivenSchema | None = None,
    sample_rows: int = SAMPLE_ROWS,
    on_error: OnError = "fail",
) -> TopicScan:
    """Make the scan for the arguments of `read_topic`. Raises `Refused`, OSError if bounds by partition are given, and
    if a sample is taken, what a read raises.
    """
    given = source_options(place, topic, table=table, isolation=isolation, snapshot=snapshot, further=options)
    first, last = offset_bounds(start, end)
    if table != "records" and (first is not None or last is not None):
        raise Refused(f"start and end: table={table} takes no offset for all partitions")
    scan = TopicScan(
        named_columns(columns) if columns is not None else tuple(column.name for column in chosen_columns(given)),
        filter,
        offsets_within(first, last),
        batch_rows,
        threads,
        progress,
        options=with_bounds(given, start, end),
    )
    decoding = decoding_of(scan, registry, schema, sample_rows, on_error)
    if decoding is None:
        return scan
    if decoding.keeps_misfits and columns is None and VALUE in scan.columns:
        at = scan.columns.index(VALUE) + 1
        scan = scan.restricted((*scan.columns[:at], MISFIT, *scan.columns[at:]), None)
    return replace(scan, decoding=decoding)


def decoding_of(
    scan: TopicScan, registry: str | None, schema: GivenSchema | None, sample_rows: int, on_error: OnError
) -> ColumnDecoding | None:
    """Make the decoding of the values of a scan. Its errors name a value by topic, partition and offset. Returns None
    if the values are not decoded. Raises what `topic_scan` raises."""
    check_on_error(on_error)
    if registry is None and schema is None:
        if on_error == "keep":
            raise Refused("on_error: keep is for values that are decoded, by registry or by schema")
        return None
    scan.check_values("schema" if registry is None else "registry")
    source = None if registry is None else SchemaSource(registry)
    if source is not None:
        source.check()
    if schema is None:
        return ColumnDecoding(source, pa.string(), on_error, PLACE)
    if isinstance(schema, str) and schema == SAMPLE:
        sample = sample_of(scan, sample_rows, is_framed=source is not None)
        return ColumnDecoding(source, sampled_type(sample, source), on_error, PLACE, is_strict=True)
    return ColumnDecoding(source, given_type(schema), on_error, PLACE, is_strict=True)


def sample_of(scan: TopicScan, rows: int, *, is_framed: bool = False) -> Iterator[bytes]:
    """Return a sample of about `rows` values, with their frames if `is_framed`. Raises `Refused` for a number of rows
    below 1, and what a read raises."""
    if rows < 1:
        raise Refused(f"sample_rows: {rows} is below 1")
    return scan.sample(rows, is_framed=is_framed)


def json_schema(place: Place, topic: Topic, *, sample_rows: int = SAMPLE_ROWS, **arguments: Any) -> dict[str, Any]:
    """Return a JSON Schema that fits a sample of the values of a topic, for the argument `schema` of `read_topic`. It
    takes the arguments of `read_topic`, and raises the same errors. Raises `NoSample` if no value is JSON.
    """
    scan = topic_scan(place, topic, **arguments)
    scan.check_values("json_schema")
    return json_schema_of(sample_of(scan, sample_rows))


def scan_of_every_column(place: Place, topic: Topic = None, **arguments: Any) -> TopicScan:
    """Make the scan for an engine that chooses columns itself. If no columns are named, it has all that the table may
    have. Raises what `topic_scan` raises.
    """
    scan = topic_scan(place, topic, **arguments)
    if arguments.get("columns") is not None or scan.options.columns:
        return scan
    return scan.restricted(tuple(scan.every_field().names), None)


def read_topic(
    place: Place,
    topic: Topic = None,
    *,
    start: Bound = None,
    end: Bound = None,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    isolation: Isolation = "read_committed",
    snapshot: str | None = None,
    table: str = "records",
    batch_rows: int = BATCH_ROWS,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    options: Mapping[str, str] | None = None,
    registry: str | None = None,
    schema: GivenSchema | None = None,
    sample_rows: int = SAMPLE_ROWS,
    on_error: OnError = "fail",
) -> pa.RecordBatchReader:
    """Read a topic, or another table of `place`, as Arrow batches. The read is planned before this returns.

    | argument       | meaning                                                                                        |
    |----------------|------------------------------------------------------------------------------------------------|
    | `place`        | log directories, tiered storages, bootstrap addresses: each offset comes from the cheapest     |
    | `start`, `end` | see `Bound`: an offset, a time, or offsets by partition                                        |
    | `columns`      | the columns to decode, in this order; `headers` of records only if it is named                 |
    | `filter`       | keeps the rows for which it is true; its bounds on partition, offset and timestamp prune the   |
    |                | plan                                                                                           |
    | `snapshot`     | what `moldau spark snapshot` prints: the read ends there, and is refused if files have changed |
    | `table`        | records, latest, batches, offsets, groups, transactions, topics, segments                      |
    | `batch_rows`   | the most rows of a batch                                                                       |
    | `threads`      | how many decode ahead of the caller (default: one for each core, at most four); 0 decodes in   |
    |                | the thread of the caller                                                                       |
    | `progress`     | called with a `Progress` in the thread of the caller, for each batch                           |
    | `options`      | further options of the data source, by name: `failOnDataLoss`, security of brokers             |
    | `registry`     | a URL or a directory of schemas: `value` becomes JSON, decoded by the schema that its frame    |
    |                | names; the frame is before the value or in a header of the record                              |
    | `schema`       | the type of `value`: `sample` takes it from `sample_rows` of the values; or a JSON Schema, the |
    |                | path of one, or a type of Arrow. Without `registry` the values are plain JSON                  |
    | `on_error`     | a value that cannot be decoded ends the read (`fail`), is null (`null`), or is null with its   |
    |                | bytes in the column `misfit` (`keep`)                                                          |

    Rows of a partition come in the order of their offsets. At most 64 MiB of computed batches wait for the caller. A
    reader that is dropped ends its threads. Raises `Refused`, `DataLost` (both name topic, partition and offset),
    `MalformedMessage` (it names file and position) and OSError, when it is called or from the reader.
    """
    return topic_scan(
        place,
        topic,
        start=start,
        end=end,
        columns=columns,
        filter=filter,
        isolation=isolation,
        snapshot=snapshot,
        table=table,
        batch_rows=batch_rows,
        threads=threads,
        progress=progress,
        options=options,
        registry=registry,
        schema=schema,
        sample_rows=sample_rows,
        on_error=on_error,
    ).reader()


async def read_topic_async(place: Place, topic: Topic = None, **arguments: Any) -> AsyncIterator[pa.RecordBatch]:
    """Yield the batches of `read_topic`, which takes the same arguments, without blocking the event loop. Raises what
    `read_topic` raises.
    """
    reader = await asyncio.to_thread(read_topic, place, topic, **arguments)
    batches = iter(reader)
    del reader
    while (batch := await asyncio.to_thread(next, batches, _END)) is not _END:
        yield batch


def latest(place: Place, topic: Topic, **arguments: Any) -> pa.RecordBatchReader:
    """Read the last record of each key of each partition. Takes the arguments of `read_topic`, and raises the same
    errors.
    """
    return read_topic(place, topic, table="latest", **arguments)


def batches(place: Place, topic: Topic, **arguments: Any) -> pa.RecordBatchReader:
    """Read a row for each record batch, from its header alone. Takes the arguments of `read_topic`, and raises the same
    errors.
    """
    return read_topic(place, topic, table="batches", **arguments)


def segments(place: Place, topic: Topic = None, **arguments: Any) -> pa.RecordBatchReader:
    """Read a row for each segment of topics. Takes the arguments of `read_topic`, and raises the same errors."""
    return read_topic(place, topic, table="segments", **arguments)


def topics(place: Place, topic: Topic = None, **arguments: Any) -> pa.RecordBatchReader:
    """Read a row for each partition of topics, with its offsets. Takes the arguments of `read_topic`, and raises the
    same errors."""
    return read_topic(place, topic, table="topics", **arguments)


def offsets(place: Place, **arguments: Any) -> pa.RecordBatchReader:
    """Read the committed offsets of all groups. Takes the arguments of `read_topic`, and raises the same errors."""
    return read_topic(place, table="offsets", **arguments)


def groups(place: Place, **arguments: Any) -> pa.RecordBatchReader:
    """Read all groups, with their members. Takes the arguments of `read_topic`, and raises the same errors."""
    return read_topic(place, table="groups", **arguments)


def transactions(place: Place, **arguments: Any) -> pa.RecordBatchReader:
    """Read the state of all transactional ids. Takes the arguments of `read_topic`, and raises the same errors."""
    return read_topic(place, table="transactions", **arguments)
