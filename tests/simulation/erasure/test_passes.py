"""Erase orders that come one after the other are carried out in one pass over the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from moldau.broker.replicas.log_eraser import CHECK_INTERVAL_S, GATHER_S
from moldau.protocol.erase_orders import Run
from moldau.storage.erasure.receipts import OrderReceipt, read_or_new_receipt
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.simulation.compaction.host import Process
from tests.unit.storage.compaction.histories import send
from tests.unit.storage.erasure.orders import send_order

LIMIT_S = 60.0


async def written(environment: SimulatedEnvironment) -> Process:
    """A process with a log of one segment of four records, and an eraser."""
    process = Process(environment, LogConfig(), {}, Random(1))
    for number in range(4):
        send(process.led.log, (f"k{number}", "v"), now_ms=environment.wall_ms())
    process.led.apply_leader_high_watermark(4)
    process.cleaner.begin()
    return process


def ordered(process: Process, offset: int) -> int:
    """Order the erasure of one record; the offset of the order."""
    log = process.led.log
    return send_order(log, [Run(offset, offset)], number=log.end_offset, now_ms=process.environment.wall_ms())


def receipts(process: Process, *offsets: int) -> list[OrderReceipt]:
    log, found = process.led.log, []
    for offset in offsets:
        order = erase_order_at(log.segments, offset)
        assert order is not None
        found.append(read_or_new_receipt(process.environment.fs, log.directory, order, offset))
    return found


def test_an_order_that_is_committed_a_little_later_joins_the_pass() -> None:
    async def story(environment: SimulatedEnvironment) -> None:
        process = await written(environment)
        orders = ordered(process, 1), ordered(process, 2)
        process.led.apply_leader_high_watermark(orders[1])
        await asyncio.sleep(CHECK_INTERVAL_S + 3 * GATHER_S)
        process.led.apply_leader_high_watermark(orders[1] + 1)
        while process.led.log.erase_orders.offsets:
            await asyncio.sleep(GATHER_S)
        (first,), (second,) = (each.segments for each in receipts(process, *orders))
        assert (first.crc_before, first.crc_after) == (second.crc_before, second.crc_after), "a pass for each order"
        assert first.records_erased == second.records_erased == 1
        await process.stop()

    lived(story)


def test_a_pass_does_not_wait_for_an_order_that_is_not_committed() -> None:
    async def story(environment: SimulatedEnvironment) -> None:
        process = await written(environment)
        orders = ordered(process, 1), ordered(process, 2)
        process.led.apply_leader_high_watermark(orders[1])
        while len(process.led.log.erase_orders.offsets) > 1:
            await asyncio.sleep(GATHER_S)
        first, second = receipts(process, *orders)
        assert (first.done_ms is None, second.done_ms is None) == (False, True)
        assert process.led.log.erase_orders.offsets == [orders[1]]
        await process.stop()

    lived(story)


def lived(story: Callable[[SimulatedEnvironment], Awaitable[None]]) -> None:
    """Run a story as the one life of a process."""
    world, ended = World(1), asyncio.Event()

    async def live(environment: SimulatedEnvironment) -> None:
        await story(environment)
        ended.set()

    async def drive() -> None:
        world.add_host("broker-1").boot(live)
        await ended.wait()

    with world:
        world.run(drive(), limit_s=LIMIT_S)
