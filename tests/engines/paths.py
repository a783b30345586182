"""The paths of the matrix: how a trap's table goes through an engine or a format and comes back as Arrow.

Each is run in the environment that its module is named for; a library is imported when its path runs.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

import moldau
from tests.engines.environments import CONNECT
from tests.engines.traps import Trap


class NotApplicable(Exception):
    """The path does not take this trap."""


@dataclass
class Run:
    """A trap and a directory for the files of its path."""

    trap: Trap
    directory: Path
    spark: Any = None
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> pa.Table:
        return self.trap.table

    def place(self) -> tuple[Path, str]:
        """The topic, and its column. Raises `NotApplicable` for a trap that is no topic."""
        if self.trap.place is None:
            raise NotApplicable
        return self.trap.place, self.trap.name

    def parquet(self) -> str:
        """The rows as `moldau read --format parquet` writes them."""
        return self.written("parquet")

    def written(self, kind: str) -> str:
        from moldau.tables.engines.row_formats import write_rows

        path = self.directory / f"rows.{kind}"
        if not path.exists():
            with path.open("wb") as stream:
                write_rows(self.table.to_batches(), self.table.schema, kind, stream)
        return str(path)

    def delta(self) -> str:
        from deltalake import write_deltalake

        place = str(self.directory / "delta")
        if not os.path.exists(place):
            write_deltalake(place, self.table)
        return place

    def iceberg(self) -> Any:
        """A table of Iceberg to which the Parquet file was added, as `moldau follow-table` adds its own."""
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog(
            "c", uri=f"sqlite:///{self.directory}/c.db", warehouse=f"file://{self.directory}/warehouse"
        )
        catalog.create_namespace_if_not_exists("n")
        if catalog.table_exists("n.t"):
            return catalog.load_table("n.t")
        table = catalog.create_table("n.t", self.table.schema)
        table.add_files([self.parquet()])
        return table


NEWEST: Final[dict[str, Callable[[Run], pa.Table]]] = {}
OLDER: Final[dict[str, Callable[[Run], pa.Table]]] = {}
DAFT: Final[dict[str, Callable[[Run], pa.Table]]] = {}
SPARK: Final[dict[str, Callable[[Run], pa.Table]]] = {}


def ordered(place: Path, column: str, table: pa.Table) -> pa.Table:
    """The column of a topic, in the order of the offsets, as the truth has it."""
    rows = table.sort_by("offset") if "offset" in table.column_names else table
    return pa.table({"i": pa.array(range(rows.num_rows), pa.int32()), "x": rows.column(column)})


def arrow_of(relation: Any) -> pa.Table:
    """A relation of DuckDB as a table, in its versions 1 and 2."""
    return relation.to_arrow_table() if hasattr(relation, "to_arrow_table") else relation.arrow()


def columns_of(column: str) -> list[str]:
    return list(dict.fromkeys([column, "offset"]))


# Moldau's own ways to a topic.


def by_dataset(run: Run) -> pa.Table:
    place, column = run.place()
    return ordered(place, column, moldau.dataset(place, "t").to_table(columns_of(column)))


def by_duckdb(run: Run) -> pa.Table:
    place, column = run.place()
    named = ", ".join(f'"{each}"' for each in columns_of(column))
    return ordered(place, column, arrow_of(moldau.duckdb(None, place, names="t").sql(f"SELECT {named} FROM t")))


def by_polars(run: Run) -> pa.Table:
    place, column = run.place()
    return ordered(place, column, moldau.polars(place, "t").select(columns_of(column)).collect().to_arrow())


def by_polars_streaming(run: Run) -> pa.Table:
    place, column = run.place()
    frame = moldau.polars(place, "t").select(columns_of(column)).collect(engine="streaming")
    return ordered(place, column, frame.to_arrow())


def by_pandas(run: Run) -> pa.Table:
    place, column = run.place()
    frame = moldau.pandas(place, "t", columns=columns_of(column))
    return ordered(place, column, pa.Table.from_pandas(frame, preserve_index=False))


def by_datafusion(run: Run) -> pa.Table:
    from datafusion import SessionContext  # type: ignore[import-not-found,unused-ignore]

    place, column = run.place()
    context = SessionContext()
    context.register_dataset("t", moldau.dataset(place, "t"))
    named = ", ".join(f'"{each}"' for each in columns_of(column))
    found = context.sql(f"SELECT {named} FROM t").to_arrow_table()
    return ordered(place, column, found)


OURS: Final[dict[str, Callable[[Run], pa.Table]]] = {
    "moldau.dataset": by_dataset,
    "moldau.duckdb": by_duckdb,
    "moldau.polars": by_polars,
    "moldau.polars, streaming": by_polars_streaming,
    "moldau.pandas": by_pandas,
}
"""Those that need what the tests have installed: a test holds them equal to the truth."""


# Arrow and Parquet in the engines.


def polars_arrow(run: Run) -> pa.Table:
    import polars

    return polars.from_arrow(run.table).to_arrow()


def polars_parquet(run: Run) -> pa.Table:
    import polars

    return polars.read_parquet(run.parquet()).to_arrow()


def polars_streaming(run: Run) -> pa.Table:
    import polars

    return polars.scan_parquet(run.parquet()).filter(polars.col("i") >= 0).collect(engine="streaming").to_arrow()


def duckdb_arrow(run: Run) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("given", run.table)
        connection.sql("CREATE TABLE stored AS FROM given")
        return arrow_of(connection.sql("FROM stored ORDER BY i"))


def duckdb_file(kind: str, options: str = "") -> Callable[[Run], pa.Table]:
    def read(run: Run) -> pa.Table:
        import duckdb

        with duckdb.connect() as connection:
            return arrow_of(connection.sql(f"FROM read_{kind}('{run.written(kind)}'{options}) ORDER BY i"))

    return read


def duckdb_lake(kind: str) -> Callable[[Run], pa.Table]:
    """A table by an extension of DuckDB, which is a package."""

    def read(run: Run) -> pa.Table:
        import duckdb
        from duckdb_extensions import import_extension  # type: ignore[import-not-found,unused-ignore]

        place = run.delta() if kind == "delta" else run.iceberg().metadata_location
        with duckdb.connect() as connection:
            for extension in ("delta",) if kind == "delta" else ("avro", "iceberg"):
                import_extension(extension, con=connection)
                connection.load_extension(extension)
            return arrow_of(connection.sql(f"FROM {kind}_scan('{place}') ORDER BY i"))

    return read


def datafusion_arrow(run: Run) -> pa.Table:
    from datafusion import SessionContext  # type: ignore[import-not-found,unused-ignore]

    context = SessionContext()
    context.register_record_batches("t", [run.table.to_batches()])
    return context.sql("SELECT * FROM t ORDER BY i").to_arrow_table()


def datafusion_parquet(run: Run) -> pa.Table:
    from datafusion import SessionContext  # type: ignore[import-not-found,unused-ignore]

    context = SessionContext()
    context.register_parquet("t", run.parquet())
    return context.sql("SELECT * FROM t ORDER BY i").to_arrow_table()


def pandas_default(run: Run) -> pa.Table:
    return pa.Table.from_pandas(run.table.to_pandas(), schema=run.table.schema, preserve_index=False)


def pandas_arrow(run: Run) -> pa.Table:
    import pandas

    frame = run.table.to_pandas(types_mapper=pandas.ArrowDtype)
    return pa.Table.from_pandas(frame, preserve_index=False)


def pyarrow_parquet(run: Run) -> pa.Table:
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    return parquet.read_table(run.parquet())


def pyarrow_csv(run: Run) -> pa.Table:
    from pyarrow import csv

    types = csv.ConvertOptions(
        column_types=run.table.schema, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(
        run.written("csv"), parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=types
    )


def polars_json_lines(run: Run) -> pa.Table:
    import polars

    return polars.read_ndjson(run.written("jsonl"), infer_schema_length=None).to_arrow()


def deltalake(run: Run) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(run.delta()).to_pyarrow_table()


def delta_polars(run: Run) -> pa.Table:
    import polars

    return polars.scan_delta(run.delta()).collect().to_arrow()


def pyiceberg(run: Run) -> pa.Table:
    return run.iceberg().scan().to_arrow()


def iceberg_polars(run: Run) -> pa.Table:
    import polars

    return polars.scan_iceberg(run.iceberg()).collect().to_arrow()


def chdb(source: str) -> Callable[[Run], pa.Table]:
    def read(run: Run) -> pa.Table:
        import chdb as library  # type: ignore[import-not-found,unused-ignore]
        import pyarrow.parquet as parquet

        name = f"file('{run.parquet()}', Parquet)"
        if source == "arrow":
            globals()["given"], name = run.table, "Python(given)"
        is_text = not any(each in str(run.table.schema.field("x").type) for each in ("binary", "fixed"))
        settings = f"SETTINGS output_format_parquet_string_as_string = {int(is_text)}"
        answer = library.query(f"SELECT * FROM {name} ORDER BY i {settings}", "Parquet")
        return parquet.read_table(io.BytesIO(answer.bytes()))

    return read


NEWEST.update(
    {
        **OURS,
        "DataFusion over moldau.dataset": by_datafusion,
        "PyArrow, Parquet": pyarrow_parquet,
        "PyArrow, CSV": pyarrow_csv,
        "Polars, Arrow": polars_arrow,
        "Polars, Parquet": polars_parquet,
        "Polars, Parquet streaming": polars_streaming,
        "Polars, JSON lines": polars_json_lines,
        "DuckDB, Arrow": duckdb_arrow,
        "DuckDB, Parquet": duckdb_file("parquet"),
        "DuckDB, CSV": duckdb_file("csv", ", allow_quoted_nulls=false"),
        "DataFusion, Arrow": datafusion_arrow,
        "DataFusion, Parquet": datafusion_parquet,
        "pandas 3, ArrowDtype": pandas_arrow,
        "pandas 3, to_pandas()": pandas_default,
        "chdb, Arrow": chdb("arrow"),
        "chdb, Parquet": chdb("parquet"),
        "deltalake": deltalake,
        "Delta, Polars": delta_polars,
        "Iceberg, pyiceberg": pyiceberg,
        "Iceberg, Polars": iceberg_polars,
    }
)
OLDER.update(
    {
        "moldau.duckdb (1.5)": by_duckdb,
        "moldau.pandas (2)": by_pandas,
        "DuckDB 1.5, Arrow": duckdb_arrow,
        "DuckDB 1.5, Parquet": duckdb_file("parquet"),
        "Iceberg, DuckDB 1.5": duckdb_lake("iceberg"),
        "Delta, DuckDB 1.5": duckdb_lake("delta"),
        "pandas 2, ArrowDtype": pandas_arrow,
        "pandas 2, to_pandas()": pandas_default,
    }
)


def daft_arrow(run: Run) -> pa.Table:
    import daft  # type: ignore[import-not-found,unused-ignore]

    return daft.from_arrow(run.table).sort("i").to_arrow()


def daft_parquet(run: Run) -> pa.Table:
    import daft

    return daft.read_parquet(run.parquet()).sort("i").to_arrow()


def daft_iceberg(run: Run) -> pa.Table:
    import daft

    return daft.read_iceberg(run.iceberg()).sort("i").to_arrow()


def daft_delta(run: Run) -> pa.Table:
    import daft

    return daft.read_deltalake(run.delta()).sort("i").to_arrow()


DAFT.update(
    {"Daft, Arrow": daft_arrow, "Daft, Parquet": daft_parquet, "Iceberg, Daft": daft_iceberg, "Delta, Daft": daft_delta}
)


def spark_source(run: Run) -> pa.Table:
    place, column = run.place()
    options = {"subscribe": "t", "includeHeaders": "true"}
    rows = run.spark.read.format("moldau").options(**options, **COMMITTED).load(str(place)).select(*columns_of(column))
    return ordered(place, column, rows.toArrow())


def spark_parquet(run: Run) -> pa.Table:
    return run.spark.read.parquet(run.parquet()).orderBy("i").toArrow()


def spark_iceberg(run: Run) -> pa.Table:
    return run.spark.read.format("iceberg").load(run.iceberg().metadata_location).orderBy("i").toArrow()


def spark_delta(run: Run) -> pa.Table:
    return run.spark.read.format("delta").load(run.delta()).orderBy("i").toArrow()


def spark_stream(run: Run) -> pa.Table:
    place, column = run.place()
    for number in range(STARTS_MAX - 1):
        try:
            return ordered(place, column, streamed(run, place, column, number))
        except Exception as problem:
            if NO_WORKER not in str(problem):
                raise
    return ordered(place, column, streamed(run, place, column, STARTS_MAX - 1))


def streamed(run: Run, place: Path, column: str, number: int) -> pa.Table:
    """What a stream writes, that ends with what is there. `number` is that of the attempt."""
    options = {"subscribe": "t", "includeHeaders": "true", "startingOffsets": "earliest"}
    rows = run.spark.readStream.format("moldau").options(**options, **COMMITTED).load(str(place))
    name = f"stream_{run.directory.name.replace('-', '_')}_{number}"
    rows = rows.select(*columns_of(column)).writeStream.format("memory").queryName(name)
    checkpoint = str(run.directory / f"checkpoint-{number}")
    query = rows.trigger(availableNow=True).option("checkpointLocation", checkpoint).start()
    query.awaitTermination()
    return run.spark.table(name).toArrow()


STARTS_MAX: Final = 4
"""How often a stream is started: Spark gives its worker ten seconds, which may be too few on a busy machine."""
NO_WORKER: Final = "Python worker failed to connect back"
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
SPARK.update(
    {"Spark, format(moldau)": spark_source, "Spark, stream of moldau": spark_stream, "Spark, Parquet": spark_parquet}
)
SPARK_CONNECT: Final[dict[str, Callable[[Run], pa.Table]]] = {
    "Spark, format(moldau) by Connect": spark_source,
    "Spark, stream of moldau by Connect": spark_stream,
}
PATHS: Final[dict[str, dict[str, Callable[[Run], pa.Table]]]] = {
    "newest": NEWEST,
    "older": OLDER,
    "daft": DAFT,
    "spark-4.1": {"Iceberg, Spark 4.1": spark_iceberg, "Delta, Spark 4.1": spark_delta},
    "spark-4.2": SPARK,
    "spark-4.3": SPARK,
    f"spark-4.2{CONNECT}": SPARK_CONNECT,
    f"spark-4.3{CONNECT}": SPARK_CONNECT,
}
"""The paths of each run."""
