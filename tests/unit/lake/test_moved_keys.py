"""Keys with records in several partitions, because their topic was given more of them: which record a row is, and what
`moldau lake verify` finds.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import moldau
from moldau.protocol.record_builder import Record, build_batch
from tests.support.lake_stage import START_MS, LakeStage
from tests.support.segments import EPOCH, write_checkpoints, write_partition

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:moldau. t. partitions")]

ANY_SIZE: Final = 64 << 20
UPSERT: Final = "upsert"
FOUND: Final = "the last of their key in the log, and not in the table"


class Change(NamedTuple):
    """A record of a key; its offset follows from those before it in its partition."""

    key: str
    partition: int
    at: int
    is_deletion: bool = False


class Row(NamedTuple):
    """The row of a key."""

    at: int
    partition: int
    offset: int


class Model:
    """A table by key, as docs/lake.md says that it is."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.ends: dict[int, int] = {}

    def round(self, changes: list[Change]) -> None:
        """Apply the records of a round: of each key the last one of each partition, and of these the latest."""
        last: dict[str, dict[int, tuple[Row, bool]]] = {}
        for each in changes:
            offset = self.ends.get(each.partition, 0)
            self.ends[each.partition] = offset + 1
            row = Row(each.at, each.partition, offset)
            last.setdefault(each.key, {})[each.partition] = row, each.is_deletion
        for key, found in last.items():
            row, is_deletion = max(found.values())
            known = self.rows.get(key)
            if known is not None and known.partition not in found and known > row:
                continue
            self.rows.pop(key, None)
            if not is_deletion:
                self.rows[key] = row

    def places(self) -> set[tuple[int, int]]:
        return {(row.partition, row.offset) for row in self.rows.values()}


def append(stage: LakeStage, changes: list[Change]) -> None:
    for partition in sorted({each.partition for each in changes}):
        here = [each for each in changes if each.partition == partition]
        stage.append(
            [Record(each.key.encode(), None if each.is_deletion else b"v", START_MS + each.at) for each in here],
            partition,
        )


CHANGES: Final = st.lists(
    st.builds(Change, st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 3), st.booleans()),
    min_size=1,
    max_size=8,
)


@given(st.lists(CHANGES, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_are_those_of_the_model_and_nothing_is_found(rounds: list[list[Change]]) -> None:
    with TemporaryDirectory() as directory:
        stage, model = LakeStage(Path(directory)), Model()
        for changes in rounds:
            append(stage, changes)
            model.round(changes)
            if stage.said:
                live = moldau.table(stage.warehouse, "t", live=str(stage.logs)).to_table()
                assert (
                    set(zip(live["partition"].to_pylist(), live["offset"].to_pylist(), strict=True)) == model.places()
                )
            stage.follow(mode=UPSERT, round_size=ANY_SIZE)
            assert set(stage.offsets()) == model.places() and len(stage.rows()) == len(model.rows)
            assert stage.verified().findings == []


@given(st.lists(CHANGES, min_size=1, max_size=2))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_is_found_however_a_topic_is_cut_into_rounds(appended: list[list[Change]]) -> None:
    with TemporaryDirectory() as directory:
        stage = LakeStage(Path(directory))
        for changes in appended:
            append(stage, changes)
            stage.follow(mode=UPSERT, round_size=1)
            assert stage.verified().findings == []


@pytest.mark.parametrize(
    "rounds",
    [
        # The second record of partition 0 is earlier than the first, and than that of partition 1.
        [[Change("a", 0, 9)], [Change("a", 0, 1), Change("a", 1, 2)]],
        [[Change("a", 0, 9)], [Change("a", 0, 1, is_deletion=True), Change("a", 1, 2)]],
        [[Change("a", 0, 9)], [Change("a", 0, 1), Change("a", 1, 2, is_deletion=True)]],
    ],
)
def test_a_row_does_not_outlive_a_later_record_of_its_partition(tmp_path: Path, rounds: list[list[Change]]) -> None:
    stage, model = LakeStage(tmp_path), Model()
    for changes in rounds:
        append(stage, changes)
        model.round(changes)
        stage.follow(mode=UPSERT)
    assert set(stage.offsets()) == model.places() and (0, 0) not in model.places()


@pytest.mark.parametrize(
    "rounds",
    [
        # One round would have the record of partition 1, two have that of partition 0.
        [[Change("a", 0, 9), Change("a", 1, 8)], [Change("a", 0, 1)]],
        # The delete is not remembered.
        [[Change("a", 1, 9, is_deletion=True)], [Change("a", 0, 5)]],
        [[Change("a", 0, 1), Change("a", 1, 9)], [Change("a", 0, 2, is_deletion=True)]],
    ],
)
@pytest.mark.parametrize("key_type", [None, "string"])
def test_a_key_that_moved_between_rounds_is_no_finding(
    tmp_path: Path, rounds: list[list[Change]], key_type: str | None
) -> None:
    stage = LakeStage(tmp_path)
    for changes in rounds:
        append(stage, changes)
        stage.follow(mode=UPSERT, **({} if key_type is None else {"key_type": key_type}))
        assert stage.verified().findings == []
    ((partition, _),) = stage.offsets()
    stage.table().delete(f"partition = {partition}")
    has_deletion = any(each.is_deletion for changes in rounds for each in changes)
    found = [each for each in stage.verified().findings if FOUND in each]
    assert len(found) == (not has_deletion), "a key without a deletion has a row"


def keep_alone(stage: LakeStage, partition: int, *kept: tuple[int, Record]) -> None:
    """Write a partition anew with these records alone, as the cleaner leaves it."""
    shutil.rmtree(stage.logs / f"t-{partition}")
    end = stage.ends["t", partition]
    batches, start = [], 0
    for offset, record in kept:
        if start < offset:
            batches.append(build_batch([], base_offset=start, partition_leader_epoch=EPOCH, last_offset=offset - 1))
        batches.append(build_batch([record], base_offset=offset, partition_leader_epoch=EPOCH))
        start = offset + 1
    if start < end:
        batches.append(build_batch([], base_offset=start, partition_leader_epoch=EPOCH, last_offset=end - 1))
    assert write_partition(stage.logs, batches, partition=partition) == end


def test_a_key_that_a_tombstone_deleted_which_the_log_has_no_more_is_counted_and_no_finding(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    append(stage, [Change("a", 0, 1), Change("b", 0, 1), Change("c", 0, 1)])
    append(stage, [Change("a", 1, 5, is_deletion=True), Change("b", 1, 5)])
    stage.follow(mode=UPSERT)
    assert sorted(stage.offsets()) == [(0, 2), (1, 1)] and stage.verified().findings == []
    keep_alone(stage, 1, (1, Record(b"b", b"v", START_MS + 5)))
    found = stage.verified()
    assert found.findings == [] and found.undecided_count == 1
    keep_alone(stage, 0, (1, Record(b"b", b"v", START_MS + 1)), (2, Record(b"c", b"v", START_MS + 1)))
    assert stage.verified().undecided_count == 0


def test_in_a_topic_without_moved_keys_a_compacted_partition_hides_no_missing_row(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    append(stage, [Change("a", 0, 1), Change("b", 1, 1), Change("c", 1, 1), Change("c", 1, 2)])
    stage.follow(mode=UPSERT)
    keep_alone(stage, 1, (0, Record(b"b", b"v", START_MS + 1)), (2, Record(b"c", b"v", START_MS + 2)))
    assert stage.verified().findings == []
    stage.table().delete("partition = 0")
    assert [each for each in stage.verified().findings if FOUND in each]


def test_a_row_whose_record_retention_has_deleted_is_still_that_of_its_key(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    append(stage, [Change("a", 0, 1), Change("a", 1, 5), Change("b", 1, 5)])
    stage.follow(mode=UPSERT)
    assert sorted(stage.offsets()) == [(1, 0), (1, 1)]
    shutil.rmtree(stage.logs / "t-1")
    write_partition(
        stage.logs,
        [build_batch([Record(b"b", b"v", START_MS + 5)], base_offset=1, partition_leader_epoch=EPOCH)],
        partition=1,
    )
    write_checkpoints(stage.logs, stage.ends, {("t", 1): 1})
    assert stage.verified().findings == []


def test_a_row_whose_tombstone_was_compacted_away_unread_is_found(tmp_path: Path) -> None:
    stage = LakeStage(tmp_path)
    append(stage, [Change("a", 0, 1), Change("b", 0, 1)])
    stage.follow(mode=UPSERT)
    append(stage, [Change("a", 0, 2, is_deletion=True), Change("c", 0, 3)])
    keep_alone(stage, 0, (1, Record(b"b", b"v", START_MS + 1)), (3, Record(b"c", b"v", START_MS + 3)))
    stage.follow(mode=UPSERT)
    (finding,) = stage.verified().findings
    assert finding.endswith("1 offsets are in the table, and not the last of their key in the log: 0:0")
