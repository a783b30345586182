"""Topics as views of DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from moldau.tables.engines.topic_dataset import dataset
from moldau.tables.reading.arguments import Place
from moldau.tables.reading.topics import topics

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DESCRIPTIONS: Final = {
    "moldau_topics": "topics",
    "moldau_segments": "segments",
    "moldau_offsets": "offsets",
    "moldau_groups": "groups",
    "moldau_transactions": "transactions",
}
"""The views of the tables that describe a cluster."""


def duckdb(
    con: DuckDBPyConnection | None,
    place: Place,
    *,
    names: Mapping[str, str] | Sequence[str] | str | None = None,
    **arguments: Any,
) -> DuckDBPyConnection:
    """Give each topic of a place as a view of a connection; None makes a connection in memory. Returns the connection.

    A view has the name of its topic (in double quotes where it has dots or dashes). `names`: only this topic or these,
    or view by topic. Tables that describe the cluster are views too: `moldau_topics`, `moldau_segments`,
    `moldau_offsets`, `moldau_groups`, `moldau_transactions`. Nothing is read before a query, which reads what is there
    then: the columns that it names, and the partitions, offsets and times that its WHERE leaves. `arguments` are those
    of `moldau.read_topic`. Raises `Refused` and OSError.
    """
    import duckdb as library

    connection: DuckDBPyConnection = library.connect() if con is None else con
    shown = arguments.get("options")
    if names is None:
        listed = topics(place, columns=["topic"], options=shown).read_all()
        names = sorted(set(listed.column("topic").to_pylist()))
    elif isinstance(names, str):
        names = [names]
    views = names if isinstance(names, Mapping) else {name: name for name in names}
    for topic, view in views.items():
        connection.register(view, dataset(place, topic, **arguments))
    for view, table in DESCRIPTIONS.items():
        connection.register(view, dataset(place, table=table, options=shown))
    return connection
