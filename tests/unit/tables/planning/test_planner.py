"""Planning a read: which records, cut at which offsets, into which tasks."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, write_offsets
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.decoding.record_columns import record_batches
from moldau.tables.options.read_options import parse_options
from moldau.tables.origins.local_partition import LocalPartition
from moldau.tables.origins.port import Task
from moldau.tables.planning import planner
from moldau.tables.planning.planner import plan, tasks_of
from moldau.tables.refusals import DataLost, Refused
from tests.support.segments import mixed_batches, write_checkpoints, write_partition


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def planned(directory: Path, **options: str) -> list[Task]:
    return plan(LocalFiles(), parse_options({"path": str(directory), "subscribe": "t", **options}))


def offsets(tasks: list[Task]) -> list[tuple[str, int]]:
    """(partition, offset) of what the tasks read."""
    return [
        (f"{each.topic}-{each.partition}", offset)
        for task in tasks
        for each in task
        for batch in record_batches(each, ["offset"])
        for offset in batch.column("offset").to_pylist()
    ]


def numbered(name: str, *ranges: tuple[int, int]) -> list[tuple[str, int]]:
    return [(name, offset) for start, end in ranges for offset in range(start, end)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A topic of two partitions: 0 has 400 records in several segments, 1 has gaps of 10 after every 10 records."""
    assert write_partition(tmp_path, mixed_batches(40, 10)) == 400
    assert write_partition(tmp_path, mixed_batches(20, 10, gap=10), partition=1) == 390
    write_checkpoints(tmp_path, {("t", 0): 400, ("t", 1): 390})
    write_offsets(LocalFiles(), str(tmp_path), CLEANER_OFFSET_CHECKPOINT, {("t", 1): 390})
    assert len(list((tmp_path / "t-0").glob("*.log"))) > 3
    return tmp_path


GAPPED = [(start, start + 10) for start in range(0, 390, 20)]


def test_everything_is_read_once_and_in_order(directory: Path) -> None:
    assert offsets(planned(directory)) == numbered("t-0", (0, 400)) + numbered("t-1", *GAPPED)


def test_nothing_is_read_past_the_high_watermark(directory: Path) -> None:
    write_checkpoints(directory, {("t", 0): 215, ("t", 1): 0})
    assert offsets(planned(directory)) == numbered("t-0", (0, 215))


def test_nothing_is_read_before_the_log_start(directory: Path) -> None:
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 390}, {("t", 0): 123})
    assert offsets(planned(directory))[:277] == numbered("t-0", (123, 400))


def test_a_partition_without_a_checkpoint_is_not_read_and_that_is_said(directory: Path) -> None:
    write_checkpoints(directory, {("t", 0): 400})
    with pytest.warns(UserWarning, match="t-1: the broker has not written down its high watermark"):
        tasks = planned(directory)
    assert offsets(tasks) == numbered("t-0", (0, 400))


@pytest.mark.parametrize("is_torn", [False, True])
def test_files_that_end_before_the_high_watermark_have_lost_records(directory: Path, is_torn: bool) -> None:
    write_checkpoints(directory, {("t", 0): 410, ("t", 1): 0})
    if is_torn:
        newest = max((directory / "t-0").glob("*.log"))
        newest.write_bytes(newest.read_bytes() + mixed_batches(1, 10, first_offset=400)[0][:-1])
    with pytest.raises(DataLost, match=r"t-0: the files in .* end at 400, and the high watermark is 410"):
        planned(directory)
    with pytest.warns(UserWarning, match="end at 400"):
        tasks = planned(directory, failOnDataLoss="false")
    assert offsets(tasks) == numbered("t-0", (0, 400))


@pytest.mark.parametrize(("start", "end"), [(0, 400), (1, 399), (57, 58), (203, 317), (10, 20), (400, 400), (399, 400)])
def test_offsets_cut_inside_batches(directory: Path, start: int, end: int) -> None:
    bounds = {
        "startingOffsets": json.dumps({"t": {"0": start, "1": -2}}),
        "endingOffsets": json.dumps({"t": {"0": end, "1": 5}}),
    }
    assert offsets(planned(directory, **bounds)) == numbered("t-0", (start, end)) + numbered("t-1", (0, 5))


def test_offsets_in_gaps_are_passed_over(directory: Path) -> None:
    bounds = {
        "startingOffsets": '{"t": {"0": 400, "1": 13}}',
        "endingOffsets": '{"t": {"0": 400, "1": 55}}',
    }
    assert offsets(planned(directory, **bounds)) == numbered("t-1", (20, 30), (40, 50))


def test_offsets_name_every_partition_and_no_other(directory: Path) -> None:
    with pytest.raises(Refused, match="startingOffsets does not name t-1"):
        planned(directory, startingOffsets='{"t": {"0": 1}}')
    with pytest.raises(Refused, match="endingOffsets names t-2"):
        planned(directory, endingOffsets='{"t": {"0": 1, "1": 1, "2": 1}}')


def test_records_that_are_gone_are_an_error_or_a_warning(directory: Path) -> None:
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 390}, {("t", 0): 123})
    asked = {"startingOffsets": '{"t": {"0": 100, "1": 380}}', "endingOffsets": '{"t": {"0": 125, "1": -1}}'}
    with pytest.raises(DataLost, match="t-0: offset 100 is asked for, and the log starts at 123"):
        planned(directory, **asked)
    with pytest.warns(UserWarning, match="t-0: offset 100"):
        tasks = planned(directory, **asked, failOnDataLoss="false")
    assert offsets(tasks) == [("t-0", 123), ("t-0", 124), *numbered("t-1", (380, 390))]


def test_a_start_past_the_end_is_an_error_or_a_warning(directory: Path) -> None:
    """Offsets of a topic that was deleted and created again: nothing is read, and the user is told why."""
    asked = {"startingOffsets": '{"t": {"0": 401, "1": 380}}'}
    with pytest.raises(DataLost, match="t-0: offset 401 is asked for, and the log ends at 400"):
        planned(directory, **asked)
    with pytest.warns(UserWarning, match="the log ends at 400"):
        tasks = planned(directory, **asked, failOnDataLoss="false")
    assert offsets(tasks) == numbered("t-1", (380, 390))
    assert offsets(planned(directory, startingOffsets='{"t": {"0": 400, "1": 390}}')) == []


def test_records_past_the_high_watermark_are_an_error_or_a_warning(directory: Path) -> None:
    write_checkpoints(directory, {("t", 0): 30, ("t", 1): 0})
    asked = {"endingOffsets": '{"t": {"0": 40, "1": 0}}'}
    with pytest.raises(DataLost, match="t-0: records before 40 are asked for, and the high watermark is 30"):
        planned(directory, **asked)
    with pytest.warns(UserWarning, match="high watermark is 30"):
        tasks = planned(directory, **asked, failOnDataLoss="false")
    assert offsets(tasks) == numbered("t-0", (0, 30))


@pytest.mark.parametrize("tasks_min", [1, 2, 5, 20])
def test_finer_tasks_read_the_same(directory: Path, tasks_min: int) -> None:
    tasks = planned(directory, minPartitions=str(tasks_min))
    assert offsets(tasks) == offsets(planned(directory))
    assert tasks_min / 2 <= len(tasks) <= 2 * tasks_min


def test_a_task_has_no_more_offsets_than_allowed(directory: Path) -> None:
    tasks = planned(directory, maxRecordsPerPartition="37")
    assert offsets(tasks) == offsets(planned(directory))
    assert all(len(offsets([task])) <= 37 for task in tasks)
    assert len(tasks) >= 400 / 37


def test_partitions_are_chosen_by_assignment_and_by_pattern(directory: Path) -> None:
    path = str(directory)
    write_partition(directory, mixed_batches(1, 3), topic="__consumer_offsets")
    write_partition(directory, mixed_batches(1, 3), topic="tea")
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 390, ("__consumer_offsets", 0): 3, ("tea", 0): 3})

    def read(**options: str) -> list[tuple[str, int]]:
        return offsets(plan(LocalFiles(), parse_options({"path": path, **options})))

    assert read(assign='{"t": [1]}') == numbered("t-1", *GAPPED)
    assert read(subscribePattern="te.") == numbered("tea-0", (0, 3))
    assert {name for name, _ in read(subscribePattern=".*")} == {"t-0", "t-1", "tea-0"}
    assert read(subscribe="__consumer_offsets") == numbered("__consumer_offsets-0", (0, 3))
    with pytest.raises(Refused, match="t-7 is not in the places that are read"):
        read(assign='{"t": [7]}')


def test_what_is_not_there_is_refused(directory: Path) -> None:
    with pytest.raises(Refused, match="no partition of u is in the places that are read, only of t"):
        planned(directory, subscribe="u")
    with pytest.raises(Refused, match="is not a directory"):
        planned(directory / "nowhere")


def test_several_directories_are_one_broker(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    write_partition(other, mixed_batches(1, 10), partition=3)
    write_checkpoints(other, {("t", 3): 10})
    with pytest.warns(UserWarning, match="t: partitions 2 are not in the places that are read"):
        tasks = planned(directory, path=f"{directory},{other}")
    assert {name for name, _ in offsets(tasks)} == {"t-0", "t-1", "t-3"}
    write_partition(other, mixed_batches(1, 10), partition=1)
    with pytest.raises(Refused, match=r"t-1 is in .* both of an unknown broker"):
        planned(directory, path=f"{directory},{other}")


def test_what_is_being_deleted_is_no_partition(directory: Path) -> None:
    (directory / "t-1").rename(directory / f"t-1.{'0' * 32}-delete")
    assert offsets(planned(directory)) == numbered("t-0", (0, 400))


def test_planning_reads_no_more_than_a_few_batches(directory: Path) -> None:
    """The tasks come from the names, the sizes and the indexes; a batch is looked at only if a range ends inside."""
    for log in (directory / "t-0").glob("*.log"):
        log.write_bytes(bytes(log.stat().st_size))
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 390})
    starts = sorted(int(log.stem) for log in (directory / "t-0").glob("*.log"))
    bounds = {
        "startingOffsets": json.dumps({"t": {"0": starts[1], "1": 390}}),
        "endingOffsets": json.dumps({"t": {"0": starts[-2], "1": 390}}),
    }
    tasks = planned(directory, **bounds, minPartitions="8")
    assert sum(each.size for task in tasks for each in task) == sum(
        (directory / "t-0" / f"{start:020d}.log").stat().st_size for start in starts[1:-2]
    )


def test_a_small_read_is_cut_for_all_cores(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = planned(directory, subscribe="t")
    assert len(whole) == 1
    size = sum(each.size for each in whole[0])
    monkeypatch.setattr(planner, "TASK_SIZE_MIN", size // 8)
    monkeypatch.setattr(planner, "SMALL_READ_TASKS", 4)
    tasks = planned(directory, subscribe="t")
    assert 3 <= len(tasks) <= 4
    assert sum(each.size for task in tasks for each in task) == size
    monkeypatch.setattr(planner, "TASK_SIZE_MIN", size)
    assert len(planned(directory, subscribe="t")) == 1


def test_tasks_are_about_equally_large(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = planned(directory)
    size = sum(each.size for each in whole)
    monkeypatch.setattr(planner, "TASK_SIZE_MIN", 1)
    monkeypatch.setattr(planner, "SLICE_SIZE_MIN", 1)
    monkeypatch.setattr(planner, "SMALL_READ_TASKS", 4)
    tasks = planned(directory)
    assert len(tasks) == 4
    slice_size = max(each.size for task in tasks for each in task)
    assert all(abs(sum(each.size for each in task) - size / 4) <= slice_size for task in tasks)
    assert sum(each.size for task in tasks for each in task) == size


def test_tasks_of_nothing_are_none() -> None:
    assert tasks_of([], parse_options({"path": "/data", "subscribe": "t"})) == []


def test_what_changes_while_it_is_planned_is_planned_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = min((directory / "t-0").glob("*.log"))
    looked: list[LocalPartition] = []
    has_changed = LocalPartition.has_changed

    def deleting(partition: LocalPartition) -> bool:
        if not looked:
            first.rename(f"{first}.deleted")
        looked.append(partition)
        return has_changed(partition)

    monkeypatch.setattr(LocalPartition, "has_changed", deleting)
    tasks = planned(directory, subscribe="t")
    assert offsets(tasks)[0] == ("t-0", int(sorted(each.stem for each in (directory / "t-0").glob("*.log"))[0]))
    assert {each.partition for task in tasks for each in task} == {0, 1}


def test_what_changes_all_the_time_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPartition, "has_changed", lambda _: True)
    with pytest.raises(Refused, match="changed 10 times"):
        planned(directory)
