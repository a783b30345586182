"""One log.dir with several partitions: opened, served, closed, opened again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moldau.storage.directory.directory_checkpoints import RECREATED_MARKER_FILE, CheckpointWork
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.directory.previous_run import SERVING_EPOCH_FILE
from moldau.storage.files.local_files import LocalFiles
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import Operation
from tests.unit.storage.stories import NOW_MS, SMALL, append, batch, read_all

TOPIC_ID = bytes(range(1, 17))
OTHER_ID = bytes(range(2, 18))
UNIQUE = "0123456789abcdef0123456789abcdef"


def ignore(_: str) -> None:
    """No progress is shown."""


def load_all(directory: LogDirectory) -> None:
    for found in directory.partition_directories():
        directory.load_log(found.topic, found.partition, SMALL, NOW_MS, ignore)


def test_a_directory_comes_back_with_its_partitions_and_offsets(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "data")
    directory = LogDirectory.open(LocalFiles(), path, ignore)
    assert not directory.was_shut_down_cleanly and directory.partition_directories() == []
    for partition in range(3):
        log = directory.create_log("orders", partition, TOPIC_ID, SMALL, NOW_MS)
        for number in range(20 * partition):
            append(log, str(number))
    directory.logs["orders", 2].advance_log_start(9, 40)
    assert directory.close(NOW_MS, 77, {key: log.end_offset for key, log in directory.logs.items()}.get)

    again = LogDirectory.open(LocalFiles(), path, ignore)
    assert again.previous_run.clean_broker_epoch == 77
    assert again.high_watermarks == {("orders", 0): 0, ("orders", 1): 20, ("orders", 2): 40}
    load_all(again)
    assert {key: (log.log_start_offset, log.end_offset) for key, log in again.logs.items()} == {
        ("orders", 0): (0, 0),
        ("orders", 1): (0, 20),
        ("orders", 2): (9, 40),
    }
    assert all(log.topic_id == TOPIC_ID for log in again.logs.values())
    again.close(NOW_MS, 78)


def test_what_a_killed_process_left_to_the_page_cache_is_synced_before_anybody_reads_it() -> None:
    """If the topic asks for syncs: else a reader sees it, and the power takes it away."""
    disk = SimulatedDisk("a seed")
    config = replace(SMALL, flush_messages=1)
    log = LogDirectory.open(disk, "/data", ignore).create_log("orders", 0, TOPIC_ID, config, NOW_MS)
    append(log, "stored, never synced")
    disk.end_process()
    again = LogDirectory.open(disk, "/data", ignore).load_log("orders", 0, config, NOW_MS, ignore)
    assert again.recovery_point == again.end_offset == 1
    disk.crash()
    last = LogDirectory.open(disk, "/data", ignore).load_log("orders", 0, config, NOW_MS, ignore)
    assert read_all(last) == {0: "stored, never synced"}


def test_logs_that_are_closed_in_shares_are_as_durable() -> None:
    disk = SimulatedDisk("a seed")
    directory = LogDirectory.open(disk, "/data", ignore)
    for partition in range(4):
        append(directory.create_log("orders", partition, TOPIC_ID, SMALL, NOW_MS), f"of {partition}")
    directory.close_logs([("orders", 2), ("orders", 0)], NOW_MS)
    assert directory.close(NOW_MS, 77)
    disk.crash()
    again = LogDirectory.open(disk, "/data", ignore)
    assert again.previous_run.clean_broker_epoch == 77
    load_all(again)
    assert {key[1]: read_all(log)[0] for key, log in again.logs.items()} == {each: f"of {each}" for each in range(4)}


def test_an_error_while_a_share_is_closed_makes_the_end_unclean() -> None:
    disk = SimulatedDisk()
    directory = LogDirectory.open(disk, "/data", ignore)
    for partition in range(3):
        append(directory.create_log("t", partition, TOPIC_ID, SMALL, NOW_MS), "a")
    disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
    directory.close_logs([("t", 0)], NOW_MS)
    steps = disk.steps
    directory.close_logs([("t", 1)], NOW_MS)
    assert disk.steps == steps, "after an error nothing more is written"
    assert not directory.close(NOW_MS, 3)
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_only_one_process_serves_a_directory(tmp_path: Path) -> None:
    fs = LocalFiles()
    directory = LogDirectory.open(fs, str(tmp_path), ignore)
    with pytest.raises(BlockingIOError):
        LogDirectory.open(fs, str(tmp_path), ignore)
    directory.close(NOW_MS, 1)
    LogDirectory.open(fs, str(tmp_path), ignore).close(NOW_MS, 1)


def test_a_clean_shutdown_counts_once(tmp_path: Path) -> None:
    LogDirectory.open(LocalFiles(), str(tmp_path), ignore).close(NOW_MS, 1)
    fs = LocalFiles()
    first = LogDirectory.open(fs, str(tmp_path), ignore)
    assert first.was_shut_down_cleanly and not fs.exists(f"{tmp_path}/.kafka_cleanshutdown"), (
        "a crash from now on is a crash"
    )


def test_a_stop_is_not_clean_where_a_log_is_damaged(tmp_path: Path) -> None:
    """Of that one nothing was written out; the next start would have believed its checkpoint of leader epochs."""
    directory = LogDirectory.open(LocalFiles(), str(tmp_path), ignore)
    log = directory.create_log("orders", 0, TOPIC_ID, SMALL, NOW_MS)
    append(log, "sound")
    log.epochs.assign(5, log.end_offset)
    log.append_as_leader(batch("of another epoch"), 5, NOW_MS)
    directory.fence_damaged_log(log, 0)
    assert not directory.close(NOW_MS, 77)
    again = LogDirectory.open(LocalFiles(), str(tmp_path), ignore)
    assert not again.was_shut_down_cleanly
    load_all(again)
    assert [entry.epoch for entry in again.logs["orders", 0].epochs.entries][-1] == 5
    again.close(NOW_MS, 78)


def test_a_killed_process_lost_nothing_unless_the_machine_or_the_disk_failed() -> None:
    disk = SimulatedDisk("a seed")
    first = LogDirectory.open(disk, "/data", ignore, "monday")
    assert first.previous_broker_epoch is None
    first.record_serving_epoch(7)
    disk.end_process()
    for boot_id, epoch in ("monday", 7), ("tuesday", None), ("", None):
        next_one = LogDirectory.open(disk, "/data", ignore, boot_id)
        assert not next_one.was_shut_down_cleanly and next_one.previous_broker_epoch == epoch
        disk.end_process()
    last = LogDirectory.open(disk, "/data", ignore, "monday")
    last.take_offline(OSError("the disk refused a sync"))
    disk.end_process()
    assert LogDirectory.open(disk, "/data", ignore, "monday").previous_broker_epoch is None


def test_after_a_loss_of_power_a_log_is_committed_no_further_than_it_was_synced() -> None:
    disk = SimulatedDisk("a seed")
    first = LogDirectory.open(disk, "/data", ignore, "monday")
    first.record_serving_epoch(7)
    for index, synced_count in enumerate((2, 0)):
        log = first.create_log("orders", index, TOPIC_ID, SMALL, NOW_MS)
        for number in range(5):
            if number == synced_count:
                log.flush(NOW_MS)
            append(log, str(number))
    first.begin_checkpoint({("orders", 0): 4, ("orders", 1): 3}.get).write_files()
    disk.end_process()

    killed = LogDirectory.open(disk, "/data", ignore, "monday")
    assert killed.high_watermarks == {("orders", 0): 4, ("orders", 1): 3}
    disk.end_process()
    for boot_id in "tuesday", "monday":  # whoever comes after that hears of no loss, and must not believe more
        later = LogDirectory.open(disk, "/data", ignore, boot_id)
        assert later.high_watermarks == {("orders", 0): 2, ("orders", 1): 0}
        disk.end_process()


def checkpoint_of_a_former_log(directory: LogDirectory, key: tuple[str, int]) -> CheckpointWork:
    """That begins at 5, and is synced and committed up to 9."""
    former = directory.create_log(*key, TOPIC_ID, SMALL, NOW_MS)
    for number in range(9):
        append(former, str(number))
    former.flush(NOW_MS)
    former.advance_log_start(5, 9)
    return directory.begin_checkpoint({key: 9}.get)


def write_checkpoints(directory: LogDirectory, high_watermarks: dict[tuple[str, int], int] | None) -> None:
    work = directory.begin_checkpoint(None if high_watermarks is None else high_watermarks.get)
    work.write_files()
    directory.finish_checkpoint(work)


@pytest.mark.parametrize("is_under_way", [False, True])
def test_a_log_in_the_place_of_another_is_not_taken_for_that_one(is_under_way: bool) -> None:
    """Whose topic was deleted and made again, between two checkpoints."""
    disk, key = SimulatedDisk("a seed"), ("orders", 0)
    first = LogDirectory.open(disk, "/data", ignore, "monday")
    work = checkpoint_of_a_former_log(first, key)
    if not is_under_way:
        work.write_files()
        first.finish_checkpoint(work)
    first.delete_log(*key, UNIQUE)
    log = first.create_log(*key, OTHER_ID, SMALL, NOW_MS)
    if is_under_way:
        work.write_files()
        first.finish_checkpoint(work)
    for number in range(3):
        append(log, str(number))
    disk.end_process()

    killed = LogDirectory.open(disk, "/data", ignore, "monday")
    load_all(killed)
    log = killed.logs[key]
    assert (log.log_start_offset, log.recovery_point, log.end_offset) == (0, 0, 3)
    assert killed.high_watermarks.get(key, 0) == 0
    log.flush(NOW_MS)
    assert RECREATED_MARKER_FILE in disk.list_directory(log.directory)
    write_checkpoints(killed, None)
    assert RECREATED_MARKER_FILE not in disk.list_directory(log.directory) and log.directory_is_dirty
    disk.end_process()

    again = LogDirectory.open(disk, "/data", ignore, "monday")
    load_all(again)
    assert (again.logs[key].recovery_point, again.high_watermarks.get(key)) == (3, None)
    write_checkpoints(again, {key: 2})
    disk.end_process()

    last = LogDirectory.open(disk, "/data", ignore, "monday")
    load_all(last)
    assert (last.logs[key].recovery_point, last.high_watermarks[key]) == (3, 2)


def test_a_loss_of_power_leaves_a_new_log_new() -> None:
    """Its end was written, and never synced: it is torn, not damaged."""
    key = ("orders", 0)
    for seed in range(40):
        disk = SimulatedDisk(f"{seed}")
        first = LogDirectory.open(disk, "/data", ignore, "monday")
        work = checkpoint_of_a_former_log(first, key)
        work.write_files()
        first.finish_checkpoint(work)
        first.delete_log(*key, UNIQUE)
        log = first.create_log(*key, OTHER_ID, SMALL, NOW_MS)
        append(log, "synced")
        log.flush(NOW_MS)
        append(log, "not synced")
        disk.crash()
        again = LogDirectory.open(disk, "/data", ignore, "tuesday")
        load_all(again)
        log = again.logs[key]
        assert log.topic_id == OTHER_ID and log.end_offset in (1, 2)
        assert (log.log_start_offset, log.recovery_point, again.high_watermarks.get(key, 0)) == (0, 0, 0)


def test_segments_that_retention_deleted_stay_hidden_if_a_loss_of_power_brings_them_back() -> None:
    """The offset of the cleaner may be past them, although they were never cleaned."""
    config, first_offsets = replace(SMALL, cleanup_policy=("compact",)), set()
    for seed in range(8):
        disk = SimulatedDisk(f"{seed}")
        first = LogDirectory.open(disk, "/data", ignore, "monday")
        log = first.create_log("orders", 0, TOPIC_ID, config, NOW_MS)
        for number in range(2):
            append(log, str(number))
            log.roll(NOW_MS)
        log.flush(NOW_MS)
        log.advance_log_start(1, 2)
        assert log.delete_old_segments(NOW_MS, 2)
        log.first_dirty_offset = 1
        first.begin_checkpoint().write_files()
        disk.crash()

        again = LogDirectory.open(disk, "/data", ignore, "tuesday").load_log("orders", 0, config, NOW_MS, ignore)
        assert again.log_start_offset == again.first_dirty_offset == 1
        first_offsets.add(again.segments[0].base_offset)
    assert first_offsets == {0, 1}


def test_a_log_that_lost_all_behind_its_start_begins_there_after_the_next_loss_of_power_as_well() -> None:
    """In a directory without segments a start would take it for another log of that name, and use offsets again."""
    key, ends = ("orders", 0), set()
    for seed in range(20):
        disk = SimulatedDisk(f"{seed}")
        first = LogDirectory.open(disk, "/data", ignore, "monday")
        log = first.create_log(*key, TOPIC_ID, SMALL, NOW_MS)
        append(log, "synced")
        log.flush(NOW_MS)
        for _ in range(4):
            append(log, "not synced")
        log.advance_log_start(3, 5)
        work = first.begin_checkpoint()
        work.write_files()
        first.finish_checkpoint(work)
        disk.crash()
        for boot in ("tuesday", "wednesday"):
            again = LogDirectory.open(disk, "/data", ignore, boot).load_log(*key, SMALL, NOW_MS, ignore)
            assert again.log_start_offset == 3 <= again.end_offset, (seed, boot)
            ends.add(again.end_offset)
            disk.crash()
    assert {3, 5} <= ends


@pytest.mark.parametrize("is_at_base", [True, False])
def test_after_a_truncation_below_its_start_a_log_hides_nothing_that_was_appended_since(is_at_base: bool) -> None:
    """The checkpoint with the lowered recovery point is the last one before the crash."""
    key, end_offset = ("orders", 0), 0 if is_at_base else 1
    disk = SimulatedDisk("a seed")
    first = LogDirectory.open(disk, "/data", ignore, "monday")
    log = first.create_log(*key, TOPIC_ID, SMALL, NOW_MS)
    for number in range(5):
        append(log, f"old {number}")
    log.advance_log_start(3, 5)
    work = first.begin_checkpoint()
    work.write_files()
    first.finish_checkpoint(work)

    log.lower_recovery_point(end_offset)
    assert log.log_start_offset == 3, "consumers get what was deleted only if the truncation never comes"
    first.begin_checkpoint().write_files()
    log.truncate_to(end_offset, NOW_MS)
    append(log, "new")
    disk.end_process()

    again = LogDirectory.open(disk, "/data", ignore, "monday")
    load_all(again)
    log = again.logs[key]
    assert (log.log_start_offset, log.end_offset) == (end_offset, end_offset + 1)


def test_the_start_of_a_log_is_checkpointed_again_after_a_truncation_that_did_not_come_about() -> None:
    disk = SimulatedDisk("a seed")
    first = LogDirectory.open(disk, "/data", ignore, "monday")
    log = first.create_log("orders", 0, TOPIC_ID, SMALL, NOW_MS)
    for number in range(5):
        append(log, str(number))
    log.advance_log_start(3, 5)
    log.lower_recovery_point(1)
    log.advance_log_start(4, 5)
    first.begin_checkpoint().write_files()
    disk.end_process()

    again = LogDirectory.open(disk, "/data", ignore, "monday")
    load_all(again)
    assert again.logs["orders", 0].log_start_offset == 4


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"bootId":"monday"}', b'{"bootId":"monday","brokerEpoch":"7"}']
)
def test_a_life_that_was_not_written_whole_is_none(content: bytes) -> None:
    disk = SimulatedDisk("a seed")
    disk.make_directories("/data")
    file = disk.open(f"/data/{SERVING_EPOCH_FILE}", create=True)
    file.append([content])
    file.close()
    assert LogDirectory.open(disk, "/data", ignore, "monday").previous_broker_epoch is None


def test_a_deleted_partition_leaves_at_once_and_may_be_made_anew(tmp_path: Path) -> None:
    fs = LocalFiles()
    directory = LogDirectory.open(fs, str(tmp_path), ignore)
    append(directory.create_log("orders", 0, TOPIC_ID, SMALL, NOW_MS), "old")
    removed = directory.delete_log("orders", 0, UNIQUE)
    assert removed == f"{tmp_path}/orders-0.{UNIQUE}-delete" and fs.exists(removed)
    assert directory.partition_directories() == [] and directory.directories_to_remove() == [removed]
    anew = directory.create_log("orders", 0, TOPIC_ID[::-1], SMALL, NOW_MS)
    assert read_all(anew) == {} and append(anew, "new") == 0
    fs.remove_tree(removed)
    assert directory.directories_to_remove() == []


def test_a_partition_may_be_deleted_while_it_is_flushed(tmp_path: Path) -> None:
    directory = LogDirectory.open(LocalFiles(), str(tmp_path), ignore)
    deleted, lost = (directory.create_log("orders", partition, TOPIC_ID, SMALL, NOW_MS) for partition in range(2))
    works = []
    for log in (deleted, lost):
        append(log, "a")
        works.append(log.pending_flush())
    directory.delete_log("orders", 0, UNIQUE)
    LocalFiles().rename(lost.directory, str(tmp_path / "gone"))
    deleted_work, lost_work = works
    assert deleted_work is not None and lost_work is not None
    deleted_work.sync_files()
    with pytest.raises(FileNotFoundError):
        lost_work.sync_files()


def test_a_stray_partition_is_kept_and_not_served(tmp_path: Path) -> None:
    directory = LogDirectory.open(LocalFiles(), str(tmp_path), ignore)
    append(directory.create_log("orders", 0, TOPIC_ID, SMALL, NOW_MS), "whose?")
    directory.set_log_aside("orders", 0, UNIQUE, "-stray")
    assert directory.partition_directories() == [] and directory.directories_to_remove() == []
    assert [found.topic for found in directory.partition_directories("-stray")] == ["orders"]


def test_the_metadata_log_is_not_among_the_partitions(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "t-0").mkdir()
    directory = LogDirectory.open(LocalFiles(), str(tmp_path), ignore)
    assert [found.topic for found in directory.partition_directories()] == ["t"]


def test_a_damaged_checkpoint_is_reported_and_not_used(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n5\n")
    reports: list[str] = []
    directory = LogDirectory.open(LocalFiles(), str(tmp_path), reports.append)
    assert len(reports) == 1 and "recovery-point" in reports[0]
    directory.close(NOW_MS, 1)


def test_a_log_that_failed_makes_the_end_unclean() -> None:
    disk = SimulatedDisk()
    directory = LogDirectory.open(disk, "/data", ignore)
    good, bad = (directory.create_log("t", partition, TOPIC_ID, SMALL, NOW_MS) for partition in range(2))
    append(good, "a")
    append(bad, "a")
    bad.fail_log(OSError(5, "Input/output error"))
    assert not directory.close(NOW_MS, 3)
    assert directory.close_error is bad.failure is not None
    assert not disk.exists("/data/.kafka_cleanshutdown")
    again = LogDirectory.open(disk, "/data", ignore)
    load_all(again)
    assert [log.end_offset for log in again.logs.values()] == [1, 1]
