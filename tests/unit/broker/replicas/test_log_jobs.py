"""What happens to logs by itself: retention, flushes by time, forgotten producers."""

from __future__ import annotations

import asyncio

from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.storage.checkpoints.text_checkpoint import RECOVERY_POINT_CHECKPOINT, read_offsets
from moldau.storage.producers.producer_snapshot import decode_snapshot
from tests.support.node import Node, batch, serve_and


def segment_files(node: Node) -> list[str]:
    return [name for name in node.host.disk.list_directory("/data/t-0") if ".log" in name]


def test_old_segments_go_and_their_files_a_while_later() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", segment_bytes=1 << 20, retention_bytes=1, retention_ms=-1, file_delete_delay_ms=30_000)
        for _ in range(4):
            await client.produce("t", batch("x" * 400_000))
        await asyncio.sleep(2)
        log = node.broker.replicas.by_name["t"][0].log
        assert log.log_start_offset > 0
        gone = [name for name in segment_files(node) if name.endswith(".deleted")]
        assert gone and (await client.fetch("t", log.log_start_offset)).error_code == 0
        await asyncio.sleep(30)
        assert not any(name.endswith(".deleted") for name in segment_files(node))

    serve_and(story, log_initial_task_delay_ms=1000, log_retention_check_interval_ms=1000)


def test_the_producers_of_deleted_batches_are_durable() -> None:
    """A start cannot restore them from the batches any more."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=1, retention_ms=1000)
        records = batch("a", producer_id=7, producer_epoch=0, base_sequence=0)
        assert (await client.produce("t", records)).error_code == 0
        log = node.broker.replicas.by_name["t"][0].log
        assert log.unflushed_count == 0
        await asyncio.sleep(3)
        assert log.log_start_offset == 1
        (entry,) = decode_snapshot(node.host.disk.durable_bytes(log.snapshots.path(1)))
        assert (entry.producer_id, entry.last_sequence) == (7, 0)

    serve_and(story, log_initial_task_delay_ms=1000, log_retention_check_interval_ms=1000)


def test_what_cannot_be_removed_stops_nothing() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("gone", file_delete_delay_ms=1000)
        await client.create("t")
        await client.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1), 5)
        await asyncio.sleep(0.1)
        (left,) = (name for name in node.host.disk.list_directory("/data") if name.endswith("-delete"))
        node.host.disk.break_directory(f"/data/{left}")
        await asyncio.sleep(5)
        assert left in node.host.disk.list_directory("/data")
        assert (await client.produce("t", batch("y"))).error_code == 0

    serve_and(story)


def test_a_log_is_synced_when_flush_ms_has_passed() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_ms=3000)
        await client.create("never")
        await client.produce("t", batch("a"))
        await client.produce("never", batch("a"))
        logs = [node.broker.replicas.by_name[name][0].log for name in ("t", "never")]
        assert [log.unflushed_count for log in logs] == [1, 1]
        await asyncio.sleep(5)
        assert [log.unflushed_count for log in logs] == [0, 1]

    serve_and(story)


def test_a_log_without_new_records_is_flushed_and_a_busy_one_is_not() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        for topic in ("quiet", "busy"):
            await client.create(topic, retention_ms=-1)
        quiet, busy = (node.broker.replicas.by_name[name][0].log for name in ("quiet", "busy"))
        for sequence in range(3):
            records = batch("a", producer_id=7, producer_epoch=0, base_sequence=sequence)
            await client.produce("quiet", records)
        for number in range(60):
            await client.produce("busy", batch(f"{number}"))
            await asyncio.sleep(0.5)
        assert (quiet.recovery_point, quiet.unflushed_count) == (3, 0)
        assert (busy.recovery_point, busy.unflushed_count) == (0, 60)
        syncs = node.broker.flusher.sync_count
        await asyncio.sleep(60)
        assert busy.recovery_point == 60 and node.broker.flusher.sync_count == syncs + 1
        points = read_offsets(node.host.disk, "/data", RECOVERY_POINT_CHECKPOINT)
        assert (points["quiet", 0], points["busy", 0]) == (3, 60)
        assert quiet.snapshots.offsets == [3]
        await client.produce("quiet", batch("a", producer_id=7, producer_epoch=0, base_sequence=3))
        await asyncio.sleep(30)
        assert quiet.recovery_point == 4 and quiet.snapshots.offsets == [4]

    serve_and(story)


def test_producers_that_are_silent_for_long_are_forgotten() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        now_ms = node.broker.environment.wall_ms()
        for producer_id in (7, 8):
            records = batch("a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
            assert (await client.produce("t", records)).error_code == 0
        producers = node.broker.replicas.by_name["t"][0].log.producers
        assert len(producers.entries) == 2 and now_ms > 0
        await asyncio.sleep(20)
        assert len(producers.entries) == 0

    serve_and(story, producer_id_expiration_ms=10_000, producer_id_expiration_check_interval_ms=1000)
