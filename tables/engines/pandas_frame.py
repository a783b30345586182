"""Topics as data frames of pandas whose columns stay Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.tables.reading.arguments import Place, Topic
from moldau.tables.reading.topics import read_topic

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pandas import DataFrame


def pandas(place: Place, topic: Topic = None, **arguments: Any) -> DataFrame:
    """The rows of `moldau.read_topic` as a data frame with columns of `pandas.ArrowDtype`: nothing is copied into
    objects of Python. All rows are in memory. Raises as `read_topic`, whose arguments it takes.
    """
    return arrow_frame(read_topic(place, topic, **arguments))


def arrow_frame(reader: pa.RecordBatchReader) -> DataFrame:
    """The rows of a reader as a data frame of Arrow's columns. Raises what the reader raises."""
    import pandas as library

    frame: DataFrame = reader.read_all().to_pandas(types_mapper=library.ArrowDtype)
    return frame
