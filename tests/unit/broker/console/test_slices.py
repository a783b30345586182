"""Long lists are looked at in slices: between two of them everything else on the event loop has its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.broker.console.group_pages import lag_upper_bounds
from moldau.broker.console.groups import CommittedOffsets
from moldau.broker.console.lag import CountingBudget, PartitionEnds, partition_lags
from moldau.broker.console.page import SLICE, PageRequest, Refusal, choose_names
from moldau.broker.console.partitions import ASKED_MAX, LATEST, READ_COMMITTED, ask_leaders, offsets_of
from moldau.broker.console.rendering import LOOKS, PAGE_SIZE_MAX, SLICE_NS, Renderer
from moldau.security.access import Unrestricted

COUNT = 10_000
KEYS = [("t", index) for index in range(COUNT)]


class Work:
    """Counts pieces of work, and the most of them in one step of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.total = 0

    def done(self) -> None:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)

    async def during(self, work: Awaitable[Any]) -> Any:
        """Run it beside a task that notes each turn which it is given."""

        async def turns() -> None:
            while True:
                self.now = 0
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(turns())
        try:
            return await work
        finally:
            ticking.cancel()


class Counted(Mapping[Any, int]):
    """A mapping that counts what is looked up in it."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __getitem__(self, key: object) -> int:
        self.work.done()
        return 7

    def __iter__(self) -> Iterator[Any]:
        return iter(KEYS)

    def __len__(self) -> int:
        return COUNT


def client_of(work: Work, leader: int) -> Any:
    """A client at broker 1, whose partitions have a leader."""

    def find(key: object) -> Any:
        work.done()
        led = SimpleNamespace(epoch_start_offset=0) if leader == 1 else None
        log = SimpleNamespace(log_start_offset=0)
        return SimpleNamespace(leadership=led, high_watermark=9, last_stable_offset=5, log=log)

    topics = SimpleNamespace(partition=lambda *key: SimpleNamespace(leader=leader))
    ports = SimpleNamespace(
        services=SimpleNamespace(replicas=SimpleNamespace(find=find)),
        cluster=SimpleNamespace(image=SimpleNamespace(topics=topics)),
        environment=SimpleNamespace(wall_ms=lambda: 0),
    )
    return SimpleNamespace(ports=ports, may=lambda *what: True, access=Unrestricted())


def run(story: Callable[[Work], Awaitable[Any]]) -> Work:
    work = Work()

    async def live() -> None:
        await work.during(story(work))

    asyncio.run(live())
    assert work.total >= COUNT
    return work


def test_names_are_chosen_in_slices() -> None:
    async def story(work: Work) -> None:
        def is_shown(name: str) -> bool:
            work.done()
            return True

        visit = PageRequest(client_of(work, 1), "/topics", {}, {})
        names, total, _ = await choose_names((f"{index:05}" for index in range(COUNT)), visit, is_shown)
        assert (names[0], total) == ("00000", COUNT)

    assert run(story).most <= SLICE


def test_the_ends_of_logs_are_looked_up_in_slices() -> None:
    async def story(work: Work) -> None:
        found = await offsets_of(client_of(work, 1), KEYS, LATEST, READ_COMMITTED)
        assert found == dict.fromkeys(KEYS, 5)

    assert run(story).most <= SLICE


def test_another_broker_is_asked_for_some_partitions_at_a_time() -> None:
    sizes: list[int] = []

    async def story(work: Work) -> None:
        async def ask(leader: int, named: Mapping[str, list[int]]) -> None:
            sizes.append(sum(map(len, named.values())))
            for _ in range(sizes[-1]):
                work.done()
            await asyncio.sleep(0)

        await ask_leaders(client_of(work, 2), KEYS, ask)

    assert run(story).most <= ASKED_MAX
    assert sum(sizes) == COUNT


@pytest.mark.parametrize("count", [1, 500])
def test_the_lags_of_groups_are_compared_in_slices(count: int) -> None:
    async def story(work: Work) -> None:
        each = CommittedOffsets(dict.fromkeys(KEYS[: COUNT // count], 3))
        ends = {each.isolation: PartitionEnds({}, Counted(work))}
        bounds = await lag_upper_bounds({f"g{index}": each for index in range(count)}, ends)
        assert set(bounds.values()) == {4 * COUNT // count}

    assert run(story).most <= SLICE


def test_the_lags_of_a_group_with_many_partitions_are_found_in_slices() -> None:
    async def story(work: Work) -> None:
        committed: dict[tuple[str, int], int | None] = dict.fromkeys(KEYS, 3)
        lags = await partition_lags(
            client_of(work, 1), committed, PartitionEnds({}, Counted(work)), CountingBudget(0, 0)
        )
        assert sum(each.records or 0 for each in lags) == 4 * COUNT

    assert run(story).most <= SLICE


def test_json_is_made_in_slices() -> None:
    async def story(work: Work) -> None:
        def clock() -> int:
            work.done()
            return work.total * SLICE_NS

        environment: Any = SimpleNamespace(precise_ns=clock)
        assert (await Renderer(environment, environment).json(list(range(COUNT * LOOKS)))).endswith(
            f"{COUNT * LOOKS - 1}]\n"
        )

    assert run(story).most <= 3, "the reading before a slice, and the one that ends it"


def test_a_page_that_is_too_large_is_refused_before_it_is_made() -> None:
    async def story() -> None:
        environment: Any = SimpleNamespace(precise_ns=lambda: 0)
        made = 0

        def rows() -> Iterator[str]:
            nonlocal made
            for _ in range(PAGE_SIZE_MAX // 1000 * 2):
                made += 1
                yield "x" * 1000

        with pytest.raises(Refusal, match="ask for a part of it") as refused:
            await Renderer(environment, environment)._joined(rows())
        assert refused.value.status == 413
        assert made == PAGE_SIZE_MAX // 1000 + 1

    asyncio.run(story())
