"""Pins: their format, whether they hold, and that reader and leader agree whatever comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.storage.tiered import pins
from moldau.storage.tiered.bucket_reading import current_manifests, current_segments
from moldau.storage.tiered.layout import PINS_PREFIX
from moldau.storage.tiered.pins import (
    LIFETIME_MAX_MS,
    Pin,
    decode_pin,
    pin_current_segments,
    pin_key,
    pinned_segments,
    remove_pin,
)
from moldau.storage.tiered.port import CorruptObject, RemoteStorage, StorageUnavailable, list_all
from moldau.storage.tiered.segment_copy import get_manifest, remove_manifest, remove_segment
from moldau.storage.tiered.sweeping import stale_probes_and_pins
from moldau.testing.simulation.storage import SimulatedBucket
from tests.unit.storage.tiered.remote_partition import CLUSTER, PARTITION, copied, written_log
from tests.unit.storage.tiered.storages import run, simulated

NOW_MS = 1_000_000
PIN = Pin(CLUSTER, PARTITION, (b"a" * 16, b"b" * 16), NOW_MS, NOW_MS + 1000, "a job")


def test_a_pin_is_read_as_it_was_written() -> None:
    assert decode_pin("k", PIN.encode()) == PIN
    for damaged in (b"", b"{}", PIN.encode().replace(b'"segments": [', b'"segments": [1,')):
        with pytest.raises(CorruptObject):
            decode_pin("k", damaged)


def test_a_pin_holds_until_its_time_and_never_for_ever() -> None:
    assert PIN.is_in_force(NOW_MS + 999) and not PIN.is_in_force(NOW_MS + 1000)
    endless = Pin(CLUSTER, PARTITION, (), NOW_MS, 1 << 62)
    assert endless.is_in_force(NOW_MS + LIFETIME_MAX_MS - 1) and not endless.is_in_force(NOW_MS + LIFETIME_MAX_MS)


def test_the_leader_sees_the_pins_that_hold_and_is_told_of_those_it_cannot_read() -> None:
    async def story() -> None:
        storage, _ = simulated(bucket=SimulatedBucket())
        await storage.put(pin_key(PARTITION, "job-1"), PIN.encode())
        other = Pin("another", PARTITION, (b"c" * 16,), NOW_MS, NOW_MS + 1000)
        await storage.put(pin_key(PARTITION, "job-2"), other.encode())
        await storage.put(pin_key(PARTITION, "job-3"), b"not a pin")
        held, problems = await pinned_segments(storage, CLUSTER, PARTITION, NOW_MS)
        assert held == set(PIN.segment_ids)
        assert len(problems) == 2 and "job-2" in problems[0] and "job-3" in problems[1]
        assert await pinned_segments(storage, CLUSTER, PARTITION._replace(partition=7), NOW_MS) == (set(), [])
        held, _ = await pinned_segments(storage, CLUSTER, PARTITION, NOW_MS + 1000)
        assert held == set()
        await remove_pin(storage, PARTITION, "job-1")
        await remove_pin(storage, PARTITION, "job-1")
        assert (await pinned_segments(storage, CLUSTER, PARTITION, NOW_MS))[0] == set()

    run(story())


class Interrupted:
    """A storage in which something happens before the reader's pin is written, or after it."""

    def __init__(self, storage: RemoteStorage, *, is_before: bool) -> None:
        self._storage = storage
        self._is_before = is_before
        self.deleted: list[tuple[int, bytes]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    async def put(self, key: str, content: bytes, *, must_create: bool = False) -> None:
        if self._is_before:
            await self._delete()
        await self._storage.put(key, content, must_create=must_create)
        if not self._is_before:
            await self._delete()

    async def _delete(self) -> None:
        """As the leader does it: manifest, pins, the rest."""
        if self.deleted:
            start_offset, segment_id = self.deleted.pop()
            await remove_manifest(self._storage, PARTITION, start_offset, segment_id)
            held, _ = await pinned_segments(self._storage, CLUSTER, PARTITION, NOW_MS)
            if segment_id not in held:
                await remove_segment(self._storage, PARTITION, start_offset, segment_id)


@pytest.mark.parametrize("is_before", [True, False])
def test_a_reader_gets_a_plan_of_which_every_segment_is_there(tmp_path: Path, is_before: bool) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        _, segments = await copied(written_log(tmp_path), storage)
        watched = Interrupted(storage, is_before=is_before)
        watched.deleted = [(segments[0].start_offset, segments[0].segment_id)]
        plan = await pin_current_segments(watched, CLUSTER, PARTITION, "job", now_ms=NOW_MS, lifetime_ms=1000)  # type: ignore[arg-type]
        assert [each.segment_id for each in plan] == [each.segment_id for each in segments[1:]]
        held, _ = await pinned_segments(storage, CLUSTER, PARTITION, NOW_MS)
        assert held == {each.segment_id for each in plan}

    run(story())


def test_a_reader_gives_up_where_segments_go_faster_than_it_plans(tmp_path: Path) -> None:
    async def story() -> None:
        storage, _ = simulated(bucket=SimulatedBucket())
        _, segments = await copied(written_log(tmp_path), storage)
        watched = Interrupted(storage, is_before=True)
        watched.deleted = [(each.start_offset, each.segment_id) for each in segments] * 3
        with pytest.raises(StorageUnavailable):
            await pin_current_segments(watched, CLUSTER, PARTITION, "job", now_ms=NOW_MS, lifetime_ms=1000)  # type: ignore[arg-type]

    run(story())


def test_a_pin_that_no_leader_would_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        await copied(written_log(tmp_path), storage)
        monkeypatch.setattr(pins, "PIN_SIZE_MAX", 250)
        with pytest.raises(ValueError, match="more than 250"):
            await pin_current_segments(storage, CLUSTER, PARTITION, "job", now_ms=NOW_MS, lifetime_ms=1000)
        assert await pinned_segments(storage, CLUSTER, PARTITION, NOW_MS) == (set(), [])

    run(story())


def test_a_pin_that_cannot_be_read_is_swept_when_it_can_hold_nothing_any_more() -> None:
    async def story() -> None:
        storage, _ = simulated(bucket=SimulatedBucket())
        await storage.put(pin_key(PARTITION, "job"), b"not a pin")
        (entry,) = [each async for each in list_all(storage, PINS_PREFIX)]
        for age_ms, found in ((LIFETIME_MAX_MS - 1, []), (LIFETIME_MAX_MS, [entry])):
            now_ms = entry.modified_ms + age_ms
            assert [each.entry async for each in stale_probes_and_pins(storage, now_ms, now_ms)] == found

    run(story())


def test_segments_that_others_name_as_ancestors_are_not_current(tmp_path: Path) -> None:
    from dataclasses import replace

    async def story() -> None:
        storage, _ = simulated(bucket=SimulatedBucket())
        _, segments = await copied(written_log(tmp_path), storage)
        first, second = [await get_manifest(storage, CLUSTER, PARTITION, each) for each in segments[:2]]
        cleaned = replace(
            first,
            segment_id=b"n" * 16,
            last_offset=second.last_offset,
            generation=1,
            cleaned_end_offset=100,
            ancestors=(first.segment_id, second.segment_id),
        )
        stillborn = replace(cleaned, segment_id=b"s" * 16, cleaned_end_offset=50)
        assert current_segments([first, second, cleaned, stillborn]) == [cleaned]
        assert len(await current_manifests(storage, CLUSTER, PARTITION)) == len(segments)

    run(story())
