"""Stories of nested values in a table: null at each depth, schemas that grow and shrink, rows appended or by key, files
replaced and joined, restarts, and followers that are killed.

After each step the table, as its files and its readers have it, and the live relation before the commit are equal to
what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import moldau
from moldau.protocol.record_builder import Record
from tests.lake.killed_writer import OCCURRENCES_MAX, STEPS, run
from tests.support.lake_stage import START_MS, LakeStage
from tests.support.made_values import (
    Kind,
    Made,
    kinds,
    made_of_avro,
    made_of_json,
    made_of_protobuf,
    messages,
    value_of,
)

KEYS: Final = (b"a", b"b", b"c", b"d")
LEAVES: Final = ("bool", "int", "long", "double", "string", "bytes", "enum")
LEAVES_OF_JSON: Final = ("bool", "long", "double", "string", "enum")
Rows = dict[tuple[int, int], Any]
"""The value at each (partition, offset)."""
Reader = Callable[[LakeStage], pa.Table]


class Written(NamedTuple):
    """A record: its key, and which value of which version of the schema it has; a tombstone has none."""

    key: bytes
    version: int
    value: int | None


class Step(NamedTuple):
    """Records, then a run of the follower; before it one that is killed at a step of a commit."""

    records: list[Written]
    killed_at: str | None
    occurrence: int


class Story(NamedTuple):
    """A topic and how it is followed."""

    mode: str
    versions: list[Made]
    """The schema of each id, from 1 on, with values of it."""
    steps: list[Step]


def wider(kind: Kind) -> Kind:
    """A later schema: an int is a long, and each record has a field more."""
    if kind.name == "record":
        fields = {name: wider(each) for name, each in kind.inner.items()}
        return Kind("record", fields | {"z": Kind("optional", Kind("string"))})
    if kind.inner is not None:
        return Kind(kind.name, wider(kind.inner))
    return Kind("long") if kind.name == "int" else kind


def narrower(kind: Kind) -> Kind:
    """A later schema: each record of several fields lacks its first one."""
    if kind.name == "record":
        names = list(kind.inner)
        return Kind("record", {name: narrower(kind.inner[name]) for name in (names[1:] or names)})
    return kind if kind.inner is None else Kind(kind.name, narrower(kind.inner))


@st.composite
def stories(draw: st.DrawFn, *, kills: bool = True) -> Story:
    """Stories of a few steps."""
    make, kind = draw(
        st.one_of(
            st.tuples(st.just(made_of_avro), kinds(*LEAVES)),
            st.tuples(st.just(made_of_json), kinds(*LEAVES_OF_JSON)),
            st.tuples(st.just(made_of_protobuf), messages()),
        )
    )
    schemas = [kind, wider(kind), narrower(wider(kind))]
    versions = [make(each, draw(st.lists(value_of(each), min_size=1, max_size=3))) for each in schemas]
    steps = []
    for _ in range(draw(st.integers(2, 4))):
        records = []
        for _ in range(draw(st.integers(1, 4))):
            version = draw(st.integers(0, len(versions) - 1))
            values = range(len(versions[version].values))
            records.append(Written(draw(st.sampled_from(KEYS)), version, draw(st.none() | st.sampled_from(values))))
        killed_at = draw(st.none() | st.sampled_from(STEPS)) if kills else None
        steps.append(Step(records, killed_at, draw(st.integers(1, OCCURRENCES_MAX))))
    return Story(draw(st.sampled_from(["append", "upsert"])), versions, steps)


class Told:
    """A story that is run in a directory."""

    def __init__(self, directory: Path, story: Story) -> None:
        self.stage = LakeStage(directory)
        self._story = story
        self._rows: dict[object, tuple[int, Any]] = {}
        for number, each in enumerate(story.versions, 1):
            (self.stage.schemas / f"{number}.{each.suffix}").write_bytes(each.schema)
        self.chosen = {"mode": story.mode, "registry": str(self.stage.schemas), "compact_files_min": 3, "unit": None}

    def run(self, readers: Mapping[str, Reader]) -> None:
        """Raises AssertionError if a reader has other rows than were written."""
        for number, step in enumerate(self._story.steps):
            self._write(step.records)
            if step.killed_at is not None:
                code = run(self.stage.choices(**self.chosen), step.killed_at, step.occurrence)
                assert code in (0, -9), code
            if number:  # A follower that is killed at once has made no table.
                self.check("live", live(self.stage))
            self.stage.follow(**self.chosen)
            for name, reader in readers.items():
                self.check(name, reader(self.stage))
        assert self.stage.orphans() == [] and self.stage.verified().findings == []

    def check(self, name: str, found: pa.Table) -> None:
        """Compare what a reader has found with what was written."""
        kind = type_of_column(found)
        expected = {offset: shaped(value, kind) for offset, value in self._rows.values()}
        values = found["value"].to_pylist() if kind is not None else [None] * len(found)
        have = {offset: shaped(value, kind) for offset, value in zip(found["offset"].to_pylist(), values, strict=True)}
        assert len(found) == len(expected), (name, len(found), len(expected))
        if name in BY_NAME:
            expected, have = ({at: BY_NAME[name](each, kind) for at, each in of.items()} for of in (expected, have))
        assert have == expected, name

    def _write(self, records: list[Written]) -> None:
        start = self.stage.ends.get(("t", 0), 0)
        made = []
        for offset, (key, version, number) in enumerate(records, start):
            value, payload = (None, None) if number is None else self._story.versions[version].values[number]
            framed = None if payload is None else b"\0" + (version + 1).to_bytes(4, "big") + payload
            made.append(Record(key, framed, START_MS))
            place = key if self._story.mode == "upsert" else offset
            self._rows.pop(place, None)
            if self._story.mode == "append" or framed is not None:
                self._rows[place] = offset, value
        self.stage.append(made)


def type_of_column(found: pa.Table) -> pa.DataType | None:
    return found.schema.field("value").type if "value" in found.schema.names else None


def shaped(value: Any, kind: pa.DataType | None) -> Any:
    """A value in the type of a column: fields that it lacks are null, a map is a list of pairs."""
    if value is None or kind is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: shaped(value.get(each.name), each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(key, shaped(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [shaped(each, kind.value_type) for each in value]
    return value


def live(stage: LakeStage) -> pa.Table:
    return moldau.table(stage.warehouse, "t", live=str(stage.logs), registry=str(stage.schemas)).to_table()


def files(stage: LakeStage) -> pa.Table:
    """The rows as the Parquet files have them."""
    paths = [task.file.file_path.removeprefix("file://") for task in stage.table().scan().plan_files()]
    tables = [pq.ParquetFile(each).read() for each in paths]
    return pa.concat_tables(tables, promote_options="permissive") if tables else stage.table().scan().to_arrow()


def by_pyiceberg(stage: LakeStage) -> pa.Table:
    return stage.table().scan().to_arrow()


def by_polars(stage: LakeStage) -> pa.Table:
    import polars

    return polars.scan_iceberg(stage.table()).collect().to_arrow()


def by_duckdb(stage: LakeStage) -> pa.Table:
    con = moldau.table(stage.warehouse, "t", registry=str(stage.schemas)).duckdb()
    return con.sql("select * from t").to_arrow_table()


def without_null_lists(value: Any, kind: pa.DataType | None) -> Any:
    """A value as a scan of pyiceberg may make it: a null list or map of structs is empty, if the file has the column
    (`findings/pyiceberg_null_lists_of_structs.sh`).
    """
    if kind is None or (value is None and not is_of_structs(kind)):
        return None
    if pa.types.is_struct(kind):
        return {each.name: without_null_lists(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(key, without_null_lists(item, kind.item_type)) for key, item in value or ()]
    if pa.types.is_nested(kind):
        return [without_null_lists(each, kind.value_type) for each in value or ()]
    return value


def is_of_structs(kind: pa.DataType) -> bool:
    """Whether values are lists or maps of structs."""
    if pa.types.is_map(kind):
        return bool(pa.types.is_struct(kind.item_type))
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and pa.types.is_struct(kind.value_type))


BY_NAME: Final[Mapping[str, Callable[[Any, pa.DataType | None], Any]]] = {"pyiceberg": without_null_lists}
"""What a reader is known to change by itself."""
READERS: Final[Mapping[str, Reader]] = {
    "files": files,
    "pyiceberg": by_pyiceberg,
    "Polars": by_polars,
    "DuckDB": by_duckdb,
}


def tell(story: Story, readers: Mapping[str, Reader] = READERS) -> None:
    """Run a story in a directory that is removed after it. Raises AssertionError."""
    with TemporaryDirectory() as directory:
        Told(Path(directory), story).run(readers)


def campaign(count: int, of_seed: int) -> None:
    """Tell so many stories, and shrink one that fails."""
    drawn = seed(of_seed)(given(stories())(tell_with_every_reader))
    settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))(drawn)()


def tell_with_every_reader(story: Story) -> None:
    tell(story)
