"""Topics as views of DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from moldau.tables.engines.topic_dataset import TopicDataset, dataset
from moldau.tables.reading.arguments import Place
from moldau.tables.reading.topics import topics
from moldau.tables.refusals import Refused
from moldau.tables.values.topic_types import NoSample

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DESCRIPTIONS: Final[Mapping[str, str]] = {
    "moldau_topics": "topics",
    "moldau_segments": "segments",
    "moldau_offsets": "offsets",
    "moldau_groups": "groups",
    "moldau_transactions": "transactions",
}
"""The DuckDB view of each table that describes a cluster, by name."""


class AmbiguousTopic(TopicDataset):
    """The dataset of a view whose name stands for several topics, because SQL ignores the case of names. A scan is
    refused, because the query does not say which topic is meant."""

    def __init__(self, one: TopicDataset, topics: Sequence[str]) -> None:
        super().__init__(one._scan)
        self._topics = topics

    def __reduce__(self) -> tuple[Any, ...]:
        return (AmbiguousTopic, (TopicDataset(self._scan), self._topics))

    def scanner(self, *_: Any, **__: Any) -> NoReturn:
        raise Refused(ambiguous_name_message(self._topics))


def ambiguous_views(views: Mapping[str, str]) -> dict[str, list[str]]:
    """Find the names of views that stand for several topics, because SQL ignores the case of names. Returns their
    topics by the name of the view in lower case. `views`: the view of each topic. A table of the cluster
    (`DESCRIPTIONS`) counts as a topic."""
    found: dict[str, list[str]] = {view: [table] for view, table in DESCRIPTIONS.items()}
    for topic, view in sorted(views.items()):
        found.setdefault(view.lower(), []).append(topic)
    return {view: topics for view, topics in found.items() if len(topics) > 1}


def ambiguous_name_message(topics: Sequence[str]) -> str:
    """The error message for a query of a view whose name stands for several topics."""
    return (
        f"{' and '.join(topics)} are one name in SQL, which has no case: read one of them alone (names, --topic), "
        f"or name a view for each, such as names={{{topics[-1]!r}: 'view_1'}}"
    )


def dataset_of(place: Place, topic: str, arguments: Mapping[str, Any], *, is_chosen: bool) -> TopicDataset:
    """Open the dataset of a topic. `is_chosen`: whether the caller has named the topic. If not, and if no sampled value
    gives a type, the values stay bytes. Raises what `dataset` raises."""
    try:
        return dataset(place, topic, **arguments)
    except NoSample:
        if is_chosen:
            raise
        return dataset(place, topic, **{**arguments, "schema": None, "registry": None, "on_error": "fail"})


def duckdb(
    con: DuckDBPyConnection | None,
    place: Place,
    *,
    names: Mapping[str, str] | Sequence[str] | str | None = None,
    **arguments: Any,
) -> DuckDBPyConnection:
    """Register each topic of a place as a view of a DuckDB connection, and return the connection. If `con` is None,
    make a connection in memory.

    A view has the name of its topic (in double quotes if it has dots or dashes). SQL ignores the case of names, so a
    query of a view whose name several topics have is refused. Tables that describe the cluster are views, too:
    `moldau_topics`, `moldau_segments`, `moldau_offsets`, `moldau_groups`, `moldau_transactions`.

    `names`: a topic, several topics, or a mapping from topic to view; only these topics are registered. `arguments` are
    those of `moldau.read_topic`. With schema="sample" a sample is taken of each topic. If the sample of a topic that is
    not in `names` gives no type, its values stay bytes.

    A query reads the records that exist at that time: only the columns that it names, and only the partitions, offsets
    and times that its WHERE allows. Raises `Refused` and OSError.
    """
    import duckdb as library

    connection: DuckDBPyConnection = library.connect() if con is None else con
    shown = arguments.get("options")
    is_chosen = names is not None
    if isinstance(names, str):
        names = [names]
    elif names is None:
        listed = topics(place, columns=["topic"], options=shown).read_all()
        # A table of the cluster hides a topic of its name, which has a view if the caller names one.
        names = sorted(set(listed.column("topic").to_pylist()) - set(DESCRIPTIONS))
    views = names if isinstance(names, Mapping) else {name: name for name in names}
    same = ambiguous_views(views)
    if is_chosen and same:
        raise Refused(ambiguous_name_message(next(iter(same.values()))))
    for topic, view in views.items():
        topics_of_view = same.get(view.lower())
        of_topic = dataset_of(place, topic, arguments, is_chosen=is_chosen)
        connection.register(view, of_topic if topics_of_view is None else AmbiguousTopic(of_topic, topics_of_view))
    for view, table in DESCRIPTIONS.items():
        connection.register(view, dataset(place, table=table, options=shown))
    return connection
