"""A topic as a dataset of PyArrow. Its scanners take columns and a filter, and each scan is planned anew.

DuckDB and Polars scan a dataset by passing their columns and predicates to `scanner`. DataFusion asks for the fragments
of a dataset and scans each of them; a topic has one fragment. Methods that need row numbers, another schema or the
batches of each fragment raise `Refused`, because only a dataset of files has these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]

from moldau.tables.reading.arguments import Place, Topic
from moldau.tables.reading.scan import Scan
from moldau.tables.reading.topics import scan_of_every_column
from moldau.tables.refusals import Refused


class TopicDataset(ds.Dataset):  # type: ignore[misc] # PyArrow has no type hints
    """A PyArrow dataset over a topic or a table. Each scan reads the records that exist at that time."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def __reduce__(self) -> tuple[Any, ...]:
        return (TopicDataset, (self._scan,))

    @property
    def schema(self) -> pa.Schema:
        return self._scan.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Always true, because no predicate is known to hold for all rows."""
        return pc.scalar(True)

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **ignored: Any
    ) -> TopicScanner:
        """Return a scanner of some columns, and of the rows for which a filter is true. `ignored` are settings that
        make a scan of files faster. Raises `Refused` if `columns` has expressions."""
        if isinstance(columns, dict):
            raise Refused("columns: a topic is read by names of columns, not by expressions")
        return TopicScanner(self._scan.restricted(None if columns is None else tuple(columns), filter))

    def filter(self, expression: pc.Expression) -> TopicDataset:
        """Return the dataset with a further filter."""
        return TopicDataset(self._scan.restricted(None, expression))

    def to_table(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> pa.Table:
        return self.scanner(columns, filter).to_table()

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> Iterator[pa.RecordBatch]:
        return self.scanner(columns, filter).to_batches()

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:
        return self.scanner(None, filter).count_rows()

    def head(
        self, num_rows: int, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any
    ) -> pa.Table:
        return self.scanner(columns, filter).head(num_rows)

    def sort_by(self, sorting: Any, **_: Any) -> ds.InMemoryDataset:
        """Read the rows into memory, and return them sorted."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting))

    def join(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Read both datasets into memory, and return them joined."""
        return ds.InMemoryDataset(self.to_table().join(right_dataset.to_table(), *arguments, **options))

    def join_asof(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Read both datasets into memory, and return them joined by the nearest value."""
        return ds.InMemoryDataset(self.to_table().join_asof(right_dataset.to_table(), *arguments, **options))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[TopicFragment]:
        """Yield the only fragment of the topic, restricted by the filter."""
        yield TopicFragment(self if filter is None else self.filter(filter))

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        raise Refused("the columns of a topic have one type: cast the table")

    def take(self, indices: Any, *_: Any, **__: Any) -> NoReturn:
        raise Refused("a topic is not read by row numbers: filter by partition and offset")


class TopicFragment:
    """The only fragment of a topic, for engines that scan a dataset fragment by fragment."""

    def __init__(self, whole: TopicDataset) -> None:
        self._whole = whole

    @property
    def physical_schema(self) -> pa.Schema:
        return self._whole.schema

    @property
    def partition_expression(self) -> pc.Expression:
        return self._whole.partition_expression

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **ignored: Any,
    ) -> TopicScanner:
        """Return what `TopicDataset.scanner` returns. `schema` must be that of the dataset, and is ignored."""
        return self._whole.scanner(columns, filter)


class TopicScanner(ds.Scanner):  # type: ignore[misc]
    """A scan of a topic, which may be read several times. Each read is planned anew."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    @property
    def dataset_schema(self) -> pa.Schema:
        return self._scan.schema

    @property
    def projected_schema(self) -> pa.Schema:
        return self._scan.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """See `Scan.reader`."""
        return self._scan.reader()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return self._scan.batches()

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self._scan.restricted((), None).batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows. The scan ends after them."""
        found: list[pa.RecordBatch] = []
        left = num_rows
        for batch in self.to_batches() if num_rows > 0 else ():
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
            if not left:
                break
        return pa.Table.from_batches(found, self._scan.schema)

    def scan_batches(self) -> NoReturn:
        raise Refused("a topic has no fragments: use to_batches")

    def take(self, indices: Any) -> NoReturn:
        raise Refused("a topic is not read by row numbers: filter by partition and offset")


def dataset(place: Place, topic: Topic = None, **arguments: Any) -> TopicDataset:
    """Open a topic as a dataset of PyArrow, with the arguments of `moldau.read_topic`. Without `columns` the dataset
    also has the headers of records. Raises `Refused`."""
    return TopicDataset(scan_of_every_column(place, topic, **arguments))
