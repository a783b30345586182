"""Topics as data frames of pandas whose columns stay Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.tables.reading.arguments import Place, Topic
from moldau.tables.reading.topics import read_topic

if TYPE_CHECKING:
    from pandas import DataFrame


def pandas(place: Place, topic: Topic = None, **arguments: Any) -> DataFrame:
    """The rows of `moldau.read_topic` as a data frame with columns of `pandas.ArrowDtype`: nothing is copied into
    objects of Python. All rows are in memory. Raises as `read_topic`, whose arguments it takes.
    """
    import pandas as library

    frame: DataFrame = read_topic(place, topic, **arguments).read_all().to_pandas(types_mapper=library.ArrowDtype)
    return frame
