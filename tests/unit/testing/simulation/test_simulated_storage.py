"""The simulated store keeps the port's promises whatever it does, and does the same for the same seed."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from moldau.storage.tiered.port import (
    AccessRefused,
    RemoteStorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    list_all,
)
from moldau.testing.simulation.storage import SimulatedBucket, SimulatedStorage, StorageFaults
from moldau.testing.simulation.world import World
from tests.unit.storage.tiered.storages import run, simulated

ALL_FAULTS = StorageFaults(
    refuses=0.1,
    loses_answer=0.1,
    loses_request=0.1,
    timeout_s=2,
    delay_s=0.5,
    slow=0.1,
    bytes_per_s=1000,
    cut_upload=0.1,
    list_lag_s=5,
)


async def busy_client(storage: SimulatedStorage, random: Random) -> list[str]:
    """Calls at random; what each of them was told."""
    told = []
    for number in range(60):
        key = f"k/{random.randrange(8)}"
        try:
            match random.randrange(4):
                case 0:
                    await storage.put(key, random.randbytes(random.randrange(2000)))
                    told.append("put")
                case 1:
                    told.append((await storage.get(key, 0, 10_000)).hex()[:8])
                case 2:
                    told.append(str([entry.key async for entry in list_all(storage, "k/", page_size=3)]))
                case _:
                    await storage.delete([key])
                    told.append("delete")
        except RemoteStorageError as error:
            told.append(f"{number}: {error}")
    return told


def story_of(seed: int) -> tuple[list[str], dict[str, bytes], str]:
    bucket = SimulatedBucket()

    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        storage = SimulatedStorage(bucket, Random(seed), asyncio.sleep, loop.time, ALL_FAULTS)
        return await busy_client(storage, Random(seed + 1))

    with World(seed=seed) as world:
        told = world.run(story(), limit_s=3600)
        return told, bucket.contents(), world.digest()


def test_one_seed_gives_one_run_in_the_simulated_world() -> None:
    first, again, other = story_of(5), story_of(5), story_of(6)
    assert first == again
    assert first[0] != other[0]
    assert any("503" in each for each in first[0]) and any("no answer" in each for each in first[0])


def test_a_listing_lags_and_catches_up() -> None:
    async def story() -> None:
        storage, time = simulated(StorageFaults(list_lag_s=10))
        for number in range(20):
            await storage.put(f"a/{number}", b"x")
        assert len(await storage.list("a/")) < 20
        time.now_s += 10
        assert len(await storage.list("a/")) == 20
        await storage.delete([f"a/{number}" for number in range(20)])
        assert len(await storage.list("a/")) > 0
        time.now_s += 10
        assert len(await storage.list("a/")) == 0

    run(story())


def test_a_cut_upload_is_never_seen_and_a_lost_answer_may_have_happened() -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(StorageFaults(cut_upload=1), bucket)
        with pytest.raises(StorageUnavailable):
            await storage.put("a", b"1")
        assert bucket.contents() == {} and bucket.partial_upload_count == 1
        storage.faults = StorageFaults(loses_answer=1)
        with pytest.raises(StorageUnavailable):
            await storage.put("a", b"1")
        assert bucket.contents() == {"a": b"1"}

    run(story())


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        (StorageFaults(is_away=True), StorageMissing),
        (StorageFaults(is_unreachable=True), StorageUnavailable),
        (StorageFaults(credentials_end_s=0), AccessRefused),
        (StorageFaults(capacity_bytes=0), StorageFull),
    ],
)
def test_what_is_switched_off_comes_back(faults: StorageFaults, error: type[RemoteStorageError]) -> None:
    async def story() -> None:
        storage, _ = simulated(faults)
        with pytest.raises(error) as caught:
            await storage.put("a", b"1")
        assert caught.value.is_transient
        storage.faults = StorageFaults()
        await storage.put("a", b"1")

    run(story())
