"""`read_topic`, and a function for each other table: a topic as a reader of Arrow batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from moldau.tables.reading.arguments import Bound, Isolation, Place, Topic, offset_bounds, source_options, with_bounds
from moldau.tables.reading.topic_scan import BATCH_ROWS, Progress, TopicScan, offsets_within
from moldau.tables.refusals import Refused
from moldau.tables.values.column_decoding import OnError, json_decoding
from moldau.tables.views.schemas import chosen_columns, every_column

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
    on_error: OnError = "fail",
) -> TopicScan:
    """The scan of the arguments of `read_topic`. Raises `Refused`; OSError where bounds by partition are given."""
    given = source_options(place, topic, table=table, isolation=isolation, snapshot=snapshot, further=options)
    first, last = offset_bounds(start, end)
    if table != "records" and (first is not None or last is not None):
        raise Refused(f"start and end: table={table} takes no offset for all partitions")
    return TopicScan(
        with_bounds(given, start, end),
        tuple(columns) if columns is not None else tuple(column.name for column in chosen_columns(given)),
        filter,
        offsets_within(first, last),
        batch_rows,
        threads,
        progress,
        None if registry is None else json_decoding(registry, on_error),
    )


def scan_of_every_column(place: Place, topic: Topic = None, **arguments: Any) -> TopicScan:
    """The scan for an engine that chooses columns itself: where none are named, it has all that may be. Raises as
    `topic_scan`.
    """
    scan = topic_scan(place, topic, **arguments)
    if arguments.get("columns") is not None or scan.options.columns:
        return scan
    return scan.restricted(tuple(column.name for column in every_column(scan.options)), None)


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
    on_error: OnError = "fail",
) -> pa.RecordBatchReader:
    """Read a topic, or another table of `place`, as Arrow batches. The read is planned before this returns.

    | argument       | meaning                                                                                        |
    |----------------|------------------------------------------------------------------------------------------------|
    | `place`        | log directories, tiered storages, bootstrap addresses: each offset comes from the cheapest     |
    | `start`, `end` | see `Bound`: an offset, a time, or offsets by partition                                        |
    | `columns`      | the columns to decode, in this order; `headers` of records only where it is named              |
    | `filter`       | rows for which it is true; what it says of partition, offset and timestamp prunes the plan     |
    | `snapshot`     | what `moldau spark snapshot` prints: the read ends there, and is refused if files have changed |
    | `table`        | records, latest, batches, offsets, groups, transactions, topics, segments                      |
    | `batch_rows`   | the most rows of a batch                                                                       |
    | `threads`      | they decode ahead of the caller: one a core by default, four at most; 0 decodes in the caller  |
    | `progress`     | called with a `Progress` in the thread of the caller, for each batch                           |
    | `options`      | further options of the data source, by name: `failOnDataLoss`, security of brokers             |
    | `registry`     | a URL or a directory of schemas: `value` becomes JSON, decoded as its frame says               |
    | `on_error`     | a value that cannot be decoded ends the read (`fail`), or is null (`null`)                     |

    Rows of a partition come in the order of their offsets. Computed batches that wait take 64 MiB; a reader that is
    dropped ends its threads. Raises `Refused`, `DataLost` (both name topic, partition and offset), `MalformedMessage`
    (it names file and position) and OSError, when it is called or from the reader.
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
        on_error=on_error,
    ).reader()


async def read_topic_async(place: Place, topic: Topic = None, **arguments: Any) -> AsyncIterator[pa.RecordBatch]:
    """The batches of `read_topic`, which takes the same arguments, without blocking the event loop. Raises as
    `read_topic`.
    """
    reader = await asyncio.to_thread(read_topic, place, topic, **arguments)
    batches = iter(reader)
    del reader
    while (batch := await asyncio.to_thread(next, batches, _END)) is not _END:
        yield batch


def latest(place: Place, topic: Topic, **arguments: Any) -> pa.RecordBatchReader:
    """The last record of each key of each partition. Raises as `read_topic`, whose arguments it takes."""
    return read_topic(place, topic, table="latest", **arguments)


def batches(place: Place, topic: Topic, **arguments: Any) -> pa.RecordBatchReader:
    """A row for each record batch, from its header alone. Raises as `read_topic`, whose arguments it takes."""
    return read_topic(place, topic, table="batches", **arguments)


def segments(place: Place, topic: Topic = None, **arguments: Any) -> pa.RecordBatchReader:
    """A row for each segment. Raises as `read_topic`, whose arguments it takes."""
    return read_topic(place, topic, table="segments", **arguments)


def topics(place: Place, topic: Topic = None, **arguments: Any) -> pa.RecordBatchReader:
    """A row for each partition, with its offsets. Raises as `read_topic`, whose arguments it takes."""
    return read_topic(place, topic, table="topics", **arguments)


def offsets(place: Place, **arguments: Any) -> pa.RecordBatchReader:
    """The committed offsets of all groups. Raises as `read_topic`, whose arguments it takes."""
    return read_topic(place, table="offsets", **arguments)


def groups(place: Place, **arguments: Any) -> pa.RecordBatchReader:
    """All groups, with their members. Raises as `read_topic`, whose arguments it takes."""
    return read_topic(place, table="groups", **arguments)


def transactions(place: Place, **arguments: Any) -> pa.RecordBatchReader:
    """The state of all transactional ids. Raises as `read_topic`, whose arguments it takes."""
    return read_topic(place, table="transactions", **arguments)
