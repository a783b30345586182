"""Applications on aiokafka in a simulated cluster: a right one survives faults, a wrong one is found, runs repeat."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]

from moldau.testing import Simulation, explore, simulate

RECORDS = 30
Story = Callable[[Simulation], Awaitable[int]]


def pipeline(*, commits_first: bool) -> Story:
    """A producer that never gives up, and a worker that processes each record; which one it did is looked at."""

    async def story(kafka: Simulation) -> int:
        processed: list[bytes] = []

        async def work(kafka: Simulation) -> None:
            consumer = AIOKafkaConsumer(
                "orders",
                bootstrap_servers=kafka.bootstrap_servers,
                group_id="workers",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            async for record in consumer:
                if commits_first:
                    await consumer.commit()
                await asyncio.sleep(0.05)
                processed.append(record.value)
                if not commits_first:
                    await consumer.commit()

        async def order(kafka: Simulation) -> None:
            producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True)
            await producer.start()
            for number in range(RECORDS):
                await producer.send_and_wait("orders", b"%d" % number)
                await asyncio.sleep(0.3)
            await producer.stop()

        await kafka.create_topic("orders")
        kafka.start(work, "worker")
        ordering = asyncio.ensure_future(order(kafka))
        await kafka.trouble(20, ["kill application", "kill node", "cut"])
        await ordering
        for _ in range(120):
            await asyncio.sleep(1)
            if len(set(processed)) == RECORDS:
                break
        missing = {b"%d" % number for number in range(RECORDS)} - set(processed)
        assert not missing, f"never processed: {sorted(missing)}"
        return len(processed)

    return story


def test_a_worker_that_commits_after_its_work_processes_every_record() -> None:
    outcome = simulate(pipeline(commits_first=False), seed=5)
    assert outcome.value >= RECORDS
    assert outcome.simulated_s > 20


@pytest.mark.slow
def test_a_worker_that_commits_before_its_work_is_found() -> None:
    with pytest.raises(AssertionError, match="never processed") as found:
        explore(pipeline(commits_first=True), seconds=900)
    (note,) = found.value.__notes__
    seed = int(note.split()[1].rstrip(","))
    with pytest.raises(AssertionError) as again:
        simulate(pipeline(commits_first=True), seed=seed)
    assert str(again.value) == str(found.value)


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    digests = [simulate(pipeline(commits_first=False), seed=seed).digest for seed in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]


def test_clocks_and_generators_of_modules_are_virtual() -> None:
    async def story(kafka: Simulation) -> list[float]:
        began = time.monotonic()
        await asyncio.sleep(100)
        return [time.monotonic() - began, random.random(), time.time()]

    values = [simulate(story, seed=seed, nodes=1).value for seed in (1, 1, 2)]
    assert values[0] == values[1] and values[0][1] != values[2][1]
    assert 100 <= values[0][0] < 101


def test_what_an_application_must_not_do_is_named() -> None:
    async def story(kafka: Simulation) -> None:
        threading.Thread(target=print).start()

    with pytest.raises(BaseException, match=r"threading\.Thread\.start was called inside the simulation") as refused:
        simulate(story, seed=9, nodes=1)
    assert "simulate(..., seed=9) repeats it" in refused.value.__notes__[0]


def test_an_application_that_fails_fails_the_simulation() -> None:
    async def broken(kafka: Simulation) -> None:
        raise ValueError("wrong")

    async def story(kafka: Simulation) -> None:
        kafka.start(broken, "application")
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="application ended with ValueError"):
        simulate(story, nodes=1)


def test_an_unknown_kind_of_trouble_is_refused() -> None:
    with pytest.raises(ValueError, match="'flood' is unknown: here are kill node"):
        simulate(lambda kafka: kafka.trouble(1, ["flood"]), nodes=1)


def test_a_story_that_does_not_end_is_ended() -> None:
    async def story(kafka: Simulation) -> None:
        await asyncio.sleep(10_000)

    with pytest.raises(AssertionError):
        simulate(story, nodes=1, limit_s=60)
