"""What a log does when its disk refuses: a full disk passes, anything else ends the log, a failed sync is final."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.partition_metadata import CorruptPartitionMetadata
from moldau.storage.files.log_paths import PARTITION_METADATA, SNAPSHOT_SUFFIX, offset_name
from moldau.storage.log.append import AppendOrigin
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.testing.simulation.disk import SimulatedDisk, SimulatedFile
from moldau.testing.simulation.disk_calls import DiskFaults, Operation, SimulatedCrash
from tests.unit.storage.stories import NOW_MS, SMALL, append, batch, open_log, read_all

TOPIC_ID = bytes(range(1, 17))


def new_log(disk: SimulatedDisk, config: LogConfig = SMALL) -> Log:
    disk.make_directories("/d")
    disk.sync_directory("/")
    return open_log(disk, "/d/t-0", config)


def refuse_next(disk: SimulatedDisk, operation: Operation, error: int = errno.EIO) -> None:
    disk.fail(operation, disk.counts[operation] + 1, error)


def test_a_write_error_ends_the_log_and_leaves_what_was_taken() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, "taken")
    refuse_next(disk, Operation.WRITE)
    assert log.append_as_leader(batch("lost"), 0, NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None and log.failure.errno == errno.EIO
    assert log.append_as_leader(batch("later"), 0, NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.append_as_follower(batch("x", base_offset=1), 0, NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.pending_flush() is None and log.end_offset == 1
    assert read_all(log) == {0: "taken"}


def test_a_failed_sync_is_never_tried_again() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, "a")
    refuse_next(disk, Operation.SYNC)
    with pytest.raises(OSError, match="Input/output"):
        log.flush(NOW_MS)
    syncs = disk.counts[Operation.SYNC]
    assert log.recovery_point == 0 and log.failure is not None
    with pytest.raises(OSError, match="Input/output"):
        log.flush(NOW_MS)
    assert log.pending_flush() is None
    log.close(NOW_MS, clean=True)
    assert disk.counts[Operation.SYNC] == syncs, "no sync after the one that failed"


def test_an_index_that_cannot_be_written_before_a_flush_ends_the_log() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, LogConfig(index_interval_bytes=150))
    for number in range(9):
        append(log, f"value {number}")
    refuse_next(disk, Operation.WRITE)
    with pytest.raises(OSError, match="Input/output"):
        log.flush(NOW_MS)
    assert log.failure is not None and log.pending_flush() is None


@pytest.mark.parametrize("call", [1, 2])
def test_a_topic_id_that_cannot_be_written_leaves_no_file(call: int) -> None:
    """The next start would take an empty file for a damaged one, and refuse the log."""
    disk = SimulatedDisk()
    log = new_log(disk)
    disk.fail(Operation.WRITE, disk.counts[Operation.WRITE] + call)
    with pytest.raises(OSError, match="Input/output"):
        log.assign_topic_id(TOPIC_ID)
    assert PARTITION_METADATA not in disk.list_directory("/d/t-0")


def test_a_sync_that_fails_in_its_thread_ends_the_log_as_well() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, "a")
    work = log.pending_flush()
    assert work is not None and log.pending_flush() is None, "one flush at a time"
    append(log, "b")
    refuse_next(disk, Operation.SYNC)
    with pytest.raises(OSError) as failed:
        work.sync_files()
    log.fail_flush(failed.value)
    assert log.failure is failed.value and log.recovery_point == 0
    assert log.append_as_leader(batch("c"), 0, NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_full_disk_refuses_and_the_log_goes_on_when_there_is_room() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    taken: list[str] = []
    for room in (400, 1000, 1000, 2500, 10_000):
        disk.faults.capacity_bytes = disk.used_bytes + room
        for _ in range(200):
            value = f"value {len(taken)}"
            result = log.append_as_leader(batch(value, producer=(7, 0, len(taken))), 0, NOW_MS)
            if result.error is not ErrorCode.NONE:
                break
            assert result.base_offset == len(taken)
            taken.append(value)
        assert result.error is ErrorCode.KAFKA_STORAGE_ERROR and log.failure is None
        assert read_all(log) == dict(enumerate(taken))
    disk.faults.capacity_bytes = 1 << 30
    append(log, "room again")
    log.close(NOW_MS, clean=True)
    again = open_log(disk, "/d/t-0", clean=True)
    assert read_all(again) == dict(enumerate([*taken, "room again"])) and len(again.segments) > 3


@pytest.mark.parametrize("room", range(0, 90, 10))
def test_a_producer_snapshot_that_a_full_disk_refuses_leaves_no_file(room: int) -> None:
    """After a truncation a start would take its name for an offset that the log had reached, and miss the records."""
    disk = SimulatedDisk(seed=1)
    log = new_log(disk)
    while log.size < 600:
        sent = batch("x", producer=(7, 0, log.end_offset))
        assert log.append_as_leader(sent, 0, NOW_MS).error is ErrorCode.NONE
    log.flush(NOW_MS)
    disk.faults.capacity_bytes = disk.used_bytes + room
    assert log.append_as_leader(batch("large" * 60), 0, NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    names = [name for name in disk.list_directory("/d/t-0") if name.endswith(SNAPSHOT_SUFFIX)]
    assert names == [offset_name(offset, SNAPSHOT_SUFFIX) for offset in log.snapshots.offsets]
    disk.faults.capacity_bytes = 1 << 30
    log.lower_recovery_point(1)
    log.truncate_to(1, NOW_MS)
    log.close(NOW_MS, clean=True)
    again = Log.open(
        disk,
        "/d/t-0",
        SMALL,
        recovery_point=1,
        high_watermark=1,
        clean_shutdown=True,
        closed_cleanly=True,
        now_ms=NOW_MS,
    )
    assert read_all(again) == {0: "x"}


@pytest.mark.parametrize("room", [0, 33, 34, 77, 78, 111])
@pytest.mark.parametrize("follows", [False, True])
def test_a_full_disk_refuses_the_marker_that_aborts_a_transaction(room: int, follows: bool) -> None:
    """The marker takes 78 bytes, and its entry in the transaction index 34, in a file of its own."""
    sent = batch("x", producer=(7, 0, 0), is_transactional=True)
    marker = end_transaction_marker(
        commits=False, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
    )
    whole = new_log(SimulatedDisk(), LogConfig())
    for each in (sent, marker):
        assert not whole.append_as_leader(each, 0, NOW_MS, origin=AppendOrigin.COORDINATOR).error
    fetched = whole.active.file().pread(whole.size, 0)

    disk = SimulatedDisk()
    log = new_log(disk, LogConfig())

    def take_marker() -> ErrorCode:
        if follows:
            return log.append_as_follower(fetched[len(sent) :] if log.end_offset else fetched, 0, NOW_MS).error
        return log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR).error

    if not follows:
        assert not log.append_as_leader(sent, 0, NOW_MS, origin=AppendOrigin.COORDINATOR).error
    disk.faults.capacity_bytes = disk.used_bytes + (len(sent) if follows else 0) + room
    for _ in range(2):
        assert take_marker() is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.failure is None and log.end_offset == 1
        assert log.last_stable_offset(1) == 0 and log.aborted_transactions(0, 2) == []
    disk.faults.capacity_bytes = 1 << 30
    assert take_marker() is ErrorCode.NONE
    aborted = [AbortedTransaction(7, 0, 1, 2)]
    assert log.last_stable_offset(2) == 2 and log.aborted_transactions(0, 2) == aborted
    disk.end_process()
    assert open_log(disk, "/d/t-0", LogConfig()).aborted_transactions(0, 2) == aborted


def test_a_kill_between_an_entry_of_the_transaction_index_and_its_marker_leaves_neither() -> None:
    for step in range(1, 5):
        disk = SimulatedDisk()
        log = new_log(disk, LogConfig())
        sent = batch("x", producer=(7, 0, 0), is_transactional=True)
        assert not log.append_as_leader(sent, 0, NOW_MS, origin=AppendOrigin.COORDINATOR).error
        marker = end_transaction_marker(
            commits=False, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
        )
        disk.crash_at_step = disk.steps + step
        with suppress(SimulatedCrash):
            log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
        disk.end_process()
        disk.power_on()
        again = open_log(disk, "/d/t-0", LogConfig())
        assert len(again.aborted_transactions(0, 2)) == again.end_offset - 1, step
        assert again.last_stable_offset(again.end_offset) == (0 if again.end_offset == 1 else 2)


@pytest.mark.parametrize("room", range(0, 200, 20))
def test_a_truncation_on_a_full_disk_is_carried_out(room: int) -> None:
    """The segment for what comes next is made when there is room; until then appends are refused."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(20):
        append(log, f"value {number}", leader_epoch=1)
    disk.faults.capacity_bytes = disk.used_bytes - log.active.size + room
    base_offset = log.active.base_offset
    assert log.truncate_to(base_offset + 2, NOW_MS) and log.failure is None
    log.append_as_leader(batch("refused, or not"), 2, NOW_MS)
    assert log.failure is None
    log.truncate_to(base_offset + 2, NOW_MS)
    disk.faults.capacity_bytes = 1 << 30
    append(log, "new", leader_epoch=2)
    assert log.active.base_offset == base_offset + 2, "a crash that restores what was cut must find where it ended"
    records = {**{offset: f"value {offset}" for offset in range(base_offset + 2)}, base_offset + 2: "new"}
    assert read_all(log) == records
    disk.end_process()
    assert read_all(open_log(disk, "/d/t-0")) == records


def test_a_flush_on_a_full_disk_makes_the_batches_durable_all_the_same() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(8):
        append(log, f"value {number}", leader_epoch=number // 4)
    disk.faults.capacity_bytes = disk.used_bytes
    work = log.pending_flush()
    assert work is not None
    work.sync_files()
    log.finish_flush(work, NOW_MS)
    assert log.failure is None and log.recovery_point == 0, "there was no room for the leader epochs"
    disk.crash()
    disk.faults.capacity_bytes = 1 << 30
    again = open_log(disk, "/d/t-0")
    assert len(read_all(again)) == 8 and again.epochs.latest_epoch == 1
    again.flush(NOW_MS)
    assert again.recovery_point == 8


def test_a_log_in_which_nothing_was_written_is_closed_without_a_sync() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, "a")
    log.close(NOW_MS, clean=True)
    again = open_log(disk, "/d/t-0", clean=True)
    again.epochs.assign(7, again.end_offset)  # a leader that never wrote
    syncs = disk.counts[Operation.SYNC]
    again.close(NOW_MS, clean=True)
    assert disk.counts[Operation.SYNC] == syncs


def test_an_error_while_rolling_ends_the_log_and_loses_nothing() -> None:
    for operation in (Operation.NAME, Operation.WRITE):
        for call in range(1, 5):
            disk = SimulatedDisk(seed=call)
            log = new_log(disk)
            for number in range(9):
                append(log, f"value {number}")
            disk.fail(operation, disk.counts[operation] + call)
            results = [log.append_as_leader(batch(f"value {n}"), 0, NOW_MS).error for n in range(9, 20)]
            assert log.failure is not None, (operation, call)
            assert results[-1] is ErrorCode.KAFKA_STORAGE_ERROR
            taken = 9 + results.count(ErrorCode.NONE)
            assert read_all(log) == {n: f"value {n}" for n in range(taken)}
            disk.end_process()
            again = open_log(disk, "/d/t-0")
            assert read_all(again) == {n: f"value {n}" for n in range(taken)}


def test_a_read_error_is_told_and_ends_the_log() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(30):
        append(log, f"value {number}")
    refuse_next(disk, Operation.READ)
    assert log.read(3, 100, end_offset=30, at_least_one=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None


def test_a_place_without_a_batch_is_told_and_fences_this_log_alone() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(30):
        append(log, f"value {number}")
    disk.open(f"/d/t-0/{0:020d}.log").pwrite(bytes(500), 100)
    told: list[str] = []
    log.on_damage = told.append
    log.on_failure = lambda error: told.append("the directory")
    assert log.read(3, 100, end_offset=30, at_least_one=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(told) == 1 and told[0].startswith("no batch at position")
    assert log.failure is not None
    assert read_all(open_log(disk, "/d/t-0")) == {0: "value 0"}, "after a crash without a recovery point it is cut"


def test_a_length_that_grew_hides_nothing_in_silence() -> None:
    """The batch would end past the end of the file: what lies behind it is neither read, nor cut, nor missing."""

    def rotten() -> Log:
        disk = SimulatedDisk()
        log = new_log(disk, LogConfig())
        for number in range(5):
            append(log, f"value {number}")
        disk.open(f"/d/t-0/{0:020d}.log").pwrite(b"\x7f", 8)
        return log

    log = rotten()
    assert log.read(3, 100, end_offset=5, at_least_one=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None
    log = rotten()
    with pytest.raises(MalformedMessage):
        log.truncate_to(3, NOW_MS)
    assert log.end_offset == 5


@pytest.mark.parametrize("seed", range(25))
def test_whatever_the_disk_refuses_nothing_that_was_promised_is_lost(seed: int) -> None:
    """Lives of a log on a disk that fails now and then; each ends by a kill or by the power going."""
    random = Random(seed)
    disk = SimulatedDisk(seed=seed)
    disk.make_directories("/d")
    disk.sync_directory("/")
    synced: list[str] = []
    promised: list[str] = []
    recovery_point = 0
    for life in range(12):
        disk.faults = DiskFaults()
        log = open_log(disk, "/d/t-0", recovery_point=recovery_point)
        records = read_all(log)
        assert list(records) == list(range(log.end_offset))
        assert [records[offset] for offset in range(len(promised))] == promised, (seed, life)
        taken = list(records.values())
        disk.faults.write_error = random.choice([0, 0, 0.02])
        disk.faults.sync_error = random.choice([0, 0, 0.1])
        disk.faults.name_error = random.choice([0, 0, 0.1])
        disk.faults.capacity_bytes = random.choice([1 << 30, disk.used_bytes + random.randrange(4000)])
        for number in range(random.randrange(60)):
            value = f"{life}.{number}"
            if log.append_as_leader(batch(value), life, NOW_MS).error is ErrorCode.NONE:
                taken.append(value)
            if random.random() < 0.1:
                try:
                    log.flush(NOW_MS)
                except OSError:
                    continue
                synced = list(taken)
                recovery_point = log.recovery_point
        # After a failed sync the page cache shows what the disk does not have: only the power makes a clean slate.
        if log.failure is None and random.random() < 0.5:
            disk.end_process()
            promised = list(taken)
        else:
            disk.crash()
            promised = list(synced)


def test_a_log_on_a_broken_directory_fails_alone() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    disk.make_directories("/e")
    other = open_log(disk, "/e/t-1")
    append(log, "a")
    append(other, "a")
    disk.break_directory("/d")
    assert log.append_as_leader(batch("b"), 0, NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert append(other, "b") == 1


def test_after_a_failed_sync_readers_see_what_the_disk_took() -> None:
    """So does the next process, which recovers what it finds in the page cache."""
    lost = 0
    for seed in range(40):
        disk = SimulatedDisk(seed)
        log = new_log(disk)
        append(log, "gone")
        refuse_next(disk, Operation.SYNC)
        with pytest.raises(OSError, match="Input/output"):
            log.flush(NOW_MS)
        disk.end_process()
        lost += not any(disk.read(f"/d/t-0/{0:020}.log"))
    assert lost > 5


@pytest.mark.parametrize(("config", "asks"), [(LogConfig(), False), (LogConfig(flush_messages=1), True)])
def test_recovery_reads_past_the_page_cache_where_the_disk_was_promised(
    config: LogConfig, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    append(new_log(disk, config), "value")
    disk.end_process()
    evicted: list[object] = []
    monkeypatch.setattr(SimulatedFile, "evict", lambda file: evicted.append(file))
    assert read_all(new_log(disk, config)) == {0: "value"}
    assert bool(evicted) == asks


@pytest.mark.parametrize("seed", range(20))
def test_the_topic_id_is_durable_with_the_first_flush(seed: int) -> None:
    """Also if a process before, or a failed sync, left it in the page cache alone: a start sets aside what has
    records and no topic id."""
    config = LogConfig(flush_messages=1)
    disk = SimulatedDisk(seed)
    new_log(disk, config).assign_topic_id(TOPIC_ID)
    if seed % 2:
        file = disk.open("/d/t-0/partition.metadata")
        refuse_next(disk, Operation.SYNC)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    disk.end_process()
    log = new_log(disk, config)
    log.assign_topic_id(TOPIC_ID)
    append(log, "promised")
    log.flush(NOW_MS)
    disk.crash()
    again = open_log(disk, "/d/t-0", config)
    assert again.topic_id == TOPIC_ID and read_all(again) == {0: "promised"}


def test_a_topic_id_that_was_synced_is_not_torn_but_damaged() -> None:
    """Removed, it would leave records without a topic id; the damaged replica is fetched again instead."""
    disk = SimulatedDisk()
    log = new_log(disk)
    log.assign_topic_id(TOPIC_ID)
    append(log, "a")
    log.flush(NOW_MS)
    disk.flip_bit("/d/t-0/partition.metadata", 0)
    disk.end_process()
    with pytest.raises(CorruptPartitionMetadata):
        open_log(disk, "/d/t-0", recovery_point=1)
