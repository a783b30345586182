"""The runner and the registry know no kind of machine: counters by key, in a topic of their own, are one row."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from random import Random

import pytest

from moldau.broker.coordinators.definition import KeyType
from moldau.broker.coordinators.registry import CoordinatorRegistry
from moldau.broker.coordinators.shard_runner import RunnerState
from moldau.broker.coordinators.shards import Shards
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.runtime.machine import Waiter
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.support.counters import COUNTERS_TOPIC, IDLE_MS, Add, Count, CounterShard, counter_row

NODE_ID = 1
KEYS = ("a", "b", "c")


class CounterNode:
    """A process that leads the one partition of the counters' topic."""

    def __init__(self, environment: SimulatedEnvironment) -> None:
        self.loop = asyncio.get_running_loop()
        self.environment = environment
        self.tasks: list[asyncio.Task[None]] = []
        self.shards: Shards[CounterShard, Add, Count] = Shards(
            counter_row(), environment, self.loop, self._spawn, lambda topic: None
        )
        self.registry = CoordinatorRegistry([self.shards], lambda log: None)
        directory = f"/data/{COUNTERS_TOPIC}-0"
        environment.fs.make_directories(directory)
        log = Log.open(environment.fs, directory, LogConfig(), now_ms=environment.wall_ms())
        self.partition = Partition(COUNTERS_TOPIC, bytes(16), 0, log, log.log_start_offset)
        self.partition.become_leader(NODE_ID, 0, (NODE_ID,))

    def _spawn(self, work: Coroutine[object, object, None], name: str = "", /) -> None:
        self.tasks.append(self.loop.create_task(work))

    async def gain(self) -> None:
        self.registry.on_leadership_gained(self.partition)
        while self.tasks:
            await self.tasks.pop()

    def add(self, key: str, amount: int = 1) -> Pending[object]:
        reply: Pending[object] = Pending()
        runner = self.shards.runner_of(key)
        if isinstance(runner, ErrorCode):
            reply.complete(runner)
        else:
            runner.submit(Add(Waiter(reply, 0), key, amount))
        return reply

    def told(self, key: str, amount: int = 1) -> object:
        """The answer to an addition that is committed at once."""
        answers: list[object] = []
        self.add(key, amount).listen(answers.append)
        return answers[0] if answers else None

    def counters(self) -> dict[str, int]:
        (runner,) = self.shards.runners
        return runner.shard.committed

    async def pause(self, seconds: float) -> None:
        passed = self.loop.create_future()
        self.loop.call_later(seconds, passed.set_result, None)
        await passed


Story = Callable[[CounterNode], Awaitable[None]]


def lives(*stories: Story, seed: int = 1) -> None:
    """A process for each story, one after the other, on one disk."""
    with World(seed) as world:
        host = world.add_host("broker")

        async def all_lives() -> None:
            for story in stories:

                async def main(environment: SimulatedEnvironment, story: Story = story) -> None:
                    node = CounterNode(environment)
                    await node.gain()
                    await story(node)

                await host.boot(main)
                host.kill()

        world.run(all_lives())


def test_a_new_process_loads_what_the_one_before_wrote() -> None:
    async def first(node: CounterNode) -> None:
        for number in range(50):
            assert node.told(KEYS[number % 3]) == number // 3 + 1

    async def second(node: CounterNode) -> None:
        assert node.counters() == {"a": 17, "b": 17, "c": 16}
        assert node.told("a", 10) == 27

    lives(first, second)


def test_requests_are_refused_while_it_loads_and_when_the_partition_is_lost() -> None:
    async def story(node: CounterNode) -> None:
        node.told("a")
        node.registry.on_leadership_gained(node.partition)
        assert node.told("a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while node.tasks:
            await node.tasks.pop()
        assert node.told("a") == 2
        node.registry.on_leadership_lost(node.partition)
        assert node.told("a") is ErrorCode.NOT_COORDINATOR

    lives(story)


def test_a_refused_append_is_told_and_changes_nothing() -> None:
    async def story(node: CounterNode) -> None:
        node.partition.min_insync_replicas = 2
        assert node.told("a") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert node.counters() == {}
        node.partition.min_insync_replicas = 1
        assert node.told("a") == 1

    lives(story)


def test_what_is_not_committed_is_not_read_and_fails_when_its_time_is_over() -> None:
    async def story(node: CounterNode) -> None:
        node.partition.become_leader(NODE_ID, 1, (NODE_ID, 2))
        await node.gain()
        reply = node.add("a")
        assert not reply.is_complete and node.counters() == {}
        await node.pause(6)
        answers: list[object] = []
        reply.listen(answers.append)
        assert answers == [ErrorCode.REQUEST_TIMED_OUT]

    lives(story)


def test_its_timers_run() -> None:
    async def first(node: CounterNode) -> None:
        node.told("a")
        await node.pause(IDLE_MS / 2000)
        node.told("b")
        await node.pause(IDLE_MS / 1000 - 1)
        assert node.counters() == {"b": 1}

    async def second(node: CounterNode) -> None:
        assert node.counters() == {"b": 1}, "the tombstone is in the log"
        await node.pause(IDLE_MS / 1000 + 1)
        assert node.counters() == {}

    lives(first, second)


def test_a_log_of_something_else_is_left_to_another_leader() -> None:
    async def first(node: CounterNode) -> None:
        batch = build_batch([Record(b"a", b"no counter")])
        assert node.partition.append_internal(batch, node.environment.wall_ms()).error is ErrorCode.NONE

    async def second(node: CounterNode) -> None:
        (runner,) = node.shards.runners
        assert runner.state is RunnerState.FAILED
        assert node.told("a") is ErrorCode.NOT_COORDINATOR

    lives(first, second)


@pytest.mark.parametrize("seed", range(20))
def test_no_seed_loses_or_invents_an_addition(seed: int) -> None:
    """Lives with refusals and leadership that comes and goes, each killed at some moment."""
    random = Random(seed)
    counted: dict[str, int] = {}

    async def life(node: CounterNode) -> None:
        assert node.counters() == counted
        for _ in range(random.randint(0, 60)):
            match random.randrange(12):
                case 0:
                    node.partition.min_insync_replicas = random.choice((1, 1, 2))
                case 1:
                    node.registry.on_leadership_lost(node.partition)
                    await node.gain()
                case 2:
                    await node.pause(random.random())
                case _:
                    key, amount = random.choice(KEYS), random.randint(1, 5)
                    answer = node.told(key, amount)
                    if not isinstance(answer, ErrorCode):
                        counted[key] = counted.get(key, 0) + amount
                        assert answer == counted[key]
            assert node.counters() == counted

    lives(*[life] * 4, seed=seed)


def test_the_registry_finds_it_by_key_type_and_leaves_other_topics_alone() -> None:
    async def story(node: CounterNode) -> None:
        assert node.registry.of_key_type(KeyType.SHARE) is node.shards
        assert node.registry.of_key_type(KeyType.GROUP) is None
        other = Partition("t", bytes(16), 0, node.partition.log, 0)
        node.registry.on_leadership_gained(other)
        node.registry.on_leadership_lost(other)
        assert len(node.shards.runners) == 1

    lives(story)


def test_a_machine_that_was_lost_is_freed_without_the_collector_of_cycles() -> None:
    """What was loaded is kept out of the collector's sight: references alone must free it."""

    async def story(node: CounterNode) -> None:
        node.told("a")
        await node.gain()
        (runner,) = node.shards.runners
        shard = weakref.ref(runner.shard)
        del runner
        gc.disable()
        try:
            node.registry.on_leadership_lost(node.partition)
            assert shard() is None
        finally:
            gc.enable()

    lives(story)
