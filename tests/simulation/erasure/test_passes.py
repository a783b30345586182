"""Erase orders that come one after the other are carried out in one pass over the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest

from moldau.broker.replicas.log_eraser import CHECK_INTERVAL_S, GATHER_S
from moldau.protocol.compression import Codec
from moldau.protocol.erase_orders import Run
from moldau.storage.erasure.receipts import OrderReceipt, read_or_new_receipt
from moldau.storage.files.log_paths import DELETED_SUFFIX
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.world import SimulatedEnvironment, World
from tests.simulation.compaction.host import Process
from tests.unit.storage.compaction.histories import send
from tests.unit.storage.erasure.orders import send_order

LIMIT_S = 60.0
ONE_SEGMENT = LogConfig()


async def written(environment: SimulatedEnvironment, config: LogConfig = ONE_SEGMENT) -> Process:
    """A process with a log of four records, in one segment by default, and an eraser."""
    process = Process(environment, config, {}, Random(1))
    for number in range(4):
        send(process.led.log, (f"k{number}", "v"), now_ms=environment.wall_ms())
    process.led.apply_leader_high_watermark(4)
    process.cleaner.begin()
    return process


def ordered(process: Process, first: int, last: int | None = None) -> int:
    """Order the erasure of one record, or of those up to `last`; the offset of the order."""
    log, now_ms = process.led.log, process.environment.wall_ms()
    return send_order(log, [Run(first, first if last is None else last)], number=log.end_offset, now_ms=now_ms)


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


def test_an_order_that_is_done_leaves_no_file_that_waits_for_its_removal() -> None:
    """Retention has put away a segment with a named record, and file.delete.delay.ms is a day."""

    async def story(environment: SimulatedEnvironment) -> None:
        config = LogConfig(segment_bytes=160, retention_ms=-1, retention_bytes=100, file_delete_delay_ms=86_400_000)
        process = await written(environment, config)
        directory, fs = process.led.log.directory, environment.fs
        process.retain(process.led)
        assert process.led.log.log_start_offset in (1, 2)
        assert any(name.endswith(DELETED_SUFFIX) for name in fs.list_directory(directory))
        offset = ordered(process, 0, last=3)
        process.led.apply_leader_high_watermark(offset + 1)
        while process.led.log.erase_orders.offsets:
            await asyncio.sleep(GATHER_S)
        assert not [name for name in fs.list_directory(directory) if name.endswith(DELETED_SUFFIX)]
        (receipt,) = receipts(process, offset)
        assert receipt.done_ms is not None
        await process.stop()

    lived(story)


def test_a_record_above_the_limit_of_the_topic_waits_for_another_limit(caplog: pytest.LogCaptureFixture) -> None:
    async def story(environment: SimulatedEnvironment) -> None:
        process = await written(environment, LogConfig(expanded_record_bytes_max=100))
        log, now_ms = process.led.log, environment.wall_ms()
        first = send(log, (None, "v" * 200), codec=Codec.GZIP, now_ms=now_ms)
        offset = ordered(process, first)
        process.led.apply_leader_high_watermark(log.end_offset)
        while not process.cleaner.eraser.totals.failures:
            await asyncio.sleep(GATHER_S)
        log.config = replace(log.config, expanded_record_bytes_max=1_000)
        while log.erase_orders.offsets:
            await asyncio.sleep(GATHER_S)
        (receipt,) = receipts(process, offset)
        assert receipt.records_erased == 1
        await process.stop()

    lived(story)
    assert "above max.decompressed.message.bytes (100)" in caplog.text and "damaged" not in caplog.text


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
