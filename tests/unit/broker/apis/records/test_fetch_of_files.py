"""Fetch on a machine's own files and sockets: large reads leave as they lie in their files, cold or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.network.replies import SLICE_SIZE_MIN
from moldau.broker.node.node import Node
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.storage.files.local_files import LocalFile
from moldau.testing.ports import free_ports
from tests.support.node import PROPERTIES, Client, batch

PATIENCE_S = 30.0
LARGE = 2 * SLICE_SIZE_MIN


async def served(directory: Path, story: Callable[[Node, Client], Awaitable[None]]) -> None:
    """A node of this machine, in this process."""
    port, controller_port = free_ports(2)
    addresses = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    directories = f"{directory}/first,{directory}/second"  # without the first there is no node
    own = {"log.dirs": directories, "listeners": addresses, "advertised.listeners": addresses.partition(",")[0]}
    config = checked_config(PROPERTIES | own | {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}"})
    loop = asyncio.get_running_loop()
    environment = LocalEnvironment(loop)
    format_directories(
        environment.fs,
        config,
        cluster_id="a-cluster-of-one-node0",
        features={},
        ignore_formatted=False,
        standalone=True,
        entropy=environment.entropy,
        now_ms=environment.wall_ms(),
    )
    broker = Node(config, environment, loop)
    await broker.start()
    client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24), "test")
    await story(broker, client)
    client.close()
    await broker.stop()
    environment.close()


def run(directory: Path, story: Callable[[Node, Client], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(served(directory, story), PATIENCE_S))


@pytest.mark.parametrize("is_cold", [False, True])
def test_large_and_small_reads_give_what_was_produced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cold: bool
) -> None:
    warmed: list[int] = []
    warm = LocalFile.warm

    def note(file: LocalFile, size: int, position: int) -> None:
        warmed.append(size)
        warm(file, size, position)

    monkeypatch.setattr(LocalFile, "warm", note)
    if is_cold:
        monkeypatch.setattr(LocalFile, "is_cached", lambda file, size, position: False)

    async def story(broker: Node, client: Client) -> None:
        sent = [batch(f"{size:{size}}") for size in (LARGE, 10, SLICE_SIZE_MIN, 10, 3 * LARGE)]
        await client.create("t")
        for each in sent:
            assert (await client.produce("t", each)).error_code == 0
        for offset in (0, 1, 2, 0):
            data = await client.fetch("t", offset)
            stored = bytes(cast("bytes", data.records))
            assert len(stored) == sum(map(len, sent[offset:]))
            assert data.error_code == 0 and stored.endswith(sent[-1][16:])
        data = await client.fetch("t", 3, partition_max_bytes=len(sent[3]))
        assert bytes(cast("bytes", data.records))[21:] == sent[3][21:]
        (listener,) = (each for each in broker.listeners if each.name == "PLAINTEXT")
        assert next(iter(listener.connections))._output.direct is not None

    run(tmp_path, story)
    assert bool(warmed) == is_cold


def test_a_disk_that_does_not_give_the_records_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(broker: Node, client: Client) -> None:
        await client.create("t", 2)
        await client.produce("t", batch("x" * LARGE), partition=1)

        def fail(file: LocalFile, size: int, position: int) -> None:
            raise OSError(5, "a bad sector")

        monkeypatch.setattr(LocalFile, "is_cached", lambda file, size, position: False)
        monkeypatch.setattr(LocalFile, "warm", fail)
        data = await client.fetch("t", partition=1)
        assert data.error_code == 56 and not data.records

    run(tmp_path, story)
