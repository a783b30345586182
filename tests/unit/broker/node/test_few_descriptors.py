"""A node whose process may have few files open: it refuses requests at the most, and loses no record or directory."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.testing.ports import free_ports
from tests.support.node import Client, Node, batch, serve_and

ROOT = Path(__file__).parents[4]
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
PARTITIONS = 60
PATIENCE_S = 60


def test_more_partitions_than_files_that_may_be_open() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", PARTITIONS)
        for turn in range(3):
            for index in range(PARTITIONS):
                assert (await client.produce("t", batch("a"), partition=index)).base_offset == turn
        open_files = node.broker.environment.fs.open_files
        assert open_files.count_max == 20 and len(open_files) <= 20 and open_files.closed_for_limit_count > PARTITIONS
        for index in range(PARTITIONS):
            assert (await client.fetch("t", partition=index)).high_watermark == 3

    serve_and(story, moldau_open_files_max=20)


@pytest.mark.parametrize("flush_messages", [1, 1 << 62])
def test_without_descriptors_requests_are_refused_and_everything_works_later(flush_messages: int) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", 10, flush_messages=flush_messages)
        for index in range(10):
            await client.produce("t", batch("a"), partition=index)
        for partition in node.broker.replicas:
            for _ in range(2):
                partition.log.release_files()
        disk = node.host.disk
        disk.faults.descriptors_max = 0
        for index in range(10):
            assert (await client.produce("t", batch("b"), partition=index)).error_code == STORAGE
            assert (await client.fetch("t", partition=index)).error_code == STORAGE
        await asyncio.sleep(5)
        assert (
            node.host.is_up and not node.broker.logs.offline and node.broker.logs.full_disks.descriptor_refusals >= 20
        )
        disk.faults.descriptors_max = 1 << 20
        for index in range(10):
            assert (await client.produce("t", batch("b"), partition=index)).base_offset == 1
        node.host.kill()
        node.boot()
        client = await node.connect()
        await asyncio.sleep(1)
        for index in range(10):
            assert (await client.fetch("t", partition=index)).high_watermark == 2

    serve_and(story)


def test_an_acknowledgement_that_waits_for_a_sync_waits_until_there_is_a_descriptor() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t", flush_messages=1)
        disk = node.host.disk
        partition = node.broker.replicas.get("t", 0)
        assert partition is not None
        partition.log.active.open_file()
        disk.faults.descriptors_max = 0  # the .log file is open; its directory would have to be opened to be synced
        asked = asyncio.get_running_loop().create_task(client.produce("t", batch("a")))
        await asyncio.sleep(0.5)  # less than the producer waits
        assert not asked.done() and node.broker.replicas.get("t", 0) is partition
        disk.faults.descriptors_max = 1 << 20
        assert (await asyncio.wait_for(asked, 1)).base_offset == 0
        node.host.crash()
        node.boot()
        client = await node.connect()
        assert (await client.fetch("t")).high_watermark == 1

    serve_and(story)


async def connect(port: int) -> Client:
    while True:
        try:
            return Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24), "test")
        except OSError:
            await asyncio.sleep(0.05)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


@pytest.mark.processes
def test_a_process_with_128_descriptors_serves_200_partitions(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{free_ports(1)[0]}"
    program = [
        sys.executable,
        "-m",
        "moldau.broker.cli",
        "serve",
        "--data",
        str(tmp_path / "data"),
        "--override",
        listeners,
    ]
    with (tmp_path / "log").open("wb") as output:
        node = subprocess.Popen(
            program,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
            preexec_fn=limited,
        )
    count = 200

    async def story() -> None:
        client = await connect(port)
        await client.create("t", count)
        await asyncio.sleep(0.5)
        for turn in range(2):
            for index in range(count):
                answer = await client.produce("t", batch("a"), partition=index)
                assert (answer.error_code, answer.base_offset) == (0, turn), answer.error_message
        for index in range(count):
            assert (await client.fetch("t", partition=index)).high_watermark == 2
        client.close()
        await client.writer.wait_closed()

    try:
        asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
        descriptors = len(list(Path(f"/proc/{node.pid}/fd").iterdir())) if Path("/proc").is_dir() else 0
        assert descriptors <= 128
        node.terminate()
        assert node.wait(PATIENCE_S) == 0
    finally:
        node.kill()
        node.wait()
    text = (tmp_path / "log").read_text("utf-8")
    assert "offline" not in text and "Traceback" not in text, text
