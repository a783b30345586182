"""A node at the full size of the console's bars, as a process: many topics, partitions and groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.testing import Cluster
from moldau.testing.ports import free_ports
from tests.support.coordinators import until_coordinated
from tests.support.node import Client

TOPICS: Final = 1_000
PARTITIONS: Final = 10
GROUPS: Final = 500
PATHS: Final = (
    "/",
    "/brokers/1",
    "/brokers/1?shows=all",
    "/directories",
    "/topics",
    "/topics?q=topic-09",
    "/topics/topic-0000",
    "/topics/topic-0000?shows=all",
    "/topics/topic-0000/records",
    "/topics/topic-0000/0/producers",
    "/groups",
    "/groups?sort=name",
    "/groups/group-000",
    "/transactions",
    "/permissions",
)
"""Every page."""


class Filled:
    """A node with many topics and groups, and its console."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.console = f"http://127.0.0.1:{port}"
        self.port = port
        self.broker = cluster.bootstrap_servers.rpartition(":")

    def worked_ns(self) -> int:
        """The time (ns) for which the event loop's thread had a processor: what other processes do does not count."""
        return int(Path(f"/proc/{self.cluster.nodes[0].pid}/schedstat").read_text().split()[0])

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection(self.broker[0], int(self.broker[2]), limit=1 << 26)
        return Client(reader, writer, "filler")


async def fill(node: Filled) -> None:
    client = await node.connect()
    names = [f"topic-{number:04}" for number in range(TOPICS)]
    for begin in range(0, TOPICS, 50):
        topics = [
            CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
            for name in names[begin : begin + 50]
        ]
        reply = await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        assert not any(each.error_code for each in reply.topics)
    await asyncio.sleep(1)
    batch = build_batch([Record(key=b"k", value=b'{"paid": true}', timestamp=time.time_ns() // 1_000_000)] * 20)
    for name in names[::10]:
        for index in range(PARTITIONS):
            assert (await client.produce(name, batch, partition=index)).error_code == 0
    for number in range(GROUPS):
        group = f"group-{number:03}"
        await until_coordinated(client.ask, group)
        commits = [OffsetCommitRequestPartition(partition_index=at, committed_offset=0) for at in range(PARTITIONS)]
        topics_of_group = [
            OffsetCommitRequestTopic(name=names[(number * 2 + at) % TOPICS], partitions=commits) for at in range(2)
        ]
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics_of_group
        )
        for _ in range(100):
            reply = await client.ask(request, 8)
            if not reply.topics[0].partitions[0].error_code:
                break
            await asyncio.sleep(0.1)
    client.close()


@contextmanager
def filled_console() -> Iterator[Filled]:
    """The node, with a console that takes changes."""
    (port,) = free_ports(1)
    settings = {
        "moldau.console": "true",
        "moldau.console.writes": "true",
        "moldau.http.listener": f"http://127.0.0.1:{port}",
        "auto.create.topics.enable": "false",
    }
    with Cluster(settings=settings) as cluster:
        filled = Filled(cluster, port)
        asyncio.run(fill(filled))
        yield filled
