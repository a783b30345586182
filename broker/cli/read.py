"""`moldau read`: prints the rows of a topic, or of an SQL query over topics, from the files of brokers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from moldau.broker.cli import lake
from moldau.broker.cli.invocation import CommandError, Invocation, is_of_output, reason_of, text_of
from moldau.broker.cli.spark_session import add_isolation
from moldau.broker.reasons.words import count_with_noun

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from moldau.tables.reading.scan import Progress

DESCRIPTION: Final = """\
Print the records of a topic, or the rows of an SQL query over topics, from the log directories and tiered storages of
brokers, whether or not these run; they are not asked and not disturbed. An address (host:port) is asked for what the
files do not have."""
EPILOG: Final = """\
examples:
  moldau read --topic orders --limit 10
  moldau read --path /var/lib/moldau,s3://bucket/prefix --topic orders --start 2026-11-20T06:00 --format jsonl
  moldau read --topic orders --format parquet --output orders.parquet
  moldau read --sql 'select partition, count(*) from orders group by 1'
  moldau read --sql 'select * from moldau_offsets' --format csv
  moldau read --table segments --topic orders --columns partition,baseOffset,bytes
  moldau read --topic payments --registry http://registry:8081
  moldau read --topic clicks --schema sample --format csv
  moldau read --sql 'select value.page, count(*) from clicks group by 1' --topic clicks --schema sample
  moldau read --table-of orders --warehouse warehouse --live --limit 10
  moldau read --table-of orders --warehouse warehouse --live --sql 'select count(*) from orders'

--sql: each topic is a view of its name, in double quotes where it has dots or dashes; moldau_topics, moldau_segments,
moldau_offsets, moldau_groups and moldau_transactions describe the cluster. Only the columns, partitions, offsets and
times that the query needs are read.

--table-of: the Iceberg table that `moldau follow-table` keeps of a topic; with --live and the records that the places
of --path have behind it, each row once.

table, jsonl, csv: bytes are shown as text where they are UTF-8, else as base64. table shows 1,000 rows at most.
A file that --output names is there when it is complete.

--schema: value is a struct, whose fields are columns of table and csv. `sample` takes the fields of plain JSON from its
properties and their types in 10,000 values; --show-schema prints them as a JSON Schema, which --schema takes from a
file. A property without a field is in _additional_properties.

The command needs the extra 'arrow' (pip install 'moldau[arrow]'), --sql the extra 'sql', --table-of the extra
'iceberg', and --registry the extra 'schemas' for Avro and Protobuf."""
PROGRESS_STEP: Final = 5
"""The part of the read, in percent, after which a line of progress is written."""
ON_ERROR: Final = {"suspend": "fail", "null": "null", "keep": "keep"}
"""The values of the parameter `on_error` of `moldau.read_topic`, by choice of `--misfits`."""
SAMPLE_ROWS: Final = 10_000
"""The default of `--sample`. It repeats that of `moldau.tables.values.topic_types`, which is imported only when a topic
is read.
"""
_FORMATS: Final = ("table", "jsonl", "csv", "parquet", "arrow")
_TABLES: Final = ("records", "latest", "batches", "segments", "topics", "offsets", "groups", "transactions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--path", default="data", metavar="PLACE[,PLACE]", help="log directories, tiered storages, host:port (data)"
    )
    parser.add_argument("--topic", metavar="TOPIC[,TOPIC]", help="the topics to read, or those that a query may name")
    parser.add_argument("--sql", metavar="QUERY", help="a query of DuckDB over the topics, in place of their rows")
    parser.add_argument("--table", default="records", choices=_TABLES, help="what is read (default: records)")
    parser.add_argument("--table-of", metavar="TOPIC", help="read the Iceberg table of a topic, or NAMESPACE.NAME")
    parser.add_argument("--live", action="store_true", help="with the records that its table does not have yet")
    lake.add_catalog_arguments(parser)
    parser.add_argument("--columns", metavar="NAME[,NAME]", help="the columns (default: all but headers)")
    parser.add_argument("--start", metavar="WHERE", help="an offset, or a time: ISO 8601, UTC where it has no zone")
    parser.add_argument("--end", metavar="WHERE", help="an offset or a time, which is not read any more")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many rows")
    parser.add_argument("--snapshot", metavar="FILE", help="read what `moldau spark snapshot` has printed into a file")
    parser.add_argument(
        "--registry", metavar="PLACE", help="show values as JSON: the URL of a schema registry, or a directory"
    )
    parser.add_argument(
        "--schema",
        metavar="sample|FILE",
        help="show values as a struct: of the properties in a sample, or in a JSON Schema (without --registry they are "
        "plain JSON)",
    )
    parser.add_argument("--sample", type=int, metavar="N", help=f"values in a sample (default: {SAMPLE_ROWS:,})")
    parser.add_argument("--show-schema", action="store_true", help="print the JSON Schema of a sample, and end")
    parser.add_argument(
        "--misfits",
        default="suspend",
        choices=(*ON_ERROR, "skip"),
        help="what a value does that cannot be decoded: end the command (default), be null, be null with its bytes in "
        "the column misfit; of --table-of --live: be left out",
    )
    add_isolation(parser)
    parser.add_argument("--format", default="table", choices=_FORMATS, help="default: table")
    parser.add_argument("--output", metavar="FILE", help="write there, and not to standard output")
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show progress on standard error (default: where it is a terminal)",
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Print the rows of the topic, query or table that the arguments name, or write them to the output file; with
    `--show-schema`, print the columns only. Returns the exit status. After an interrupt (Ctrl-C) no output file is
    left."""
    if arguments.table_of is not None:
        invocation.require(lake.NEEDED, "iceberg")
    if arguments.sql is not None:
        invocation.require(("duckdb", "pyarrow", "numpy"), "sql")
    else:
        invocation.require(("pyarrow", "numpy"), "arrow")
    check_arguments(arguments, invocation)
    from moldau.tables.engines.row_formats import output_file, write_rows

    with failures_as_command_errors(arguments.output):
        if arguments.show_schema:
            invocation.out.say(shown_schema(arguments))
            return 0
        reader = reader_of(arguments, invocation)
        batches = first_rows(reader, arguments.limit)
        target = output_file(Path(arguments.output)) if arguments.output else nullcontext(standard_output(invocation))
        try:
            with target as stream:
                count = write_rows(batches, reader.schema, arguments.format, stream)
        finally:
            invocation.errors.erase()
    if arguments.output:
        invocation.errors.say(f"{count_with_noun(count, 'row')}: {arguments.output}")
    return 0


def reader_of(arguments: argparse.Namespace, invocation: Invocation) -> pa.RecordBatchReader:
    """The reader of the rows that the arguments ask for. Raises what `topic_reader`, `query_reader` and `table_reader`
    raise.
    """
    if arguments.table_of is not None:
        with lake.catalog_failures_as_command_errors():
            return table_reader(arguments, invocation)
    return query_reader(arguments) if arguments.sql is not None else topic_reader(arguments, invocation)


def check_arguments(arguments: argparse.Namespace, invocation: Invocation) -> None:
    """Raise `CommandError` for arguments that exclude each other, or if one is missing."""
    if arguments.table_of is not None:
        check_arguments_of_table(arguments)
    elif arguments.live or arguments.warehouse is not None or arguments.catalog is not None:
        raise CommandError("--live, --warehouse and --catalog are of --table-of")
    elif arguments.misfits == "skip":
        raise CommandError("--misfits skip is of --table-of: --misfits null shows such a value as null")
    elif arguments.sql is not None:
        for name in ("columns", "start", "end", "snapshot"):
            if getattr(arguments, name) is not None:
                raise CommandError(f"--{name}: a query says this itself")
        if arguments.table != "records":
            raise CommandError(f"--table: a query names what it reads (moldau_{arguments.table})")
    elif arguments.topic is None and arguments.table in ("records", "latest", "batches"):
        raise CommandError("--topic or --sql is missing")
    if arguments.show_schema:
        for name in ("sql", "schema", "registry"):
            if getattr(arguments, name) is not None:
                raise CommandError(f"--show-schema: it is of the plain JSON of a topic, without --{name}")
        if arguments.topic is None:
            raise CommandError("--topic is missing")
    elif arguments.sample is not None and arguments.schema != "sample":
        raise CommandError("--sample: it is for --schema sample and --show-schema")
    if arguments.limit is not None and arguments.limit < 0:
        raise CommandError(f"--limit: {arguments.limit} is below 0")
    if arguments.format in ("parquet", "arrow") and not arguments.output and invocation.out.is_terminal:
        raise CommandError(f"--format {arguments.format} is not for a terminal: --output FILE")


def check_arguments_of_table(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` for arguments that `--table-of` does not take, or if its catalog is missing."""
    for name in ("topic", "start", "end", "snapshot", "schema"):
        if getattr(arguments, name) is not None:
            raise CommandError(f"--{name} is not of --table-of")
    if arguments.table != "records" or arguments.show_schema:
        raise CommandError("--table and --show-schema are not of --table-of")
    if arguments.sql is not None and arguments.columns is not None:
        raise CommandError("--columns: a query says this itself")
    if arguments.misfits not in ("suspend", "skip"):
        raise CommandError(f"--misfits {arguments.misfits}: --table-of takes suspend and skip")
    if arguments.warehouse is None and arguments.catalog is None:
        raise CommandError("--table-of needs --warehouse or --catalog, as of moldau follow-table")


def table_reader(arguments: argparse.Namespace, invocation: Invocation) -> pa.RecordBatchReader:
    """The reader of an Iceberg table, or of a query over it. Raises what `moldau.table` raises."""
    from moldau.lake.live_table import table

    found = table(
        arguments.warehouse,
        arguments.table_of,
        live=arguments.path if arguments.live else None,
        catalog=arguments.catalog,
        catalog_properties=lake.properties_of(arguments),
        registry=arguments.registry,
        misfits=arguments.misfits,
        progress=progress_of(arguments, invocation),
    )
    if arguments.sql is not None:
        return rows_of_query(found.duckdb(), arguments.sql)
    return found.scanner(names_of(arguments.columns)).to_reader()


def topic_reader(arguments: argparse.Namespace, invocation: Invocation) -> pa.RecordBatchReader:
    """The reader of the records of topics, or of another table about the topics (`--table`). Raises what
    `moldau.read_topic` raises.
    """
    from moldau.tables.reading.topics import read_topic

    return read_topic(
        arguments.path,
        names_of(arguments.topic),
        start=bound_of("--start", arguments.start),
        end=bound_of("--end", arguments.end),
        columns=names_of(arguments.columns),
        isolation=arguments.isolation,
        snapshot=arguments.snapshot,
        table=arguments.table,
        progress=progress_of(arguments, invocation),
        **decoding_of(arguments),
    )


def decoding_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `moldau.read_topic` that say how values are decoded."""
    return {
        "registry": arguments.registry,
        "schema": arguments.schema,
        "on_error": ON_ERROR[arguments.misfits],
        **sample_of(arguments),
    }


def sample_of(arguments: argparse.Namespace) -> dict[str, int]:
    return {} if arguments.sample is None else {"sample_rows": arguments.sample}


def shown_schema(arguments: argparse.Namespace) -> str:
    """The JSON Schema of the values of a topic, as text, from a sample of them. Raises what `moldau.json_schema`
    raises.
    """
    import json

    from moldau.tables.reading.topics import json_schema

    found = json_schema(
        arguments.path,
        names_of(arguments.topic),
        start=bound_of("--start", arguments.start),
        end=bound_of("--end", arguments.end),
        isolation=arguments.isolation,
        table=arguments.table,
        **sample_of(arguments),
    )
    return json.dumps(found, indent=2, ensure_ascii=False)


def query_reader(arguments: argparse.Namespace) -> pa.RecordBatchReader:
    """The reader of the rows of `--sql`. Raises `Refused`, OSError and DuckDB's errors."""
    from moldau.tables.engines.duckdb_views import duckdb

    con = duckdb(
        None,
        arguments.path,
        names=names_of(arguments.topic),
        isolation=arguments.isolation,
        **decoding_of(arguments),
    )
    return rows_of_query(con, arguments.sql)


def rows_of_query(con: Any, query: str) -> pa.RecordBatchReader:
    """The reader of the rows of a query over a DuckDB connection, whose views are topics. Raises `Refused` and DuckDB's
    errors.
    """
    from moldau.tables.refusals import Refused

    try:
        found: Any = con.sql(query)
    except engine_errors() as problem:
        views = [name for (name,) in con.sql("show tables").fetchall()]
        unquoted = unquoted_names(query, views)
        if not unquoted:
            raise
        raise CommandError(str(problem), f"in SQL these names need double quotes: {', '.join(unquoted)}") from None
    if found is None:
        raise Refused("--sql: the statement gives no rows")
    return found.to_arrow_reader()


def unquoted_names(query: str, views: Sequence[str]) -> list[str]:
    """Find the names in a query that need double quotes in SQL and lack them: topics with dots, dashes or a leading
    digit, and the column `offset`. Returns each in double quotes.
    """
    bare = re.sub(r"""'[^']*'|"[^"]*\"""", " ", query)
    found = [name for name in views if not re.fullmatch(r"[A-Za-z_]\w*", name) and name in bare]
    if re.search(r"\boffset\b(?!\s+\d)", bare, re.IGNORECASE):
        found.append("offset")
    return [f'"{name}"' for name in found]


def first_rows(reader: pa.RecordBatchReader, rows_max: int | None) -> Iterator[pa.RecordBatch]:
    """The batches that hold the first `rows_max` rows; all batches if it is None."""
    left = rows_max
    if left == 0:
        return
    for batch in reader:
        part = batch if left is None else batch.slice(0, left)
        yield part
        if left is not None:
            left -= part.num_rows
            if not left:
                return


def names_of(given: str | None) -> list[str] | None:
    """Split a comma-separated list of names; None if it is not given."""
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def bound_of(option: str, given: str | None) -> int | datetime | None:
    """Parse an offset, or a time in ISO 8601 (UTC if it has no zone); None if it is not given. Raises
    `CommandError`.
    """
    if given is None:
        return None
    word = given.strip()
    if word.isdecimal():
        return int(word)
    try:
        time = datetime.fromisoformat(word)
    except ValueError:
        raise CommandError(f"{option}: {given!r} is neither an offset nor a time like 2026-11-20T06:00") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def progress_of(arguments: argparse.Namespace, invocation: Invocation) -> Callable[[Progress], None] | None:
    """A function that prints the progress of the read; None if no progress is to be shown."""
    is_shown = invocation.errors.is_terminal if arguments.progress is None else arguments.progress
    if not is_shown:
        return None
    shown = -1

    def show(progress: Progress) -> None:
        nonlocal shown
        step = 100 * progress.tasks // max(1, progress.tasks_count) // PROGRESS_STEP
        if step > shown:
            shown = step
            size = f"{progress.bytes / 1e6:,.1f} of {progress.bytes_count / 1e6:,.1f} MB"
            invocation.errors.show(f"read {size}, {progress.rows:,} rows")

    return show


def standard_output(invocation: Invocation) -> IO[bytes]:
    """The binary stream of standard output. A test may replace it."""
    stream: IO[bytes] = getattr(invocation.out.stream, "buffer", sys.stdout.buffer)
    return stream


@contextmanager
def failures_as_command_errors(output: str | None = None) -> Iterator[None]:
    """A context that turns the exceptions of a read or of a query into `CommandError`. `output` is the file that is
    written, if there is one.
    """
    from moldau.protocol.primitives import MalformedMessage
    from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
    from moldau.storage.tiered.port import RemoteStorageError
    from moldau.tables.refusals import Refused
    from moldau.tables.values.registry import ValueNotDecoded

    try:
        yield
    except BrokenPipeError:
        raise
    except ValueNotDecoded as problem:
        raise CommandError(
            str(problem), "--misfits null shows such a value as null, --misfits keep its bytes"
        ) from None
    except (Refused, CorruptCheckpoint, MalformedMessage, RemoteStorageError) as problem:
        raise CommandError(str(problem)) from None
    except OSError as problem:
        if is_of_output(problem):
            raise CommandError(f"{output or 'the output'} cannot be written: {reason_of(problem)}") from None
        raise CommandError(text_of(problem)) from None
    except engine_errors() as problem:
        raise CommandError(str(problem)) from None


def engine_errors() -> tuple[type[Exception], ...]:
    """The base class of DuckDB's errors in a tuple, which is empty if DuckDB was not imported."""
    library: Any = sys.modules.get("duckdb")
    return () if library is None else (library.Error,)
