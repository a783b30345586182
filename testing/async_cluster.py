"""`AsyncCluster`: a `Cluster` for a test on an event loop. Each call runs in a thread, so that the event loop is not
blocked.
"""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from moldau.testing.clients.port import Headers, Partition, Record, Text
from moldau.testing.cluster import Cluster
from moldau.testing.conveniences import TIMEOUT_S
from moldau.testing.node import Node

if TYPE_CHECKING:
    from moldau.testing.faults import Clock


class AsyncNode:
    """A node of an `AsyncCluster`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        """The node with blocking methods, for code without an event loop."""

    @property
    def log(self) -> str:
        """The last 100 lines of the node's log."""
        return self.node.log

    async def kill(self) -> None:
        """End the process at once, like `Node.kill`."""
        await to_thread(self.node.kill)

    async def stop(self) -> None:
        """Stop the node cleanly, like `Node.stop`."""
        await to_thread(self.node.stop)

    async def pause(self) -> None:
        """Suspend the process until `resume`, like `Node.pause`."""
        await to_thread(self.node.pause)

    async def resume(self) -> None:
        """Let a paused process continue, like `Node.resume`."""
        await to_thread(self.node.resume)

    async def restart(self) -> None:
        """Start the node again, like `Node.restart`."""
        await to_thread(self.node.restart)


class AsyncCluster:
    """A cluster that ends with the `async with` block, and with the process of the test. The arguments are those of
    `Cluster`.
    """

    def __init__(self, nodes: int = 1, **options: Any) -> None:
        self.cluster = Cluster(nodes, **options)
        """The cluster with blocking methods: for code without an event loop, and for faults, the clock and moves of
        leaders, which this class does not have.
        """

    async def start(self) -> AsyncCluster:
        """Start the nodes, like `Cluster.start`. If the task is cancelled meanwhile, it ends only after the nodes have
        ended.
        """
        starting = asyncio.ensure_future(asyncio.to_thread(self.cluster.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            await to_thread(self.cluster.stop)
            raise
        return self

    async def stop(self) -> None:
        """End the nodes, like `Cluster.stop`."""
        await to_thread(self.cluster.stop)

    async def __aenter__(self) -> AsyncCluster:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for the setting `bootstrap_servers` of a client."""
        return self.cluster.bootstrap_servers

    def node(self, node_id: int) -> AsyncNode:
        """The node with this id; the ids begin with 1."""
        return AsyncNode(self.cluster.node(node_id))

    def client_settings(self, library: str, user: str | None = None) -> dict[str, Any]:
        """The settings with which a client of a library connects, like `Cluster.client_settings`."""
        return self.cluster.client_settings(library, user)

    async def allow(self, user: str, operation: str, *, topic: str | None = None, group: str | None = None) -> None:
        """Let a user of a secure cluster do an operation, like `Cluster.allow`."""
        await to_thread(self.cluster.allow, user, operation, topic=topic, group=group)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic, like `Cluster.create_topic`."""
        await to_thread(self.cluster.create_topic, name, partitions, replicas=replicas, settings=settings)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, like `Cluster.delete_topic`."""
        await to_thread(self.cluster.delete_topic, name)

    async def topics(self) -> list[str]:
        """The names of the topics, like `Cluster.topics`."""
        return await to_thread(self.cluster.topics)

    async def produce(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        """Write a record and wait until it is acknowledged, like `Cluster.produce`."""
        return await to_thread(
            self.cluster.produce,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    async def replay(self, topic: str, into: str, *, speed: float | None = None, clock: Clock | None = None) -> int:
        """Write the records of a topic into another one, like `Cluster.replay`."""
        return await to_thread(self.cluster.replay, topic, into, speed=speed, clock=clock)

    async def records(self, topic: str, count: int | None = None, *, timeout_s: float = TIMEOUT_S) -> list[Record]:
        """The committed records of a topic, like `Cluster.records`."""
        return await to_thread(self.cluster.records, topic, count, timeout_s=timeout_s)

    @asynccontextmanager
    async def assert_produces(
        self, topic: str, count: int | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[list[Record]]:
        """Check that records are written to a topic within the block, like `Cluster.assert_produces`."""
        block = self.cluster.assert_produces(topic, count, timeout_s=timeout_s)
        found = await to_thread(block.__enter__)
        yield found
        await to_thread(block.__exit__, None, None, None)

    async def committed(self, group: str) -> dict[Partition, int]:
        """The committed offsets of a group, like `Cluster.committed`."""
        return await to_thread(self.cluster.committed, group)
