"""`moldau.read_topic`: rows, bounds, filters, progress, and the errors of what is asked and of what is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import moldau
from moldau.protocol.primitives import MalformedMessage
from moldau.tables.reading import topic_scan
from moldau.tables.reading.scan import Progress
from moldau.tables.refusals import DataLost, Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.tables import read_table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PARTITION, OFFSET, TIMESTAMP, KEY = (pc.field(name) for name in ("partition", "offset", "timestamp", "key"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("topics")
    write_partition(directory, mixed_batches(40, 10))
    write_partition(directory, mixed_batches(5, 10), partition=1)
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 50})
    return directory


@pytest.fixture(params=[0, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Small tasks, so that there are many; decoded by the caller, and by two threads."""
    monkeypatch.setattr(topic_scan, "TASK_SIZE", 4096)
    return int(request.param)


def offsets(reader: pa.RecordBatchReader) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in reader.read_all().to_pylist()]


def test_the_rows_are_those_of_the_data_source(directory: Path, threads: int) -> None:
    theirs = read_table(directory, subscribe="t", includeHeaders="true")
    ours = moldau.read_topic(directory, "t", columns=theirs.schema.names, threads=threads).read_all()
    assert ours.schema == theirs.schema and ours.num_rows == 450
    assert ours.to_pylist() == theirs.to_pylist()


def test_batches_are_bounded_and_columns_are_those_asked_for(directory: Path, threads: int) -> None:
    reader = moldau.read_topic(directory, "t", columns=["offset", "partition"], batch_rows=7, threads=threads)
    batches = list(reader)
    assert reader.schema.names == ["offset", "partition"]
    assert max(batch.num_rows for batch in batches) == 7
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [*range(400), *range(50)]


def test_start_and_end(directory: Path) -> None:
    def read(**bounds: Any) -> list[tuple[int, int]]:
        return offsets(moldau.read_topic(directory, "t", columns=["partition", "offset"], **bounds))

    assert read(start=45, end=55) == [*((0, each) for each in range(45, 55)), *((1, each) for each in range(45, 50))]
    assert read(start={0: 398}, end={1: 2}) == [(0, 398), (0, 399), (1, 0), (1, 1)]
    times = moldau.read_topic(directory, "t", columns=["timestamp"], end={1: 0}).read_all()["timestamp"].to_pylist()
    found = read(start=times[200], end={0: 210, 1: 0})
    assert found and found[0] == (0, next(place for place, each in enumerate(times) if each >= times[200]))
    late = max(times) + timedelta(days=1)
    assert read(start=late) == []
    assert len(read(end=late)) == 450


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"start": -1}, "start: offset -1 is below 0"),
        ({"start": 9, "end": 3}, "start 9 is past end 3"),
        ({"start": datetime(2024, 1, 1)}, "start: .* has no time zone"),
        ({"start": "soon"}, "start: 'soon' is not an offset"),
        ({"start": {7: 0}}, "start: there is no partition 7"),
        ({"columns": ["size"]}, "there is no column size"),
        ({"table": "rows"}, "table: rows is not one of"),
        ({"isolation": "none"}, "isolation: none is not one of"),
        ({"filter": pc.field("size") == 1}, "filter: No match"),
        ({"threads": -1}, "threads: -1 is below 0"),
        ({"batch_rows": 0}, "batch_rows: 0 is below 1"),
        ({"options": {"speed": "high"}}, "the option speed is not supported"),
        ({"table": "latest", "start": 3}, "table=latest takes no offset for all partitions"),
    ],
)
def test_what_cannot_be_read_is_refused(directory: Path, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        moldau.read_topic(directory, "t", **arguments)


def test_a_list_may_name_directories_with_commas(directory: Path, tmp_path: Path) -> None:
    """Arguments are values: only a text of several places is cut at its commas."""
    named = tmp_path / "a,b"
    named.symlink_to(directory)
    assert moldau.read_topic([named], ["t"]).read_all().num_rows == 450
    with pytest.raises(Refused, match="is not a directory"):
        moldau.read_topic(str(named), "t")


def test_offsets_that_are_gone_are_lost_data(directory: Path) -> None:
    with pytest.raises(DataLost, match="t-1: offset 60 is asked for, and the log ends at 50"):
        moldau.read_topic(directory, "t", start={1: 60})
    with pytest.raises(Refused, match="no partition of u"):
        moldau.read_topic(directory, "u")


values = {
    "partition": st.integers(-1, 3),
    "offset": st.integers(-5, 400),
    "timestamp": st.integers(0, 400 * 37).map(lambda each: EPOCH + timedelta(milliseconds=1_700_000_000_000 + each)),
    "timestampType": st.integers(0, 1),
}
OPERATORS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">=": lambda a, b: a >= b,
    ">": lambda a, b: a > b,
}


@st.composite
def comparisons(draw: st.DrawFn) -> pc.Expression:
    column = draw(st.sampled_from(sorted(values)))
    return OPERATORS[draw(st.sampled_from(sorted(OPERATORS)))](pc.field(column), draw(values[column]))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(comparisons(), min_size=1, max_size=3), st.booleans())
def test_a_filter_is_exact(directory: Path, drawn: list[pc.Expression], is_any: bool) -> None:
    wanted = drawn[0]
    for each in drawn[1:]:
        wanted = wanted | each if is_any else wanted & each
    everything = moldau.read_topic(directory, "t", threads=0).read_all()
    found = moldau.read_topic(directory, "t", columns=["key", "offset"], filter=wanted, threads=0).read_all()
    assert found.to_pylist() == everything.filter(wanted).select(["key", "offset"]).to_pylist()


def test_a_filter_prunes_segments(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_scan, "TASK_SIZE", 4096)
    seen: list[Progress] = []

    def bytes_planned(**arguments: Any) -> int:
        moldau.read_topic(directory, "t", columns=["offset"], progress=seen.append, **arguments).read_all()
        return seen[-1].bytes_count

    whole = bytes_planned()
    assert bytes_planned(filter=PARTITION == 1) < whole / 4
    assert bytes_planned(filter=(OFFSET >= 100) & (OFFSET < 120)) < whole / 4
    assert bytes_planned(filter=KEY == b"key-3") == whole


def test_progress_reaches_the_end(directory: Path, threads: int) -> None:
    seen: list[Progress] = []
    moldau.read_topic(directory, "t", progress=seen.append, threads=threads).read_all()
    last = seen[-1]
    assert (last.rows, last.tasks, last.bytes) == (450, last.tasks_count, last.bytes_count)
    assert last.tasks_count > 1 and last.bytes_count > 0
    assert [each.rows for each in seen] == sorted(each.rows for each in seen)


def test_a_reader_that_is_dropped_ends_its_threads(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_scan, "TASK_SIZE", 4096)
    reader = moldau.read_topic(directory, "t", threads=2)
    reader.read_next_batch()
    del reader
    decoders = [thread for thread in threading.enumerate() if thread.name == "moldau decoding"]
    for thread in decoders:
        thread.join(10)
    assert not any(thread.is_alive() for thread in decoders)


def test_the_asynchronous_form_gives_the_same(directory: Path) -> None:
    async def read() -> list[int]:
        return [
            row["offset"]
            async for batch in moldau.read_topic_async(directory, "t", columns=["offset"])
            for row in batch.to_pylist()
        ]

    assert asyncio.run(read()) == [*range(400), *range(50)]


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[Path]:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_checkpoints(tmp_path, {("t", 0): 400})
    last = max((tmp_path / "t-0").glob("*.log"))
    content = bytearray(last.read_bytes())
    content[-5] ^= 0xFF
    last.write_bytes(content)
    yield tmp_path


def test_a_damaged_batch_is_named_after_the_rows_before_it(damaged: Path, threads: int) -> None:
    reader = moldau.read_topic(damaged, "t", threads=threads, columns=["offset"])
    found: list[int] = []
    with pytest.raises(MalformedMessage, match=r"t-0, offsets .*\.log, position \d+: the checksum"):
        for batch in reader:
            found.extend(batch.column("offset").to_pylist())
    assert found == list(range(len(found))) and 0 < len(found) < 400


def test_lost_data_may_be_read_around(directory: Path, tmp_path: Path) -> None:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_checkpoints(tmp_path, {("t", 0): 400})
    reader = moldau.read_topic(tmp_path, "t", options={"failOnDataLoss": "false"}, threads=0)
    min((tmp_path / "t-0").glob("*.log")).unlink()
    with pytest.warns(UserWarning, match="was deleted after the read was planned: skipped"):
        assert 0 < reader.read_all().num_rows < 400


def test_the_other_tables_are_functions(directory: Path) -> None:
    assert moldau.topics(directory).read_all().column("partition").to_pylist() == [0, 1]
    assert moldau.segments(directory, "t").read_all().num_rows > 2
    assert moldau.batches(directory, "t").read_all().num_rows == 45
    keys = moldau.read_topic(directory, "t", filter=PARTITION == 1).read_all()["key"].drop_null().unique()
    last = moldau.latest(directory, "t", filter=PARTITION == 1, options={"tombstones": "keep"}).read_all()
    assert sorted(last["key"].to_pylist()) == sorted(keys.to_pylist())


def test_the_tables_of_a_cluster_without_groups_and_transactions_are_empty(directory: Path) -> None:
    """With a warning: their topics may be in other directories."""
    for read in (moldau.offsets, moldau.groups, moldau.transactions):
        with pytest.warns(UserWarning, match="no partition of __.*: a cluster makes this topic for its first"):
            assert read(directory).read_all().num_rows == 0


def test_what_is_not_installed_is_said_at_once() -> None:
    program = """if True:
        import importlib.util, moldau
        moldau.find_spec = lambda name: None
        for name in ("read_topic", "duckdb", "polars"):
            try:
                getattr(moldau, name)
            except ImportError as problem:
                print(problem)"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == [
        "moldau.read_topic needs pyarrow and numpy, not installed here: pip install 'moldau[arrow]'",
        "moldau.duckdb needs pyarrow and numpy and duckdb, not installed here: pip install 'moldau[sql]'",
        "moldau.polars needs pyarrow and numpy and polars, not installed here: pip install 'moldau[arrow]' polars",
    ]


def test_importing_moldau_is_light() -> None:
    program = "import sys, moldau; print({'numpy', 'pyarrow', 'asyncio', 'moldau.tables'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
    assert {"read_topic", "duckdb", "polars", "pandas", "dataset", "values"} <= set(dir(moldau))
    with pytest.raises(AttributeError, match="no attribute 'kafka'"):
        _ = moldau.kafka
