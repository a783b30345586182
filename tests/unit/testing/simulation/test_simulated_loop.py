"""The simulated loop keeps asyncio's promises inside a host, and a dead life never runs again."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from functools import partial

import pytest

from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Tasks
from moldau.storage.files.port import write_atomically
from moldau.testing.simulation.disk_calls import Operation
from moldau.testing.simulation.schedule import SimulationFailed, SimulationStuck
from moldau.testing.simulation.world import EPOCH_MS, SimulatedEnvironment, World


async def forever(environment: SimulatedEnvironment) -> None:
    await asyncio.get_running_loop().create_future()


def test_callbacks_of_one_host_run_in_order_and_hosts_interleave() -> None:
    order: list[tuple[str, int]] = []

    def run(seed: int) -> list[tuple[str, int]]:
        order.clear()

        async def main(environment: SimulatedEnvironment) -> None:
            loop = asyncio.get_running_loop()
            task = asyncio.current_task()
            assert task is not None
            for number in range(20):
                loop.call_soon(order.append, (task.get_name(), number))
            await asyncio.sleep(1)

        with World(seed) as world:
            for name in ("a", "b"):
                world.add_host(name).boot(main)
            world.run(asyncio.sleep(2))
        return list(order)

    first = run(1)
    for name in ("a", "b"):
        assert [number for host, number in first if host == name] == list(range(20))
    assert first == run(1)
    assert first != run(2)


def test_timers_fire_in_order_of_time_then_of_creation() -> None:
    fired: list[str] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for name, delay in (("c", 0.2), ("a", 0.1), ("b", 0.1), ("never", 0.15)):
            handle = loop.call_later(delay, fired.append, name)
            if name == "never":
                handle.cancel()
        await asyncio.sleep(0.3)
        assert 0.3 <= loop.time() - started < 0.301

    with World(1) as world:
        world.run(scenario())
    assert fired == ["a", "b", "c"]


def test_cancelled_timers_do_not_pile_up() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(10_000):
            loop.call_later(1000, print).cancel()
        assert len(world.loop._heap) < 1000
        await asyncio.sleep(1)

    with World(1) as world:
        world.run(scenario())


def test_an_hour_passes_in_no_time() -> None:
    started = time.perf_counter()
    with World(1) as world:
        world.run(asyncio.sleep(3599))
        assert world.now_s >= 3599
    assert time.perf_counter() - started < 5


def test_a_busy_loop_ends_at_the_limit() -> None:
    async def main(environment: SimulatedEnvironment) -> None:
        while True:
            await asyncio.sleep(0)

    with World(1) as world, pytest.raises(SimulationStuck):
        world.add_host("busy").boot(main)
        world.run(asyncio.sleep(10), limit_s=0.05)


def test_waiting_for_nothing_is_told() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with World(1) as world, pytest.raises(SimulationStuck, match="nothing is left"):
        world.run(scenario())


def test_hosts_have_clocks_of_their_own() -> None:
    seen: dict[str, tuple[float, int]] = {}

    async def main(environment: SimulatedEnvironment) -> None:
        task = asyncio.current_task()
        assert task is not None
        started = environment.monotonic_ms()
        await asyncio.sleep(100)
        seen[task.get_name()] = (world.now_s, environment.monotonic_ms() - started)
        await forever(environment)

    with World(1) as world:
        world.add_host("true")
        world.add_host("fast").clock_rate_ppm = 10_000
        world.hosts["fast"].clock_offset_ns = 5_000_000_000
        world.hosts["fast"].wall_skew_ms = -1000
        for host in world.hosts.values():
            host.boot(main)
        assert world.hosts["fast"].wall_ms() == EPOCH_MS + 5000 - 1000
        world.run(asyncio.sleep(200))
    assert seen["true"][0] == pytest.approx(100, abs=0.001)
    assert seen["fast"][0] == pytest.approx(99.0099, abs=0.001)
    assert 100_000 <= seen["fast"][1] <= 100_001


def test_a_crashed_life_runs_no_finally_and_no_zombie() -> None:
    ran: list[str] = []
    resolved_late: list[asyncio.Future[None]] = []

    async def main(environment: SimulatedEnvironment) -> None:
        future = asyncio.get_running_loop().create_future()
        resolved_late.append(future)
        try:
            await future
        finally:
            ran.append("finally")

    async def scenario() -> None:
        host = world.add_host("host")
        host.boot(main)
        await asyncio.sleep(1)
        host.crash()
        await asyncio.sleep(1)
        host.boot(main)
        resolved_late[0].set_result(None)  # by somebody who outlived the crash
        await asyncio.sleep(1)
        assert ran == []
        assert host.is_up and host.lives == 2
        resolved_late[1].set_result(None)
        await asyncio.sleep(1)
        assert ran == ["finally"]
        assert not host.is_up

    with World(1) as world:
        world.run(scenario())


def test_each_life_has_randomness_of_its_own() -> None:
    drawn: list[tuple[bytes, float]] = []

    async def main(environment: Environment) -> None:
        drawn.append((environment.entropy(16), environment.random.random()))

    for _ in range(2):
        with World(1) as world:
            for name in ("a", "b"):
                host = world.add_host(name)
                for _ in range(2):
                    host.boot(main)
                    world.run(asyncio.sleep(1))
    assert len(set(drawn)) == 4
    assert drawn[:4] == drawn[4:]


def test_an_unhandled_exception_ends_the_run() -> None:
    async def raises() -> None:
        raise ZeroDivisionError

    async def main(environment: SimulatedEnvironment) -> None:
        asyncio.get_running_loop().call_soon(divmod, 1, 0)
        await forever(environment)

    async def forgets(environment: SimulatedEnvironment) -> None:
        asyncio.get_running_loop().create_task(raises())
        await forever(environment)

    async def ends(environment: SimulatedEnvironment) -> None:
        await raises()

    for program in (main, forgets, ends):
        with World(1) as world, pytest.raises(SimulationFailed):
            world.add_host("host").boot(program)
            world.run(asyncio.sleep(1))


def test_a_host_may_install_its_own_exception_handler() -> None:
    told: list[str] = []

    async def main(environment: SimulatedEnvironment) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context["message"]))
        loop.call_soon(divmod, 1, 0)
        await forever(environment)

    with World(1) as world:
        world.add_host("host").boot(main)
        world.run(asyncio.sleep(1))
    assert len(told) == 1


def test_halt_ends_the_process_and_fails_the_run_unless_expected() -> None:
    went_on: list[bool] = []

    async def main(environment: SimulatedEnvironment) -> None:
        try:
            environment.halt("two leaders")
        except Exception:
            went_on.append(True)
        went_on.append(True)

    with World(1) as world:
        host = world.add_host("host")
        host.may_halt = True
        host.boot(main)
        world.run(asyncio.sleep(1))
        assert host.halted == "two leaders"
        assert not host.is_up
        host.may_halt = False
        host.boot(main)
        with pytest.raises(SimulationFailed, match="two leaders"):
            world.run(asyncio.sleep(1))
    assert went_on == []


def test_a_sync_on_the_loop_stops_its_host_and_nobody_else() -> None:
    ticks: dict[str, int] = {"blocks": 0, "offloads": 0, "idle": 0}

    async def tick(name: str) -> None:
        while True:
            await asyncio.sleep(0.01)
            ticks[name] += 1

    async def main(environment: SimulatedEnvironment) -> None:
        task = asyncio.current_task()
        assert task is not None
        ticking = asyncio.create_task(tick(task.get_name()))
        file = environment.fs.open("/log", create=True)
        file.append([b"x"])
        if task.get_name() == "blocks":
            file.sync()
        elif task.get_name() == "offloads":
            await environment.offload(file.sync)
        await ticking

    with World(1) as world:
        for name in ticks:
            host = world.add_host(name)
            host.disk.faults.write_stall_ns = 900_000_000
            host.boot(main)
        world.hosts["offloads"].disk.faults.write_stall_ns = 0
        world.run(asyncio.sleep(1))
    assert ticks["blocks"] < 20
    assert ticks["offloads"] > 95
    assert ticks["idle"] <= 12  # the append alone stalls for as long


def test_offloaded_work_returns_raises_and_may_be_cancelled() -> None:
    done: list[int] = []

    async def main(environment: SimulatedEnvironment) -> None:
        assert await environment.offload(lambda: 5) == 5
        with pytest.raises(ZeroDivisionError):
            await environment.offload(lambda: 1 // 0)
        work = [asyncio.create_task(environment.offload(partial(done.append, number))) for number in range(9)]
        await asyncio.sleep(0)
        work[0].cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await asyncio.sleep(1)
        assert sorted(done) == list(range(9))
        environment.fs.make_directories("/data")
        await environment.offload(lambda: write_atomically(environment.fs, "/data/file", b"content"))
        assert environment.fs.read("/data/file") == b"content"
        done.append(100)

    with World(1) as world:
        world.add_host("host").boot(main)
        world.run(asyncio.sleep(3))
    assert done[-1] == 100


def test_the_power_is_cut_at_the_step_of_the_disk() -> None:
    async def main(environment: SimulatedEnvironment) -> None:
        file = environment.fs.open("/log", create=True)
        environment.fs.sync_directory("/")
        while True:
            file.append([b"0123456789"])
            await environment.offload(file.sync)

    with World(3) as world:
        host = world.add_host("host")
        host.disk.crash_at_step = 21
        host.boot(main)
        world.run(asyncio.sleep(1))
        assert not host.is_up
        assert host.disk.counts[Operation.SYNC] >= 10
        assert len(host.disk.read("/log")) >= 80


def test_the_unwinding_of_a_dead_process_does_not_reach_the_disk() -> None:
    async def main(environment: SimulatedEnvironment) -> None:
        environment.fs.open("/kept", create=True)
        environment.fs.sync_directory("/")
        try:
            environment.halt("expected")
        finally:
            environment.fs.unlink("/kept")

    with World(1) as world:
        host = world.add_host("host")
        host.may_halt = True
        host.boot(main)
        world.run(asyncio.sleep(1))
        assert host.disk.exists("/kept")


def test_the_power_may_go_after_the_process() -> None:
    lost = 0

    async def main(environment: SimulatedEnvironment) -> None:
        environment.fs.open("/log", create=True).append([b"not synced"])

    for seed in range(20):
        with World(seed) as world:
            host = world.add_host("host")
            host.boot(main)
            world.run(asyncio.sleep(1))
            assert not host.is_up
            assert host.disk.read("/log") == b"not synced"
            host.crash()
            lost += not host.disk.exists("/log")
    assert lost > 0


def test_a_paused_host_does_nothing_until_it_is_resumed() -> None:
    ticks: list[float] = []

    async def main(environment: SimulatedEnvironment) -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(world.now_s)

    async def scenario() -> None:
        host = world.add_host("host")
        host.boot(main)
        await asyncio.sleep(2.5)
        host.pause()
        await asyncio.sleep(10)
        host.resume()
        await asyncio.sleep(1.2)

    with World(1) as world:
        world.run(scenario())
    assert [round(tick, 2) for tick in ticks] == [1.0, 2.0, 12.5, 13.5]


def test_a_killed_process_leaves_no_coroutine_that_was_never_awaited() -> None:
    async def never_begun() -> None:
        raise AssertionError

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with World(1) as world:
            host = world.add_host("a")

            async def main(environment: SimulatedEnvironment) -> None:
                Tasks(environment.halt).spawn(never_begun())
                host.kill()

            host.boot(main)
            world.run(asyncio.sleep(1))
        gc.collect()
    assert [str(each.message) for each in warned if never_begun.__name__ in str(each.message)] == []
