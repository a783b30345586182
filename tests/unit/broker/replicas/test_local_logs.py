"""The logs of a broker over its directories, from one start to the next."""

from __future__ import annotations

import asyncio

import pytest

from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.testing.simulation.schedule import SimulationFailed
from tests.support.node import Client, Node, batch, serve_and


async def restarted(node: Node, end: str) -> Client:
    if end == "stop":
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
    elif end == "kill":
        node.host.kill()
    else:
        node.host.crash()
    node.boot()
    return await node.connect()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_was_written_is_there_after_a_restart_in_both_directories(end: str) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 4)
        for index in range(4):
            await client.produce("t", batch("a", "b"), partition=index)
        client = await restarted(node, end)
        assert all(each.was_shut_down_cleanly is (end == "stop") for each in node.broker.logs.directories)
        for index in range(4):
            data = await client.fetch("t", partition=index)
            assert (data.error_code, data.high_watermark) == (0, 2)
            assert (await client.produce("t", batch("c"), partition=index)).base_offset == 2

    serve_and(story, log_dirs="/data,/data2")


@pytest.mark.parametrize(("end", "is_kept"), [("stop", True), ("kill", True), ("crash", False)])
def test_a_broker_knows_the_epoch_in_which_it_ended_unless_the_machine_went_down(end: str, is_kept: bool) -> None:
    async def story(node: Node) -> None:
        await node.connect()
        epoch = node.broker.registration.epoch
        await restarted(node, end)
        assert node.broker.logs.previous_broker_epoch == (epoch if is_kept else -1)
        again = node.broker.registration.epoch
        await restarted(node, "kill")
        assert node.broker.logs.previous_broker_epoch == again

    serve_and(story, log_dirs="/data,/data2")


def test_a_deletion_that_the_power_cut_undid_is_done_again() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.produce("t", batch("a"))
        await asyncio.sleep(1)
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        node.host.crash()
        node.boot()
        client = await node.connect()
        await client.create("t")
        assert (await client.fetch("t")).high_watermark == 0, "the old records are of another topic"

    serve_and(story)


def test_checkpoints_are_written_only_when_something_moved() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        await client.produce("t", batch("a"))
        await asyncio.sleep(3)
        disk, path = node.host.disk, "/data/replication-offset-checkpoint"
        assert b"t 0 1" in bytes(disk.read(path))
        written_ms = disk.modified_ms(path)
        await asyncio.sleep(3)
        assert disk.modified_ms(path) == written_ms
        await client.produce("t", batch("b"))
        await asyncio.sleep(3)
        assert b"t 0 2" in bytes(disk.read(path)) and disk.modified_ms(path) > written_ms

    serve_and(story, replica_high_watermark_checkpoint_interval_ms=1000)


@pytest.mark.parametrize("seed", range(10))
def test_a_stop_in_the_middle_of_a_checkpoint_is_clean(seed: int) -> None:
    async def story(node: Node) -> None:
        node.host.disk.faults.sync_ns_min = node.host.disk.faults.sync_ns_max = 30_000_000
        client = await node.connect()
        await client.create("t", 3)
        for i in range(4):
            await client.produce("t", batch("a"), partition=i % 3)
            await asyncio.sleep(0.025)
        client = await restarted(node, "stop")
        assert all(each.was_shut_down_cleanly for each in node.broker.logs.directories)
        assert [(await client.fetch("t", partition=i)).high_watermark for i in range(3)] == [2, 1, 1]

    serve_and(story, seed=seed, replica_high_watermark_checkpoint_interval_ms=10)


@pytest.mark.parametrize("is_empty", [False, True])
def test_records_whose_topic_is_not_known_are_set_aside(is_empty: bool) -> None:
    """A loss of power may take partition.metadata and leave the records: perhaps those of a former topic."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        if not is_empty:
            await client.produce("t", batch("a"))
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        node.host.disk.unlink("/data/t-0/partition.metadata")
        node.boot()
        client = await node.connect()
        assert (await client.fetch("t")).high_watermark == 0
        assert (await client.produce("t", batch("b"))).base_offset == 0
        stray = [name for name in node.host.disk.list_directory("/data") if name.endswith("-stray")]
        assert len(stray) == (not is_empty)

    serve_and(story)


def test_an_error_names_the_partitions_that_lost_metadata_makes_stray(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 3)
        for index in range(3):
            await client.produce("t", batch("a"), partition=index)
        await restarted(node, "stop")
        assert not [each for each in caplog.records if each.levelname == "ERROR"]
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        directory = "/data/__cluster_metadata-0"
        for name in node.host.disk.list_directory(directory):
            if name.endswith((".log", "index", ".snapshot", "leader-epoch-checkpoint")):
                node.host.disk.unlink(f"{directory}/{name}")
        node.boot()
        await node.connect()
        (error,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert "of the 3 partitions here, the metadata names 3 not" in error and "t-0, t-1, t-2" in error

    serve_and(story)


def test_a_start_that_is_refused_leaves_the_mark_of_the_clean_stop() -> None:
    nodes: list[Node] = []
    marks: list[bytes] = []

    async def story(node: Node) -> None:
        nodes.append(node)
        await node.connect()
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        marks.append(bytes(node.host.disk.read("/data/.kafka_cleanshutdown")))
        file = node.host.disk.open("/data/__cluster_metadata-0/00000000000000000000.log")
        file.truncate(file.size() - 3)
        node.boot()
        await asyncio.sleep(10)

    with pytest.raises(SimulationFailed, match="Committed metadata may be lost"):
        serve_and(story)
    assert [bytes(nodes[0].host.disk.read("/data/.kafka_cleanshutdown"))] == marks
