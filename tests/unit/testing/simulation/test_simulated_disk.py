"""The simulated disk behaves as the machine's while nothing fails, and loses what a real one may lose when it does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest

from moldau.storage.files.local_files import LocalFiles
from moldau.storage.files.port import FileSystem, write_atomically
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.disk_calls import Operation, SimulatedCrash
from moldau.testing.simulation.pages import PENDING_WRITES_MAX, SECTOR_SIZE

SEEDS = range(60)


def disk_with_log(seed: int, content: bytes = b"") -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directories("/data")
    file = disk.open("/data/log", create=True)
    if content:
        file.append([content])
    file.sync()
    file.close()
    disk.sync_directory("/")
    disk.sync_directory("/data")
    return disk


def outcomes(after: Callable[[SimulatedDisk], None]) -> set[bytes]:
    """What a crash makes of `/data/log` over all seeds."""
    seen = set()
    for seed in SEEDS:
        disk = disk_with_log(seed, b"base")
        after(disk)
        disk.crash()
        seen.add(disk.read("/data/log"))
    return seen


def random_calls(fs: FileSystem, root: str, random: Random) -> list[object]:
    """A few hundred calls of the port: what each returned or raised."""
    fs.make_directories(root)
    files = {name: fs.open(f"{root}/{name}", create=True) for name in "ab"}
    seen: list[object] = []
    for _ in range(300):
        name = random.choice("ab")
        file = files[name]
        data = random.randbytes(random.randrange(40))
        position = random.randrange(file.size() + 5)
        calls: list[Callable[[], object]] = [
            partial(file.append, [data, b"", data]),
            partial(file.pwrite, data + b".", position),
            partial(file.truncate, position),
            partial(file.pread, 30, position),
            partial(file.pread_cached, 30, position),
            file.size,
            file.sync,
            partial(fs.file_size, f"{root}/{name}"),
            partial(fs.read, f"{root}/{name}"),
            partial(fs.list_directory, root),
            partial(fs.make_directories, f"{root}/sub/deep"),
            partial(write_atomically, fs, f"{root}/checkpoint", data),
            partial(fs.rename, f"{root}/sub", f"{root}/moved"),
            partial(fs.rename, f"{root}/checkpoint", f"{root}/sub/deep/checkpoint"),
            partial(fs.unlink, f"{root}/checkpoint"),
            partial(fs.remove_tree, f"{root}/moved"),
            partial(fs.open, f"{root}/missing"),
            partial(fs.exists, f"{root}/checkpoint"),
            partial(fs.is_directory, f"{root}/sub"),
            partial(fs.read, f"{root}/sub"),
            partial(fs.sync_directory, f"{root}/sub"),
        ]
        try:
            seen.append(random.choice(calls)())
        except OSError as error:
            seen.append(error.errno)
    for file in files.values():
        file.close()
    return seen


@pytest.mark.parametrize("seed", range(8))
def test_it_answers_as_the_machine_does(seed: int, tmp_path: Path) -> None:
    disk = SimulatedDisk(seed)
    disk.make_directories(str(tmp_path))
    root = f"{tmp_path}/root"
    assert random_calls(disk, root, Random(seed)) == random_calls(LocalFiles(), root, Random(seed))


def test_what_was_synced_survives_every_crash() -> None:
    for seed in SEEDS:
        disk = disk_with_log(seed, b"durable")
        disk.open("/data/log").append([b" and not"])
        disk.crash()
        assert disk.read("/data/log").startswith(b"durable")


def test_an_unsynced_append_is_lost_or_whole_or_torn_by_sectors() -> None:
    first, second = b"1" * 700, b"2" * 900

    def append_two(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append([first])
        file.append([second])

    seen = outcomes(append_two)
    assert b"base" in seen
    assert b"base" + first + second in seen
    assert b"base" + first in seen
    holes = [content for content in seen if content.startswith(b"base\0") and b"2" in content]
    assert holes, "the later write alone may survive"
    torn = [content for content in seen if b"1" in content and content[: 4 + len(first)].count(b"1") < len(first)]
    assert torn
    for content in torn:
        for start in range(0, len(content), SECTOR_SIZE):
            ours = content[max(start, 4) : min(start + SECTOR_SIZE, 4 + len(first))]
            assert len(set(ours)) <= 1, "a sector is all or nothing"


def test_an_overwrite_shows_old_or_new_bytes_only() -> None:
    seen = outcomes(lambda disk: disk.open("/data/log").pwrite(b"BA", 0))
    assert seen == {b"base", b"BAse"}


def test_what_follows_a_lost_cut_is_lost_too() -> None:
    def cut_and_append(disk: SimulatedDisk) -> None:
        file = disk.open("/data/log")
        file.append([b"+tail"])
        file.truncate(2)
        file.append([b"NEW"])

    seen = outcomes(cut_and_append)
    assert {b"base", b"base+tail", b"ba", b"baNEW"} <= seen
    assert all(not content.endswith(b"NEW") or content.startswith(b"ba") for content in seen)
    assert not any(b"NEW" in content and b"tail" in content for content in seen)


def test_names_survive_as_a_prefix_until_their_directory_is_synced() -> None:
    seen = set()
    for seed in SEEDS:
        disk = disk_with_log(seed)
        for name in "abc":
            disk.open(f"/data/{name}", create=True).sync()
        disk.crash()
        seen.add("".join(disk.list_directory("/data")))
    assert seen == {"log", "alog", "ablog", "abclog"}


def test_sync_directory_keeps_its_names_but_not_those_of_others() -> None:
    seen = set()
    for seed in SEEDS:
        disk = disk_with_log(seed)
        disk.make_directories("/data/topic-0")
        disk.open("/data/topic-0/log", create=True)
        disk.sync_directory("/data/topic-0")
        disk.crash()
        seen.add(tuple(disk.list_directory("/data")))
        if disk.exists("/data/topic-0"):
            assert disk.list_directory("/data/topic-0") == ["log"]
    assert seen == {("log",), ("log", "topic-0")}


def test_a_rename_is_atomic() -> None:
    seen = set()
    for seed in SEEDS:
        disk = disk_with_log(seed, b"old")
        file = disk.open("/data/new", create=True)
        file.append([b"new"])
        file.sync()
        disk.sync_directory("/data")
        disk.rename("/data/new", "/data/log")
        disk.crash()
        seen.add((disk.read("/data/log"), disk.exists("/data/new")))
    assert seen == {(b"old", True), (b"new", False)}


def test_a_failed_sync_loses_the_pages_and_the_next_one_says_success() -> None:
    lost = 0
    for seed in SEEDS:
        disk = disk_with_log(seed, b"base")
        file = disk.open("/data/log")
        file.append([b"gone"])
        disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
        with pytest.raises(OSError) as failure:
            file.sync()
        assert failure.value.errno == errno.EIO
        file.sync()
        disk.crash()
        lost += disk.read("/data/log") != b"basegone"
    assert lost > len(SEEDS) // 2


def test_the_page_cache_may_hide_a_failed_sync_until_it_is_evicted() -> None:
    hidden = 0
    for seed in SEEDS:
        disk = disk_with_log(seed, b"base")
        disk.open("/data/log").append([b"gone"])
        disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
        with pytest.raises(OSError):
            disk.open("/data/log").sync()
        disk.end_process()
        file = disk.open("/data/log")
        file.append([b"+new"])
        before = disk.read("/data/log")
        file.evict()
        shown = disk.read("/data/log")
        hidden += before != shown
        assert shown in (b"basegone+new", b"base\0\0\0\0+new")
        file.sync()
        disk.crash()
        assert disk.read("/data/log") == shown
    assert hidden > 5


def test_the_hole_of_a_failed_sync_is_known_to_a_later_life_until_it_is_cut_away() -> None:
    holes = 0
    for seed in SEEDS:
        disk = disk_with_log(seed, b"base")
        assert not disk.has_hole("/data")
        file = disk.open("/data/log")
        file.append([b"gone"])
        disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
        with pytest.raises(OSError):
            file.sync()
        disk.crash()
        is_gone = disk.read("/data/log") != b"basegone"
        assert disk.has_hole("/data") == is_gone
        holes += is_gone
        disk.open("/data/log").truncate(4)
        assert not disk.has_hole("/data")
    assert 5 < holes < len(SEEDS)


def test_a_full_disk_takes_a_part_and_the_append_is_cut_back() -> None:
    disk = disk_with_log(1, b"base")
    disk.faults.capacity_bytes = 10
    file = disk.open("/data/log")
    with pytest.raises(OSError) as failure:
        file.append([b"0123456789"])
    assert failure.value.errno == errno.ENOSPC
    assert disk.read("/data/log") == b"base"
    assert disk.disk_usage("/data") == (10, 6)
    file.append([b"012345"])
    disk.unlink("/data/log")
    assert disk.disk_usage("/data") == (10, 10)


def test_the_power_may_fail_between_the_short_write_and_the_cut() -> None:
    seen = set()
    for seed in SEEDS:
        disk = disk_with_log(seed, b"base")
        disk.faults.capacity_bytes = 10
        disk.crash_at_step = disk.steps + 2
        with pytest.raises(SimulatedCrash):
            disk.open("/data/log").append([b"0123456789"])
        disk.crash()
        seen.add(disk.read("/data/log"))
    assert b"base012345" in seen


@pytest.mark.parametrize("operation", list(Operation))
def test_each_kind_of_call_can_be_refused_once(operation: Operation) -> None:
    disk = disk_with_log(1, b"base")
    names = count()
    calls: dict[Operation, Callable[[], object]] = {
        Operation.READ: lambda: disk.read("/data/log"),
        Operation.WRITE: lambda: disk.open("/data/log").append([b"x"]),
        Operation.SYNC: lambda: disk.open("/data/log").sync(),
        Operation.NAME: lambda: disk.open(f"/data/{next(names)}", create=True),
    }
    disk.fail(operation, disk.counts[operation] + 2, errno.EROFS)
    calls[operation]()
    with pytest.raises(OSError) as failure:
        calls[operation]()
    assert failure.value.errno == errno.EROFS
    calls[operation]()


def test_a_broken_directory_fails_alone() -> None:
    disk = disk_with_log(1, b"base")
    disk.make_directories("/data2")
    disk.break_directory("/data")
    with pytest.raises(OSError):
        disk.read("/data/log")
    disk.open("/data2/log", create=True).append([b"fine"])
    disk.mend_directories()
    assert disk.read("/data/log") == b"base"


def test_probabilities_apply_to_their_kind() -> None:
    disk = disk_with_log(1, b"base")
    disk.faults.write_error = 0.5
    file = disk.open("/data/log")
    refused = 0
    for _ in range(100):
        try:
            file.append([b"x"])
        except OSError:
            refused += 1
    assert 20 < refused < 80
    assert disk.read("/data/log") == b"base" + b"x" * (100 - refused)


def test_rot_flips_one_durable_bit() -> None:
    disk = disk_with_log(3, bytes(100))
    place = disk.rot(lambda path: path.endswith("log"))
    assert place is not None
    path, position = place
    content = disk.read(path)
    assert content == disk.durable_bytes(path)
    assert [index for index, byte in enumerate(content) if byte] == [position]
    assert content[position].bit_count() == 1
    assert disk.rot(lambda path: path.endswith("none")) is None


def test_cold_pages_are_read_only_where_reading_may_block() -> None:
    disk = disk_with_log(1, b"base")
    disk.faults.cold_read = 1.0
    file = disk.open("/data/log")
    assert file.pread_cached(4, 0) is None
    assert file.pread(4, 0) == b"base"


def test_nothing_done_while_the_crash_unwinds_reaches_the_disk() -> None:
    disk = disk_with_log(1, b"base")
    file = disk.open("/data/log")
    disk.crash_at_step = disk.steps + 1
    with pytest.raises(SimulatedCrash):
        file.append([b"late"])
    with pytest.raises(SimulatedCrash):
        file.sync()
    with pytest.raises(SimulatedCrash):
        disk.unlink("/data/log")
    file.close()
    disk.crash()
    with pytest.raises(SimulatedCrash):
        file.append([b"from the dead"])
    assert disk.read("/data/log") == b"base"


def test_a_killed_process_loses_its_files_and_locks_but_not_the_page_cache() -> None:
    disk = disk_with_log(1, b"base")
    lock = disk.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    disk.open("/data/log").append([b"+unsynced"])
    disk.end_process()
    assert disk.read("/data/log") == b"base+unsynced"
    disk.lock("/data/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")


def crash_everywhere(replace: Callable[[FileSystem, str, bytes], None]) -> set[bytes | None]:
    """What `/data/log` holds after a power cut at each step of replacing "old" by "new", for many seeds."""
    counting = disk_with_log(0, b"old")
    before = counting.steps
    replace(counting, "/data/log", b"new")
    steps = counting.steps - before
    seen: set[bytes | None] = set()
    for seed in SEEDS:
        for step in range(1, steps + 1):
            disk = disk_with_log(seed, b"old")
            disk.crash_at_step = disk.steps + step
            with suppress(SimulatedCrash):
                replace(disk, "/data/log", b"new")
            disk.crash()
            seen.add(disk.read("/data/log") if disk.exists("/data/log") else None)
    return seen


def test_write_atomically_survives_a_power_cut_at_each_step() -> None:
    assert crash_everywhere(write_atomically) == {b"old", b"new"}
    for seed in SEEDS:
        disk = disk_with_log(seed, b"old")
        write_atomically(disk, "/data/log", b"new")
        disk.crash()
        assert disk.read("/data/log") == b"new", "what has returned is durable"


def test_a_replacement_without_sync_is_caught() -> None:
    def without_sync(fs: FileSystem, path: str, data: bytes) -> None:
        file = fs.open(path + ".tmp", create=True)
        file.append([data])
        fs.rename(path + ".tmp", path)
        fs.sync_directory("/data")
        fs.make_directories("/other")  # one more step at which the power may fail

    assert b"" in crash_everywhere(without_sync)


def test_a_replacement_without_directory_sync_is_caught() -> None:
    forgotten = 0
    for seed in SEEDS:
        disk = disk_with_log(seed, b"old")
        file = disk.open("/data/new", create=True)
        file.append([b"new"])
        file.sync()
        disk.rename("/data/new", "/data/log")
        disk.crash()
        forgotten += disk.read("/data/log") == b"old"
    assert forgotten > 5


def test_same_seed_same_losses() -> None:
    def life(seed: int) -> list[object]:
        disk = disk_with_log(seed, b"base")
        disk.faults.write_error = disk.faults.sync_error = 0.1
        seen: list[object] = []
        for _ in range(20):
            file = disk.open("/data/log")
            for number in range(10):
                with suppress(OSError):
                    file.append([bytes([number]) * 600])
            with suppress(OSError):
                file.sync()
            disk.crash()
            seen.append(disk.read("/data/log"))
            seen.append(disk.take_cost_ns())
        return seen

    assert life(7) == life(7)
    assert life(7) != life(8)


def test_pending_writes_stay_bounded_and_right() -> None:
    disk = disk_with_log(1)
    file = disk.open("/data/log")
    for _ in range(3 * PENDING_WRITES_MAX):
        file.append([b"0123456789"])
    assert len(disk.durable_bytes("/data/log")) >= 2 * PENDING_WRITES_MAX * 10 - 10 * PENDING_WRITES_MAX
    file.sync()
    assert disk.durable_bytes("/data/log") == b"0123456789" * 3 * PENDING_WRITES_MAX
