"""The sorted index file against a plain list, written, reopened, cut and padded."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.storage.files.file_slice import NotCached
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.segment import sparse_index
from moldau.storage.segment.sparse_index import PENDING_COUNT_MAX, SparseIndex
from moldau.testing.simulation.disk import SimulatedDisk

ENTRY = Struct(">ii")
steps = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 900)), max_size=400)


def entries_of(gaps: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    offset = position = 0
    entries: list[tuple[int, ...]] = []
    for offset_gap, position_gap in gaps:
        offset, position = offset + offset_gap, position + position_gap
        entries.append((offset, position))
    return entries


def new_index(disk: SimulatedDisk) -> SparseIndex:
    index = SparseIndex(disk, "/i", ENTRY)
    index.create()
    return index


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 2000), st.integers(0, 2000), st.booleans())
def test_lookup_truncation_and_reopening_agree_with_a_list(
    gaps: list[tuple[int, int]], target: int, bound: int, is_reopened: bool
) -> None:
    disk = SimulatedDisk()
    index = new_index(disk)
    model = entries_of(gaps)
    for entry in model:
        index.append(entry)
    if is_reopened:
        index.write_pending()
        index = SparseIndex(disk, "/i", ENTRY)
    assert index.count == len(model)
    assert index.last_entry() == (model[-1] if model else None)
    below = [entry for entry in model if entry[0] <= target]
    assert index.last_at_or_below(0, target) == (below[-1] if below else None)
    index.truncate(0, bound)
    model = [entry for entry in model if entry[0] < bound]
    index.append((10**6, 10**7))
    model.append((10**6, 10**7))
    index.release()
    assert [index.entry_at(slot) for slot in range(index.count)] == model
    assert disk.read("/i") == b"".join(ENTRY.pack(*entry) for entry in model)


def test_entries_wait_in_memory_and_are_written_many_at_a_time() -> None:
    disk = SimulatedDisk()
    index = new_index(disk)
    for number in range(1, PENDING_COUNT_MAX):
        index.append((number, number))
    assert disk.file_size("/i") == 0 and index.pending_count == PENDING_COUNT_MAX - 1
    index.append((PENDING_COUNT_MAX, PENDING_COUNT_MAX))
    assert disk.file_size("/i") == PENDING_COUNT_MAX * ENTRY.size and index.pending_count == 0


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(0, 3000))
def test_the_zeros_of_a_preallocated_file_are_no_entries(gaps: list[tuple[int, int]], padding_count: int) -> None:
    disk = SimulatedDisk()
    model = entries_of(gaps)
    file = disk.open("/i", create=True)
    file.append([b"".join(ENTRY.pack(*entry) for entry in model), bytes(padding_count * ENTRY.size)])
    index = SparseIndex(disk, "/i", ENTRY)
    assert index.count == len(model)
    assert index.last_entry() == (model[-1] if model else None)
    assert index.is_sound((0, 0)) is (padding_count == 0)
    index.append((10**6, 10**7))
    index.write_pending()
    assert disk.file_size("/i") == (len(model) + 1) * ENTRY.size


def test_a_full_disk_keeps_the_entries_until_there_is_room() -> None:
    disk = SimulatedDisk()
    index = new_index(disk)
    disk.faults.capacity_bytes = 0
    for number in range(1, 200):
        index.append((number, number))
    assert disk.file_size("/i") == 0 and index.last_at_or_below(0, 150) == (150, 150)
    disk.faults.capacity_bytes = 1 << 20
    index.append((200, 200))
    assert disk.file_size("/i") == 200 * ENTRY.size


def test_an_index_is_not_believed_when_it_is_cut_or_in_disorder(tmp_path: Path) -> None:
    fs = LocalFiles()
    for number, data in enumerate([b"\0" * 4, ENTRY.pack(5, 1) + b"\1", ENTRY.pack(9, 9) + ENTRY.pack(3, 3)]):
        path = tmp_path / f"{number}.index"
        path.write_bytes(data)
        assert not SparseIndex(fs, str(path), ENTRY).is_sound((0, 1))
    assert not SparseIndex(fs, str(tmp_path / "missing"), ENTRY).is_sound((0, 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5000), st.lists(st.integers(-10, 16_000), min_size=1, max_size=20), st.integers(2, 40))
def test_a_search_in_the_file_finds_the_same_wherever_the_one_before_it_ended(
    count: int, targets: list[int], block_count: int
) -> None:
    disk = SimulatedDisk()
    index = new_index(disk)
    for slot in range(count):
        index.append((3 * slot + 1, 1000 * slot + 1))
    index.write_pending()
    index = SparseIndex(disk, "/i", ENTRY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_index, "BLOCK_COUNT", block_count)
        for target in targets:
            slot = min(count, (target + 2) // 3) - 1 if target > 0 else -1
            assert index.last_at_or_below(0, target) == ((3 * slot + 1, 1000 * slot + 1) if slot >= 0 else None)


def test_a_search_that_must_not_wait_says_what_is_missing() -> None:
    disk = SimulatedDisk()
    index = new_index(disk)
    for slot in range(200):
        index.append((slot + 1, slot + 1))
    index.write_pending()
    index = SparseIndex(disk, "/i", ENTRY)
    disk.faults.cold_read = 1.0
    with pytest.raises(NotCached) as cold:
        index.last_at_or_below(0, 100, waits=False)
    assert (cold.value.place.position, cold.value.place.size) == (199 * ENTRY.size, ENTRY.size)
    assert index.last_at_or_below(0, 100) == (100, 100)
    with pytest.raises(NotCached):
        index.last_at_or_below(0, 100, waits=False)
    disk.faults.cold_read = 0.0
    assert index.last_at_or_below(0, 100, waits=False) == (100, 100)
