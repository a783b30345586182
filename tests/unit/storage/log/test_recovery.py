"""What recovery keeps, cuts and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moldau.protocol.batch_iterator import iterate_batches
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log import recovery
from moldau.storage.log.log import Log
from moldau.storage.log.recovery import CorruptLog
from moldau.storage.log_config import LogConfig
from tests.unit.storage.stories import NOW_MS, SMALL, append, batch, read_all

COUNT = 50
BATCH_SIZE = len(batch("value 10"))
"""Of the batches from the tenth on."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = Log.open(LocalFiles(), str(tmp_path / "t-0"), SMALL, now_ms=NOW_MS)
    for number in range(COUNT):
        sent = batch(f"value {number}", producer=(7, 0, number), timestamp=NOW_MS + number)
        assert log.append_as_leader(sent, number // 10, NOW_MS).error == 0
    log.close(NOW_MS, clean=True)
    return tmp_path / "t-0"


def recover(directory: Path, recovery_point: int = 0, config: LogConfig = SMALL, **known: Any) -> tuple[Log, list[str]]:
    """`known`: what the checkpoints say besides, as `Log.open` takes it."""
    reports: list[str] = []
    log = Log.open(
        LocalFiles(),
        str(directory),
        config,
        recovery_point=recovery_point,
        now_ms=NOW_MS,
        report=reports.append,
        **known,
    )
    return log, reports


def values(end: int) -> dict[int, str]:
    return {number: f"value {number}" for number in range(end)}


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_recovery_begins_at_a_snapshot_that_was_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads no header of a batch before the last index entry, and remembers each producer."""
    log = Log.open(LocalFiles(), str(tmp_path / "t-0"), LogConfig(), now_ms=NOW_MS)
    for number in range(200):
        sent = batch(f"value {number}", producer=(7, 0, number), timestamp=NOW_MS + number)
        assert log.append_as_leader(sent, 0, NOW_MS).error == 0
    log.write_producer_snapshot()
    log.flush(NOW_MS)
    assert log.recovery_point == 200 and log.snapshots.offsets == [200]
    log.close(NOW_MS, clean=False)
    replayed: list[int] = []
    monkeypatch.setattr(recovery, "replay_producers", lambda *arguments: replayed.append(1))
    again, reports = recover(tmp_path / "t-0", 200, LogConfig())
    assert (again.end_offset, reports, replayed) == (200, [], [])
    assert [known.last_offset for known in again.producers.entries[7].batches] == [195, 196, 197, 198, 199]


@pytest.mark.parametrize("recovery_point", [0, 1, 7, 23, 49, 50])
def test_recovery_makes_the_same_files_again(directory: Path, recovery_point: int) -> None:
    before = contents(directory)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    log, reports = recover(directory, recovery_point)
    assert read_all(log) == values(COUNT) and not reports
    log.close(NOW_MS, clean=True)
    after = contents(directory)
    assert {name: data for name, data in before.items() if not name.endswith(".snapshot")} == {
        name: data for name, data in after.items() if not name.endswith(".snapshot")
    }


@pytest.mark.parametrize("cut_size", [1, 16, 17, 40, 61, BATCH_SIZE - 1, BATCH_SIZE + 1])
def test_a_torn_tail_is_cut(directory: Path, cut_size: int) -> None:
    path = logs(directory)[-1]
    path.write_bytes(path.read_bytes()[:-cut_size])
    log, reports = recover(directory, 30)
    end = COUNT - 1 if cut_size < BATCH_SIZE else COUNT - 2
    assert log.end_offset == end and read_all(log) == values(end)
    assert len(reports) == 1 and "cut" in reports[0]
    assert log.append_as_leader(batch(f"value {end}", producer=(7, 0, end)), 4, NOW_MS).base_offset == end


def test_zeros_and_garbage_after_the_last_batch_are_cut(directory: Path) -> None:
    cut_short = batch("next", base_offset=COUNT)[:-1]
    for tail in (bytes(5), bytes(10_000), b"\xff" * 100, batch("goes back", base_offset=3), cut_short):
        path = logs(directory)[-1]
        whole = path.read_bytes()
        path.write_bytes(whole + tail)
        log, _ = recover(directory, COUNT)
        assert log.end_offset == COUNT and path.read_bytes() == whole


def test_damage_past_the_recovery_point_cuts_the_log_there(directory: Path) -> None:
    path = logs(directory)[2]
    data = bytearray(path.read_bytes())
    data[BATCH_SIZE + 30] ^= 1  # in the second batch of the third segment
    path.write_bytes(data)
    base_offset = int(path.stem)
    log, reports = recover(directory, base_offset)
    assert log.end_offset == base_offset + 1 and read_all(log) == values(base_offset + 1)
    assert len(logs(directory)) == 3 and any("removed the segments" in report for report in reports)
    assert not [name for name in contents(directory) if name.endswith(".snapshot") and int(name[:20]) > log.end_offset]
    assert log.epochs.latest_epoch == base_offset // 10


@pytest.mark.parametrize("below", [1, 20])
def test_damage_below_the_recovery_point_is_never_cut(directory: Path, below: int) -> None:
    path = logs(directory)[2]
    before = bytearray(path.read_bytes())
    before[BATCH_SIZE + 30] ^= 1
    path.write_bytes(before)
    recovery_point = int(path.stem) + 1 + below
    if below == 20:  # damage in a segment before that of the recovery point is met when the batch is read
        log, _ = recover(directory, recovery_point)
        assert log.end_offset == COUNT
        return
    with pytest.raises(CorruptLog, match="flushed"):
        recover(directory, recovery_point)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("field_position", "is_early"), [(43, False), (43, True), (53, False), (53, True)])
def test_no_producer_is_remembered_by_a_damaged_batch_below_the_recovery_point(
    tmp_path: Path, field_position: int, is_early: bool
) -> None:
    """By another id, or another sequence: a repeat of what the damage hides would be taken as new."""
    directory, config = tmp_path / "t-0", LogConfig(index_interval_bytes=150)
    log = Log.open(LocalFiles(), str(directory), config, now_ms=NOW_MS)
    for number in range(COUNT):
        sent = batch(f"value {number}", producer=(7, 0, number), timestamp=NOW_MS + number)
        assert log.append_as_leader(sent, 0, NOW_MS).error == 0
    checked_position = log.segments[-1].offset_index.last_position()
    log.close(NOW_MS, clean=True)
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()
    (path,) = logs(directory)
    damaged = bytearray(path.read_bytes())
    position = 0 if is_early else max(at for at, _ in iterate_batches(bytes(damaged)) if at < checked_position)
    damaged[position + field_position] ^= 4
    path.write_bytes(damaged)
    if is_early and field_position == 53:
        log, _ = recover(directory, COUNT, config)
        assert log.producers.entries[7].last_sequence == COUNT - 1, "no repeat is told by the sequence of the first one"
    else:
        with pytest.raises(
            CorruptLog, match=f"checksum mismatch at position {position}, in a part of the log that was flushed"
        ):
            recover(directory, COUNT, config)


def test_a_missing_end_of_a_segment_below_the_recovery_point_is_refused(directory: Path) -> None:
    path = logs(directory)[-2]
    path.write_bytes(path.read_bytes()[: -2 * BATCH_SIZE])
    with pytest.raises(CorruptLog, match="missing"):
        recover(directory, int(logs(directory)[-1].stem) - 1)


@pytest.mark.parametrize("recovery_point", [0, COUNT])
@pytest.mark.parametrize("cleaned_end_offset", [0, COUNT])
def test_a_gap_between_segments_is_kept_where_compaction_may_have_made_it(
    directory: Path, recovery_point: int, cleaned_end_offset: int
) -> None:
    """Past what was flushed and compacted it is what a loss of power took of a segment whose name was durable."""
    config = LogConfig(segment_bytes=900, index_interval_bytes=150, cleanup_policy=("compact",))
    *_, path, last = logs(directory)
    path.write_bytes(path.read_bytes()[:-BATCH_SIZE])
    missing = int(last.stem) - 1
    log, _ = recover(directory, recovery_point, config, cleaned_end_offset=cleaned_end_offset)
    if recovery_point or cleaned_end_offset:
        assert log.end_offset == COUNT and read_all(log).keys() == values(COUNT).keys() - {missing}
    else:
        assert log.end_offset == missing and read_all(log) == values(missing)


@pytest.mark.parametrize("left", [b"", bytes(100)], ids=["nothing", "zeros"])
def test_what_is_missing_before_the_start_of_the_log_is_no_damage(directory: Path, left: bytes) -> None:
    """A log that had lost everything went on at its start, in its first segment; a loss of power took that too."""
    start = 3  # in the first segment
    logs(directory)[0].write_bytes(left)
    with pytest.raises(CorruptLog, match="was flushed"):
        recover(directory, start + 1, log_start_offset=start)
    log, _ = recover(directory, start, log_start_offset=start)
    assert (log.log_start_offset, log.end_offset) == (start, start) and not read_all(log)


@pytest.mark.parametrize("is_clean", [True, False])
def test_epochs_before_the_first_that_is_known_are_read_from_the_batches(directory: Path, is_clean: bool) -> None:
    """The log had begun at offset 33, and a crash took that back."""
    for text, start in (("0\n2\n3 33\n4 40\n", 0), ("0\n2\n3 33\n4 40\n", 12), ("0\n0\n", 0), (None, 0)):
        checkpoint = directory / "leader-epoch-checkpoint"
        checkpoint.unlink() if text is None else checkpoint.write_text(text)
        log, _ = recover(directory, COUNT, log_start_offset=start, clean_shutdown=is_clean)
        assert log.epochs.entries == [(each, max(each * 10, start)) for each in range(start // 10, 5)]
        assert log.end_offset_for_epoch(2) == (2, 30)
        log.close(NOW_MS, clean=False)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "zeros", "garbage"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_made_again(directory: Path, suffix: str, damage: str, clean: bool) -> None:
    for path in (sorted(directory.glob(f"*{suffix}"))[-1], sorted(directory.glob(f"*{suffix}"))[0]):
        if path == sorted(directory.glob(f"*{suffix}"))[0] and damage not in ("missing", "zeros"):
            continue  # an index of an old segment is believed while it has whole entries
        before = path.read_bytes()
        match damage:
            case "missing":
                path.unlink()
            case "cut":
                path.write_bytes(before[:-3])
            case "zeros":
                path.write_bytes(before + bytes(1200))
            case "garbage":
                path.write_bytes(b"\x7f\xff" * 60 + bytes(120))
        log = Log.open(LocalFiles(), str(directory), SMALL, clean_shutdown=clean, recovery_point=0, now_ms=NOW_MS)
        assert log.end_offset == COUNT and read_all(log) == values(COUNT)
        found = log.offset_for_timestamp(NOW_MS + 33)
        assert found is not None and found.offset == 33
        log.close(NOW_MS, clean=True)


def test_a_damaged_epoch_checkpoint_is_read_from_the_batches(directory: Path) -> None:
    log, _ = recover(directory, COUNT)
    entries = log.epochs.entries
    for text in ("", "1\n0\n", "0\n2\n0 0\n", "0\n2\n1 5\n0 7\n", "0\n1\nx y\n"):
        (directory / "leader-epoch-checkpoint").write_text(text)
        for clean in (True, False):
            again = Log.open(
                LocalFiles(), str(directory), SMALL, clean_shutdown=clean, recovery_point=30, now_ms=NOW_MS
            )
            if text:
                assert again.epochs.entries == entries


def test_a_log_that_ends_before_its_start_is_emptied(directory: Path) -> None:
    reports: list[str] = []
    log = Log.open(LocalFiles(), str(directory), SMALL, log_start_offset=500, now_ms=NOW_MS, report=reports.append)
    assert (log.log_start_offset, log.end_offset, log.size) == (500, 500, 0) and "emptied" in reports[0]
    assert append(log, "next") == 500


def test_long_recoveries_say_how_far_they_are(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.storage.log.recovery.PROGRESS_INTERVAL_BYTES", 300)
    told: list[tuple[int, int]] = []
    log, reports = recover(directory, 0, checked=lambda checked, of: told.append((checked, of)))
    assert reports == [] and len(told) > 5
    assert told == sorted(told) and told[-1] == (log.size, log.size) and {of for _, of in told} == {log.size}


def test_the_files_of_interrupted_work_are_removed(directory: Path) -> None:
    for name in (f"{0:020d}.log.deleted", f"{77:020d}.index", f"{0:020d}.log.cleaned", "leader-epoch-checkpoint.tmp"):
        (directory / name).write_bytes(b"x")
    log, _ = recover(directory, COUNT)
    assert read_all(log) == values(COUNT)
    assert not [name for name in contents(directory) if name.endswith((".deleted", ".cleaned", ".tmp"))]
    assert not (directory / f"{77:020d}.index").exists()


def test_a_cleaned_segment_under_its_swap_name_takes_its_place(directory: Path) -> None:
    first, second = logs(directory)[:2]
    cleaned = first.read_bytes() + second.read_bytes()[BATCH_SIZE * 3 :]
    (directory / f"{first.name}.swap").write_bytes(cleaned)
    config = LogConfig(segment_bytes=900, index_interval_bytes=150, cleanup_policy=("compact",))
    log, _ = recover(directory, COUNT, config)
    missing = range(int(second.stem), int(second.stem) + 3)
    assert read_all(log) == {n: value for n, value in values(COUNT).items() if n not in missing}
    assert not second.exists() and first.read_bytes() == cleaned


def test_a_swap_of_an_incomplete_set_goes(directory: Path) -> None:
    first, second = logs(directory)[:2]
    (directory / f"{second.name}.swap").write_bytes(b"half")
    (directory / f"{first.name}.cleaned").write_bytes(b"half")
    log, _ = recover(directory, COUNT)
    assert read_all(log) == values(COUNT)
