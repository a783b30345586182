"""What a streaming query plans over files: starts, ends, new partitions, and what it has lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.options.read_options import parse_options
from spark_jobs.planning.stream_plan import StreamPlanner
from spark_jobs.refusals import DataLost, Refused
from storage.checkpoints.partition_metadata import write_topic_id
from storage.files.local_files import LocalFiles
from tests.support.segments import mixed_batches, write_checkpoints, write_partition


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_partition(tmp_path, mixed_batches(20, 10), partition=1)
    write_checkpoints(tmp_path, {("t", 0): 400, ("t", 1): 200})
    return tmp_path


def planner(directory: Path, sleeps: list[float] | None = None, **options: str) -> StreamPlanner:
    given = {"path": str(directory), "subscribe": "t", **options}
    noted = sleeps if sleeps is not None else []
    return StreamPlanner(LocalFiles(), parse_options(given, "stream"), sleep=noted.append, wait_s=2)


def offsets_of(stream: StreamPlanner, starts: dict[tuple[str, int], int], ends: dict[tuple[str, int], int]) -> int:
    """How many offsets the tasks take."""
    found = set()
    for task in stream.tasks(starts, ends):
        for each in task:
            found |= {(each.partition, offset) for offset in range(each.start_offset, each.end_offset)}
    return len(found)


def test_a_query_starts_at_the_latest_offset_unless_it_is_told(directory: Path) -> None:
    assert planner(directory).starts() == {("t", 0): 400, ("t", 1): 200}
    assert planner(directory, startingOffsets="earliest").starts() == {("t", 0): 0, ("t", 1): 0}
    chosen = planner(directory, startingOffsets='{"t": {"0": 7, "1": -1}}')
    assert chosen.starts() == {("t", 0): 7, ("t", 1): 200}
    with pytest.raises(Refused, match="startingOffsets does not name t-1"):
        planner(directory, startingOffsets='{"t": {"0": 7}}').starts()


def test_a_new_partition_is_read_from_its_beginning(directory: Path) -> None:
    stream = planner(directory)
    starts = stream.starts()
    write_partition(directory, mixed_batches(3, 10), partition=2)
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200, ("t", 2): 30})
    ends = stream.checked_ends(starts)
    assert ends == {("t", 0): 400, ("t", 1): 200, ("t", 2): 30}
    assert offsets_of(stream, starts, ends) == 30


def test_a_new_partition_that_has_lost_records_is_told(directory: Path) -> None:
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200}, {("t", 1): 20})
    stream = planner(directory)
    with pytest.raises(DataLost, match="t-1: the partition is new, and its log starts at 20 already"):
        stream.tasks({("t", 0): 400}, {("t", 0): 400, ("t", 1): 200})
    careless = planner(directory, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="starts at 20 already"):
        assert offsets_of(careless, {("t", 0): 400}, {("t", 0): 400, ("t", 1): 200}) == 180


def test_offsets_that_are_not_there_yet_are_waited_for(directory: Path) -> None:
    """A checkpoint may be newer than the high watermark in the directory: a broker's, as the connector reads it."""
    sleeps: list[float] = []
    write_checkpoints(directory, {("t", 0): 300, ("t", 1): 200})
    stream = planner(directory, sleeps)
    with pytest.raises(DataLost, match="t-0: the log ends at 300, and the query has read it up to 400"):
        stream.checked_ends({("t", 0): 400, ("t", 1): 200})
    assert sum(sleeps) == 2
    with pytest.raises(DataLost, match="t-0: records before 400 are asked for, and the log ends at 300"):
        stream.tasks({("t", 0): 100}, {("t", 0): 400})
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200})
    assert offsets_of(stream, {("t", 0): 100}, {("t", 0): 400}) == 300


def test_a_partition_that_has_gone_is_told(directory: Path) -> None:
    with pytest.raises(DataLost, match="t-2: the partition has gone, and the query has read it up to 5"):
        planner(directory).checked_ends({("t", 2): 5})


def test_another_topic_of_the_name_is_told(directory: Path) -> None:
    write_topic_id(LocalFiles(), f"{directory}/t-0", bytes(15) + b"\1")
    stream = planner(directory)
    stream.ends()
    write_topic_id(LocalFiles(), f"{directory}/t-0", bytes(15) + b"\2")
    with pytest.raises(DataLost, match="t-0: the topic was deleted and another one of its name was created"):
        stream.ends()


def test_nothing_is_planned_where_nothing_is_new(directory: Path) -> None:
    assert not planner(directory).tasks({("t", 0): 400}, {("t", 0): 400})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("endingOffsets", "latest", "endingOffsets is not possible in a streaming query"),
        ("table", "latest", "table=latest is not possible in a streaming query"),
        ("maxOffsetsPerTrigger", "0", "maxOffsetsPerTrigger: 0 is not a whole number above 0"),
        ("maxTriggerDelay", "soon", "maxTriggerDelay: soon is not a duration"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(directory: Path, option: str, value: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        parse_options({"path": str(directory), "subscribe": "t", option: value}, "stream")
