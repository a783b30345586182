"""A node with tiered storage in a simulated bucket, and what stories about it wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from moldau.broker.config.internal_topics import REMOTE_LOG_METADATA_TOPIC
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, remote_partition
from moldau.broker.tiering.tiering import Tiering
from moldau.replication.partition import Partition
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from tests.support.node import Client, Node, Story, batch, serve_and

URL: Final = "s3://bucket/prefix"
TIERED: Final[dict[str, Any]] = {
    "remote_log_storage_system_enable": "true",
    "moldau_tiered_storage": URL,
    "remote_log_manager_task_interval_ms": 1000,
    "rlmm_config_remote_log_metadata_topic_num_partitions": 3,
    "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
    "log_initial_task_delay_ms": 500,
    "log_retention_check_interval_ms": 1000,
}
PATIENCE_S: Final = 120
TOPIC_SETTINGS: Final[dict[str, Any]] = {
    "remote_storage_enable": "true",
    "internal_segment_bytes": 300,
    "retention_ms": -1,  # the records of stories are of 1970
    "file_delete_delay_ms": 0,
}


def serve_tiered(story: Story, **properties: object) -> Node:
    """Boot a broker with tiered storage and live through the story."""
    return serve_and(story, **(TIERED | properties))


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    for _ in range(PATIENCE_S * 10):
        if holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}")


async def tiered_topic(client: Client, name: str = "t", **settings: Any) -> bytes:
    return await client.create(name, **(TOPIC_SETTINGS | settings))


async def fill(client: Client, topic: str = "t", count: int = 20, first: int = 0) -> None:
    """Write batches of two records, a few to each segment."""
    for number in range(first, first + count):
        answer = await client.produce(topic, batch(f"a{number:06}", f"b{number:06}"))
        assert answer.error_code == 0


def tiering_of(node: Node) -> Tiering:
    assert node.broker.tiering is not None
    return node.broker.tiering


def partition_of(node: Node, topic: str = "t") -> Partition:
    partition = node.broker.replicas.get(topic, 0)
    assert partition is not None
    return partition


def followed_of(node: Node, topic: str = "t") -> FollowedRemoteLog:
    followed = tiering_of(node).reader.get(remote_partition(partition_of(node, topic)))
    assert followed is not None
    return followed


def copied(node: Node, topic: str = "t") -> list[RemoteSegment]:
    """The remote segments that can be read."""
    found = tiering_of(node).reader.get(remote_partition(partition_of(node, topic)))
    return [] if found is None else found.remote_log.read_segments()


async def remote_topic(node: Node) -> Client:
    """Write a topic of 40 records, until its rolled segments are in remote storage alone."""
    client = await node.connect()
    await tiered_topic(client, local_retention_bytes=1)
    await fill(client)
    log = partition_of(node).log
    await until(lambda: log.segments == [log.active], "the copied segments are deleted here")
    return client


def is_copied(node: Node, topic: str = "t") -> bool:
    """Whether all segments but the active one are in remote storage."""
    log = partition_of(node, topic).log
    return len(log.segments) > 1 and log.tiered_end_offset == log.active.base_offset


def metadata_records(node: Node) -> int:
    """The number of records in the metadata topic."""
    return sum(each.log.end_offset for each in node.broker.replicas if each.topic == REMOTE_LOG_METADATA_TOPIC)
