"""Files that are kept open: how many, whose turn it is to go, and what a log does without any descriptor left."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.storage.files.open_files import OpenFiles
from moldau.storage.log.log import Log
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.stories import NOW_MS, SMALL, append, batch, open_log, read_all


class Holder:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_used = False
        self.is_open = True
        self.error: OSError | None = None

    def close_if_unused(self) -> bool:
        if self.error is not None:
            raise self.error
        was_used, self.is_used = self.is_used, False
        self.is_open = was_used
        return not was_used


class Bench:
    def __init__(self, count_max: int) -> None:
        self.due: list[object] = []
        self.files = OpenFiles()
        self.files.limit_count(count_max, self.due.append)
        self.holders: list[Holder] = []

    def open(self, count: int) -> None:
        for _ in range(count):
            self.holders.append(Holder(str(len(self.holders))))
            self.files.note_opened(self.holders[-1])

    @property
    def still_open(self) -> list[str]:
        return [holder.name for holder in self.holders if holder.is_open]


def test_with_too_many_the_oldest_go_and_more_than_one_at_a_time() -> None:
    bench = Bench(8)
    bench.open(8)
    assert not bench.due
    bench.open(2)
    assert len(bench.due) == 1, "once for all who come in this turn"
    bench.files.close_unused_files()
    assert bench.still_open == ["3", "4", "5", "6", "7", "8", "9"] and len(bench.files) == 7
    assert bench.files.closed_for_limit_count == 3


def test_who_was_used_is_excused_once() -> None:
    bench = Bench(8)
    bench.open(9)
    for holder in bench.holders:
        holder.is_used = holder.name in "01"
    bench.files.close_unused_files()
    assert bench.still_open == ["0", "1", "4", "5", "6", "7", "8"]
    bench.open(3)
    bench.files.close_unused_files()
    assert bench.still_open == ["0", "1", "7", "8", "9", "10", "11"], "they went to the end of the line"


def test_where_all_are_used_some_go_all_the_same() -> None:
    bench = Bench(8)
    bench.open(9)
    for holder in bench.holders:
        holder.is_used = True
    bench.files.close_unused_files()
    assert len(bench.files) == 7


def test_who_cannot_give_back_keeps_it() -> None:
    bench = Bench(4)
    bench.open(5)
    for holder in bench.holders:
        holder.error = OSError(errno.EIO, "broken")
    bench.files.close_unused_files()
    assert len(bench.files) == 5 and bench.files.closed_for_limit_count == 0


def test_what_is_closed_does_not_count_and_without_a_bound_nothing_goes() -> None:
    bench = Bench(2)
    bench.open(2)
    bench.files.note_closed(bench.holders[0])
    bench.open(1)
    assert not bench.due and len(bench.files) == 2
    bench.files.remove_limit()
    bench.open(5)
    bench.files.close_unused_files()
    assert not bench.due and len(bench.files) == 0


def new_log(disk: SimulatedDisk, name: str = "t-0") -> Log:
    disk.make_directories("/d")
    disk.sync_directory("/")
    return open_log(disk, f"/d/{name}", SMALL)


def exhaust(disk: SimulatedDisk) -> None:
    disk.faults.descriptors_max = disk.open_count


def relax(disk: SimulatedDisk) -> None:
    disk.faults.descriptors_max = 1 << 20


def test_many_logs_work_with_few_open_files() -> None:
    disk = SimulatedDisk()
    due: list[Callable[[], None]] = []
    disk.open_files.limit_count(12, due.append)

    def next_turn() -> None:
        while due:
            due.pop()()
        assert len(disk.open_files) <= 12 and disk.open_count <= 12

    logs = [new_log(disk, f"t-{number}") for number in range(40)]
    next_turn()
    for turn in range(5):
        for log in logs:
            assert append(log, f"value {turn}") == turn
            next_turn()
    for log in logs:
        assert read_all(log) == {turn: f"value {turn}" for turn in range(5)}
        next_turn()
        log.flush(NOW_MS)
        next_turn()
    for log in logs:
        log.close(NOW_MS, clean=True)
    assert disk.open_count == len(disk.open_files) == 0


def test_without_descriptors_an_append_is_refused_and_nothing_is_lost() -> None:
    """At each place in the life of a log: also if a new segment is due, or an index entry."""
    disk = SimulatedDisk()
    log = new_log(disk)
    taken: list[str] = []
    refusals = 0
    for number in range(300):
        value = f"value {number}"
        if number % 3 == 0:
            log.release_files()
            log.release_files()
            exhaust(disk)
            disk.faults.descriptors_max += number % 4
        result = log.append_as_leader(batch(value, producer=(7, 0, len(taken))), 0, NOW_MS)
        relax(disk)
        if result.error is ErrorCode.NONE:
            taken.append(value)
        else:
            assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
            refusals += 1
        assert log.failure is None
    assert refusals > 20 and len(log.segments) > 3
    assert read_all(log) == dict(enumerate(taken))
    disk.end_process()
    again = open_log(disk, "/d/t-0")
    assert read_all(again) == dict(enumerate(taken))


def test_without_descriptors_a_read_is_refused_and_works_later() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(50):
        append(log, f"value {number}")
    told: list[int | None] = []
    log.on_shortage = lambda error: told.append(error.errno)
    log.release_files()
    log.release_files()
    exhaust(disk)
    assert log.read(0, 1000, end_offset=50, at_least_one=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is None and told == [errno.EMFILE]
    relax(disk)
    assert len(read_all(log)) == 50


@pytest.mark.parametrize("spare", range(4))
def test_a_flush_without_descriptors_is_put_off_and_forgets_nothing(spare: int) -> None:
    disk = SimulatedDisk(seed=spare)
    log = new_log(disk)
    for number in range(60):
        append(log, f"value {number}", leader_epoch=number // 20)
    log.release_files()
    log.release_files()
    exhaust(disk)
    disk.faults.descriptors_max += spare
    work = log.pending_flush()
    assert work is not None
    work.sync_files()
    log.finish_flush(work, NOW_MS)
    if spare == 0:
        assert work.is_postponed
    if work.is_postponed:
        assert log.failure is None and log.synced_end_offset == log.recovery_point == 0
    relax(disk)
    if work.is_postponed:
        log.flush(NOW_MS)
    assert log.recovery_point == log.synced_end_offset == 60
    disk.crash()
    again = open_log(disk, "/d/t-0", recovery_point=60)
    assert len(read_all(again)) == 60


def test_a_flush_that_must_not_wait_says_that_it_was_put_off() -> None:
    disk = SimulatedDisk()
    log = new_log(disk)
    append(log, "a")
    log.release_files()
    log.release_files()
    exhaust(disk)
    with pytest.raises(OSError) as refused:
        log.flush(NOW_MS)
    assert refused.value.errno == errno.EMFILE and log.failure is None


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("spare", range(5))
def test_a_segment_that_could_not_be_made_does_not_hide_what_goes_into_the_one_before_it(
    spare: int, is_clean: bool
) -> None:
    """Its .log file would begin in the midst of the records that came later, and the next start would cut these."""
    disk = SimulatedDisk()
    log = new_log(disk)
    while log.size < 600:
        append(log, "small")
    log.release_files()
    log.release_files()
    exhaust(disk)
    disk.faults.descriptors_max += spare
    large = log.append_as_leader(batch("large" * 60), 0, NOW_MS)
    relax(disk)
    assert log.failure is None and (large.error is ErrorCode.NONE) == (spare == 4)
    append(log, "small again")
    assert len(log.segments) == (2 if spare == 4 else 1)
    records = read_all(log)
    assert len(records) == log.end_offset
    if is_clean:
        log.close(NOW_MS, clean=True)
    disk.end_process()
    again = open_log(disk, "/d/t-0", clean=is_clean)
    assert read_all(again) == records and again.end_offset == log.end_offset


@pytest.mark.parametrize("spare", range(3))
def test_timestamps_that_could_not_be_read_are_read_at_the_next_look(spare: int) -> None:
    """Retention would take the time of the file for them, and a search by time would leave the segment out."""
    disk = SimulatedDisk()
    log = new_log(disk)
    for number in range(40):
        append(log, f"value {number}", timestamp=NOW_MS + number)
    log.close(NOW_MS, clean=True)
    again = open_log(disk, "/d/t-0", clean=True)
    exhaust(disk)
    disk.faults.descriptors_max += spare
    with pytest.raises(OSError):
        again.offset_of_max_timestamp()
    relax(disk)
    first, second = again.segments[:2]
    assert first.largest_timestamp() == NOW_MS + second.base_offset - 1
    found = again.offset_of_max_timestamp()
    assert found is not None and found.offset == 39
