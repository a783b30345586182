"""A snapshot ends a query where it ended; what changed below it is an error, what was added is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.broker.cli import main
from moldau.storage.checkpoints.leader_epochs import EpochStart, LeaderEpochs
from moldau.storage.checkpoints.meta_properties import MetaProperties, write_meta_properties
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.tables.options.read_options import parse_options
from moldau.tables.planning.planner import Planner
from moldau.tables.planning.snapshot import Snapshot
from moldau.tables.refusals import ClusterMismatch, DataLost, Refused, SnapshotChanged
from tests.support.segments import EPOCH, SMALL_SEGMENTS, mixed_batches, write_checkpoints, write_partition
from tests.support.tables import rows_of
from tests.support.transactional_log import TransactionalLog


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_checkpoints(tmp_path, {("t", 0): 400})
    return tmp_path


def taken(directory: Path) -> Snapshot:
    return Planner(LocalFiles(), parse_options({"path": str(directory), "subscribe": "t"})).snapshot()


def offsets(
    directory: Path, snapshot: Snapshot, options: dict[str, str] | None = None, *, with_segments: bool = False
) -> list[object]:
    given = {"subscribe": "t", "snapshot": snapshot.as_json(with_segments=with_segments), **(options or {})}
    return [row["offset"] for row in rows_of(directory, **given)]


def append(directory: Path, count: int) -> None:
    log = Log.open(LocalFiles(), f"{directory}/t-0", SMALL_SEGMENTS, clean_shutdown=True, now_ms=0)
    for batch in mixed_batches(count, 10, first_offset=log.end_offset):
        assert not log.append_as_follower(batch, 0, 0).error
    write_checkpoints(directory, {("t", 0): log.end_offset})
    log.close(0, clean=True)


def test_a_query_ends_where_the_snapshot_did(directory: Path) -> None:
    snapshot = taken(directory)
    append(directory, 30)
    assert offsets(directory, snapshot) == list(range(400))
    assert len(rows_of(directory, subscribe="t")) == 700
    assert taken(directory) != snapshot


def test_it_is_small_however_many_segments_there_are(directory: Path) -> None:
    append(directory, 400)
    snapshot = taken(directory)
    assert snapshot.partitions["t", 0].segments_count > 50
    assert len(snapshot.as_json()) < 300
    described = json.loads(snapshot.as_json(with_segments=True))["topics"]["t"]["0"]
    assert sum(size for _, size in described["segment_list"]) == described["bytes"]


def test_a_segment_that_compaction_replaced_is_an_error(directory: Path) -> None:
    snapshot = taken(directory)
    third = sorted((directory / "t-0").glob("*.log"))[2]
    third.write_bytes(third.read_bytes()[:-1000])
    with pytest.raises(SnapshotChanged, match=r"t-0: not as in the snapshot: .* segments of"):
        offsets(directory, snapshot)
    with pytest.raises(SnapshotChanged, match=f"the segment at offset {int(third.stem)}"):
        offsets(directory, snapshot, with_segments=True)


def test_segments_before_a_query_may_go_where_the_snapshot_lists_them(directory: Path) -> None:
    snapshot = taken(directory)
    files = sorted((directory / "t-0").glob("*.log"))
    files[0].unlink()
    start = int(files[1].stem)
    LeaderEpochs(LocalFiles(), f"{directory}/t-0", [EpochStart(EPOCH, start)]).write()  # As retention does.
    asked = {"startingOffsets": json.dumps({"t": {"0": start}})}
    assert offsets(directory, snapshot, asked, with_segments=True) == list(range(start, 400))
    with pytest.raises(SnapshotChanged):
        offsets(directory, snapshot, asked)
    with pytest.raises(SnapshotChanged, match=f"it began at offset 0, and begins at {start} now"):
        offsets(directory, snapshot, with_segments=True)


def test_read_committed_ends_at_its_last_stable_offset(tmp_path: Path) -> None:
    log = TransactionalLog()
    log.append(3)
    log.append(2, producer_id=1)
    write_partition(tmp_path, [each.data for each in log.batches])
    write_checkpoints(tmp_path, {("t", 0): 5})
    snapshot = taken(tmp_path)
    assert snapshot.partitions["t", 0].last_stable_offset == 3
    assert offsets(tmp_path, snapshot, {"kafka.isolation.level": "read_committed"}) == [0, 1, 2]


def test_offsets_past_the_snapshot_are_not_in_it(directory: Path) -> None:
    snapshot = taken(directory)
    append(directory, 10)
    with pytest.raises(DataLost, match="the high watermark of the snapshot is 400"):
        offsets(directory, snapshot, {"endingOffsets": '{"t": {"0": 450}}'})


def test_what_is_no_snapshot_of_these_files_is_refused(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    snapshot = taken(directory)
    write_partition(directory, [], topic="u")
    with pytest.raises(Refused, match="snapshot: u-0 is not in it"):
        offsets(directory, snapshot, {"subscribe": "u"})
    for text in (
        "{}",
        '{"format_version": 1}',
        '{"format_version": 2}',
        "/nowhere",
        '{"format_version": 1, "topics": 5}',
    ):
        with pytest.raises(Refused, match="snapshot: "):
            rows_of(directory, subscribe="t", snapshot=text)
    write_meta_properties(LocalFiles(), str(directory), MetaProperties("A" * 22, 1, None))
    other = Snapshot("B" * 22, snapshot.partitions)
    with pytest.raises(ClusterMismatch, match="it is of cluster B"):
        offsets(directory, other)


def test_the_command_prints_it(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "snapshot", "--path", str(directory), "--topic", "t"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(taken(directory).as_json())
    saved = directory / "snapshot.json"
    assert main(["spark", "snapshot", "--path", str(directory), "--segments", str(saved)]) == 0
    assert "segment_list" in json.loads(saved.read_text())["topics"]["t"]["0"]
    assert [row["offset"] for row in rows_of(directory, subscribe="t", snapshot=str(saved))] == list(range(400))
