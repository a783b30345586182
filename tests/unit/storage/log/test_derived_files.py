"""A log after each kind of damage to each file that follows from its batches, or that says how far it goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.storage.checkpoints.text_checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    encode_offsets,
)
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log.recovery import CorruptLog
from moldau.storage.segment.transaction_index import AbortedTransaction
from tests.unit.storage.stories import NOW_MS, SMALL, batch, read_all

pytestmark = pytest.mark.slow

COUNT = 60
ABORTING = 9
"""The producer whose transactions are aborted, one in a rolled segment and one in the active one."""
KEY = ("t", 0)


def write(directory: Path) -> Log:
    """60 batches of producer 7 over several segments and three leader epochs, and two aborted transactions."""
    log = Log.open(LocalFiles(), str(directory), SMALL, now_ms=NOW_MS)
    aborts = 0
    for number in range(COUNT):
        sent = batch(f"value {number}", producer=(7, 0, number), timestamp=NOW_MS + number)
        assert log.append_as_leader(sent, number // 20, NOW_MS).error is ErrorCode.NONE
        if number in (5, 55):
            data = batch("hidden", producer=(ABORTING, 0, aborts), is_transactional=True)
            assert log.append_as_leader(data, number // 20, NOW_MS).error is ErrorCode.NONE
            marker = end_transaction_marker(
                commits=False, producer_id=ABORTING, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
            )
            ended = log.append_as_leader(marker, number // 20, NOW_MS, origin=AppendOrigin.COORDINATOR)
            assert ended.error is ErrorCode.NONE
            aborts += 1
    return log


Facts = tuple[int, dict[int, str], list[AbortedTransaction], list[tuple[int, int]], dict[int, int]]


def facts(log: Log) -> Facts:
    """What clients and replicas learn of a log."""
    sequences = {producer: entry.last_sequence for producer, entry in log.producers.entries.items()}
    return log.end_offset, read_all(log), log.aborted_transactions(0, 1 << 40), [*log.epochs.entries], sequences


@pytest.fixture
def node(tmp_path: Path) -> tuple[Path, Facts]:
    """A log directory with one partition, stopped cleanly."""
    log = write(tmp_path / "t-0")
    known = facts(log)
    assert len(log.segments) > 3 and log.active.transaction_index.entries()
    log.close(NOW_MS, clean=True)
    for name, offset in (
        (RECOVERY_POINT_CHECKPOINT, known[0]),
        (HIGH_WATERMARK_CHECKPOINT, known[0]),
        (LOG_START_CHECKPOINT, 0),
    ):
        (tmp_path / name).write_bytes(encode_offsets({KEY: offset}))
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    (tmp_path / ".moldau-life").write_text('{"version":0,"brokerEpoch":5,"bootId":"a boot"}')
    return tmp_path, known


def start(path: Path, *, is_clean: bool, is_only: bool = False, boot: str = "a boot") -> tuple[Log, list[str]]:
    """The log as a node opens it, in the same boot of the machine or in another one, and what the node says."""
    if not is_clean:
        (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    told: list[str] = []
    directory = LogDirectory.open(LocalFiles(), str(path), told.append, boot)
    try:
        log = directory.load_log(*KEY, SMALL, NOW_MS, told.append, is_only_replica=is_only)
    finally:
        directory.close_after_failure()
    return log, told


Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "garbage": lambda path: path.write_bytes(b"\x01" * 680),
    "negative": lambda path: path.write_bytes(b"\xff" * 680),
    "huge": lambda path: path.write_bytes(b"\x7f\xff" * 340),
}


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("slot", [0, -1], ids=["rolled", "active"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_file_that_follows_from_the_batches_changes_nothing(
    node: tuple[Path, Facts], suffix: str, damage: str, slot: int, is_clean: bool
) -> None:
    path, known = node
    DAMAGES[damage](sorted((path / "t-0").glob(f"*{suffix}"))[slot])
    log, _ = start(path, is_clean=is_clean)
    if suffix == ".txnindex" and damage in ("missing", "empty") and (is_clean or slot == 0):
        # As in a segment without aborted transactions: Apache Kafka 4.3.1 does not miss it either.
        aborted = known[2][1:] if slot == 0 else known[2][:-1]
        assert facts(log) == (*known[:2], aborted, *known[3:])
        return
    assert facts(log) == known
    found = log.offset_for_timestamp(NOW_MS + 33)
    assert found is not None and found.timestamp == NOW_MS + 33
    assert {each.largest_timestamp() - NOW_MS for each in log.segments[1:]} <= set(range(COUNT + 1))


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("pattern", ["*index", "*.index", "*.timeindex", "*.snapshot", "*[xt]"])
def test_all_files_of_a_kind_may_be_deleted(node: tuple[Path, Facts], pattern: str, is_clean: bool) -> None:
    """Operators delete the indexes so that they are made again, and the transaction index with them."""
    path, known = node
    for each in (path / "t-0").glob(pattern):
        if each.suffix != ".log" and each.name[0] == "0":
            each.unlink()
    log, _ = start(path, is_clean=is_clean)
    assert facts(log) == known
    log.close(NOW_MS, clean=True)
    assert facts(start(path, is_clean=False)[0])[:4] == known[:4]


def test_the_indexes_of_another_segment_are_not_believed(node: tuple[Path, Facts]) -> None:
    path, known = node
    for suffix in (".index", ".timeindex", ".txnindex"):
        first, *_, last = sorted((path / "t-0").glob(f"*{suffix}"))
        first_bytes, last_bytes = first.read_bytes(), last.read_bytes()
        first.write_bytes(last_bytes)
        last.write_bytes(first_bytes)
    assert facts(start(path, is_clean=True)[0]) == known


CHECKPOINTS = [b"0\n1\nt 0 -5\n", b"0\n1\nt 0 99999\n", b"0\n1\nt 0 0\n", b"0\n1\nt 0 17\n", b"junk", b"", b"\0\0\0"]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("content", [*CHECKPOINTS, b"0\n1\nt 0 %d\n" % (1 << 70), None])
@pytest.mark.parametrize(
    "name",
    [
        RECOVERY_POINT_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        LOG_START_CHECKPOINT,
        "cleaner-offset-checkpoint",
        "t-0/leader-epoch-checkpoint",
    ],
)
def test_no_checkpoint_removes_records(
    node: tuple[Path, Facts], name: str, content: bytes | None, is_clean: bool
) -> None:
    path, known = node
    if content is None:
        (path / name).unlink(missing_ok=True)
    else:
        (path / name).write_bytes(content.replace(b"t 0 ", b"99 ") if name.startswith("t-0") else content)
    log, _ = start(path, is_clean=is_clean)
    start_offset = log.log_start_offset
    assert start_offset == (17 if name == LOG_START_CHECKPOINT and content and b" 17" in content else 0)
    assert (log.end_offset, log.producers.entries[7].last_sequence) == (known[0], COUNT - 1)
    assert read_all(log, start=start_offset) == {at: each for at, each in known[1].items() if at >= start_offset}
    if not start_offset:
        assert [*log.epochs.entries] == known[3]


@pytest.mark.parametrize("point", [b"-5", b"x", b"0"])
@pytest.mark.parametrize("boot", ["a boot", "another boot"])
def test_a_recovery_stops_where_whole_batches_follow_a_damage(
    node: tuple[Path, Facts], point: bytes, boot: str
) -> None:
    """Nothing that a killed process wrote is lost, and a recovery point that cannot be read says nothing."""
    path, _ = node
    (path / RECOVERY_POINT_CHECKPOINT).write_bytes(b"0\n1\nt 0 " + point + b"\n")
    damaged = sorted((path / "t-0").glob("*.log"))[1]
    content = bytearray(damaged.read_bytes())
    content[30] ^= 1
    damaged.write_bytes(content)
    if boot == "another boot" and point == b"0":
        log, told = start(path, is_clean=False, boot=boot)
        assert log.end_offset == int(damaged.stem) and any("cut" in each and "bytes" in each for each in told)
        return
    before = {each.name: each.read_bytes() for each in (path / "t-0").glob("*.log")}
    with pytest.raises(CorruptLog, match=f"{damaged.name}: .*whole batches follow from offset {int(damaged.stem) + 1}"):
        start(path, is_clean=False, boot=boot)
    assert {each.name: each.read_bytes() for each in (path / "t-0").glob("*.log")} == before


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("lost", ["bytes", "batches", "all", "segment"])
def test_the_only_replica_goes_on_behind_a_lost_end(node: tuple[Path, Facts], lost: str, is_clean: bool) -> None:
    """No offset is used twice; a replica among several is fetched again from another one. A part of a flushed batch is
    never cut after a crash.
    """
    path, known = node
    last = sorted((path / "t-0").glob("*.log"))[-1]
    size = len(batch("value 59"))
    match lost:
        case "segment":
            last.unlink()
        case _:
            last.write_bytes(last.read_bytes()[: {"bytes": -5, "batches": -2 * size, "all": 0}[lost]])
    end = int(last.stem) if lost in ("all", "segment") else known[0] - (1 if lost == "bytes" else 2)
    with pytest.raises(CorruptLog):
        start(path, is_clean=is_clean)
    if is_clean:
        (path / ".kafka_cleanshutdown").write_text("")
    elif lost == "bytes":
        left = last.read_bytes()
        with pytest.raises(CorruptLog):
            start(path, is_clean=False, is_only=True)
        assert last.read_bytes() == left
        return
    log, told = start(path, is_clean=is_clean, is_only=True)
    assert read_all(log) == {at: each for at, each in known[1].items() if at < end}
    assert any(f"from offset {end} to {known[0] - 1} are gone" in each for each in told), told
    assert log.append_as_leader(batch("next"), 2, NOW_MS).base_offset == known[0]
    log.close(NOW_MS, clean=False)
    again, _ = start(path, is_clean=False, is_only=True)
    assert read_all(again)[known[0]] == "next" and again.end_offset == known[0] + 1


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_segment_that_is_gone_is_told(node: tuple[Path, Facts], how: str) -> None:
    path, known = node
    gone, following = sorted((path / "t-0").glob("*.log"))[1:3]
    DAMAGES[how](gone)
    log, told = start(path, is_clean=True)
    start_offset, end_offset = int(gone.stem), int(following.stem)
    assert any(
        f"{gone.name} is {how}" in each and f"{start_offset} to {end_offset - 1} are gone" in each for each in told
    )
    assert read_all(log).keys() == {at for at in known[1] if not start_offset <= at < end_offset}


def test_a_file_named_like_a_partition_is_no_log(node: tuple[Path, Facts]) -> None:
    path, _ = node
    (path / "backup-20261128").write_text("x")
    told: list[str] = []
    directory = LogDirectory.open(LocalFiles(), str(path), told.append)
    assert [each.topic for each in directory.partition_directories(report=told.append)] == ["t"]
    assert told == [f"{path}/backup-20261128 is a file and no directory of a partition: it is ignored"]
    directory.close_after_failure()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("name", ["abc.log", "README", "notes.index", "old.log.swap", "x.cleaned", "y.snapshot"])
def test_a_foreign_file_beside_the_segments_stays_and_changes_nothing(
    node: tuple[Path, Facts], name: str, is_clean: bool
) -> None:
    path, known = node
    foreign = path / "t-0" / name
    foreign.write_bytes(b"x")
    log, told = start(path, is_clean=is_clean)
    assert facts(log) == known and foreign.read_bytes() == b"x"
    assert bool(told) == (name != "README") and all(str(foreign) in each for each in told)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_a_log_without_batches_has_no_indexes_to_miss(tmp_path: Path, is_clean: bool) -> None:
    told: list[str] = []
    for suffix in (None, ".index", ".timeindex"):
        if suffix is not None:
            (tmp_path / "new-0" / f"{0:020}{suffix}").unlink()
        log = Log.open(
            LocalFiles(), str(tmp_path / "new-0"), SMALL, now_ms=NOW_MS, clean_shutdown=is_clean, report=told.append
        )
        assert log.end_offset == 0
        log.close(NOW_MS, clean=True)
    assert told == []
