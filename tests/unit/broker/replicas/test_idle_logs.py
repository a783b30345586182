"""Periodic work on logs grows with what changes: a node at rest visits none of its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from moldau.broker.replicas.replicas import Replicas
from moldau.replication.partition import Partition
from moldau.storage.checkpoints.text_checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.log import Log
from tests.support.node import Client, Node, batch, serve_and

PARTITIONS = 25
MINUTE_S = 60
"""Longer than the intervals of all jobs on logs but retention and the expiry of producers, which take minutes."""


class WatchedReplicas:
    """Counts the partitions that a job walks over."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.visits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replicas, name)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._replicas

    def __iter__(self) -> Iterator[Partition]:
        for partition in self._replicas:
            self.visits += 1
            yield partition


def watched(node: Node) -> WatchedReplicas:
    """The replicas that the jobs of this node and its cleaner walk over."""
    replicas = WatchedReplicas(node.broker.replicas)
    for walker in (node.broker.log_jobs, node.broker.cleaner):
        cast("Any", walker)._replicas = replicas
    return replicas


async def written(node: Node, **configs: object) -> Client:
    """A topic with a record in each partition, whose logs are flushed and checkpointed."""
    client = await node.connect()
    await client.create("t", PARTITIONS, retention_ms=-1, **configs)
    for index in range(PARTITIONS):
        assert (await client.produce("t", batch("a"), partition=index)).error_code == 0
    await asyncio.sleep(2 * MINUTE_S)
    assert all(each.log.recovery_point == 1 for each in node.broker.replicas)
    return client


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_node_at_rest_visits_no_partition(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Log] = []
    checkpoints = 0

    def take(changes: ChangedLogs, count_max: int | None = None, original: Any = ChangedLogs.take_logs) -> list[Log]:
        logs: list[Log] = original(changes, count_max)
        noted.extend(logs)
        return logs

    def checkpoint(directory: LogDirectory, *arguments: Any, original: Any = LogDirectory.begin_checkpoint) -> object:
        nonlocal checkpoints
        checkpoints += 1
        return original(directory, *arguments)

    async def story(node: Node) -> None:
        client = await written(node, cleanup_policy=policy)
        replicas = watched(node)
        monkeypatch.setattr(ChangedLogs, "take_logs", take)
        monkeypatch.setattr(LogDirectory, "begin_checkpoint", checkpoint)
        await asyncio.sleep(MINUTE_S)
        assert checkpoints > 1 and (replicas.visits, noted) == (0, [])

        assert (await client.produce("t", batch("b"), partition=7)).error_code == 0
        await asyncio.sleep(MINUTE_S)
        changed = node.broker.replicas.by_name["t"][7]
        assert {*noted} == {changed.log} and replicas.visits == 0
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
            offsets = read_offsets(node.host.disk, "/data", name)
            assert [offsets["t", index] for index in range(PARTITIONS)] == [
                1 + (index == 7) for index in range(PARTITIONS)
            ]

    serve_and(story, log_retention_check_interval_ms=10 * MINUTE_S * 1000)


def test_a_log_without_records_writes_no_epoch_at_a_change_of_its_leader() -> None:
    async def story(node: Node) -> None:
        client = await written(node)
        node.stop()
        while node.host.is_up:
            await asyncio.sleep(0.1)
        node.boot()
        client = await node.connect()
        await asyncio.sleep(MINUTE_S)
        log = node.broker.replicas.by_name["t"][3].log
        assert [each.start_offset for each in log.epochs.entries] == [0, 1]
        written_epochs = node.host.disk.read(log.epochs.path)
        assert written_epochs.decode().splitlines()[1:] == ["1", "0 0"], "its second epoch has no batch"
        assert (await client.produce("t", batch("b"), partition=3)).error_code == 0
        await asyncio.sleep(0.5)
        assert node.host.disk.read(log.epochs.path).decode().splitlines()[1] == "2" and log.recovery_point == 1

    serve_and(story)
