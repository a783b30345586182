"""The floor of a data source in Python: Spark reads ready batches, without planning, reading or decoding.

A task repeats the first batch that Moldau's source makes for the same task until the number of rows is reached. So
schema, sizes of batches and the number of tasks are those of the real scan. The time is that of Spark: Arrow's stream
from Python to the JVM, and the projection of its columns to rows there.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moldau.tables.options.read_options import parse_options
from moldau.tables.views.records import RecordsReader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

NAME: Final = "ready"
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def ready_rows(
    session: SparkSession, options: Mapping[str, str], home: Path, columns: tuple[str, ...] = COLUMNS
) -> DataFrame:
    """Make a table with as many rows as the source finds with these options, from ready batches. `home` gets a file for
    each task, and may be removed when the table is not read any more.
    """
    import pyarrow as pa

    from moldau.spark_jobs.data_source import MoldauDataSource

    home.mkdir(parents=True)
    reader = RecordsReader(parse_options(dict(options)), columns)
    tasks = []
    for number, task in enumerate(reader.tasks()):
        sample = next(reader.batches(task, columns))
        path = home / f"{number}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, sample.schema) as stream:
            stream.write_batch(sample)
        tasks.append((str(path), sum(batch.num_rows for batch in reader.batches(task, ("offset",)))))
    (home / "tasks").write_bytes(pickle.dumps(tasks))
    session.dataSource.register(ready_source())
    schema = MoldauDataSource({**options, "columns": ",".join(columns)}).schema()
    return session.read.format(NAME).schema(schema).load(str(home / "tasks"))


def ready_source() -> type[DataSource]:
    """Make the data source. Its classes are local, so that Spark sends them to its workers by value: the workers do not
    find the modules of `bench`.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    class ReadyReader(DataSourceReader):
        def __init__(self, path: str) -> None:
            self._path = path

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(each) for each in pickle.loads(Path(self._path).read_bytes())]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            path, left = partition.value
            with pa.OSFile(path) as file:
                batch = pa.ipc.open_stream(file).read_next_batch()
            while left > 0:
                yield batch if left >= batch.num_rows else batch.slice(0, left)
                left -= batch.num_rows

    class ReadySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def reader(self, schema: StructType) -> DataSourceReader:
            return ReadyReader(self.options["path"])

    return ReadySource
