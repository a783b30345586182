"""Topics as data frames of pandas whose columns stay in Arrow's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.tables.reading.arguments import Place, Topic
from moldau.tables.reading.topics import read_topic

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pandas import DataFrame


def pandas(place: Place, topic: Topic = None, **arguments: Any) -> DataFrame:
    """Read the rows of `moldau.read_topic` into a data frame with columns of `pandas.ArrowDtype`, so that nothing is
    copied into Python objects. All rows are in memory. Takes the arguments of `read_topic`, and raises what it raises.
    """
    return arrow_frame(read_topic(place, topic, **arguments))


def arrow_frame(reader: pa.RecordBatchReader) -> DataFrame:
    """Read all rows of a reader into a data frame with Arrow columns. Raises what the reader raises."""
    import pandas as library

    frame: DataFrame = reader.read_all().to_pandas(types_mapper=library.ArrowDtype)
    return frame
