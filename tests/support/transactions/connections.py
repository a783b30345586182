"""The connections of a client of transactions: one to each broker, given up after an error or if an answer is late.

A request may also be held back: the client gives its connection up at once, and the request arrives later on that
connection, while the client goes on over another one. This is how a late EndTxn comes about (KAFKA-17754).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from moldau.protocol.messages.metadata import MetadataRequest
from tests.support.cluster_clients import Bootstrap, within
from tests.support.coordinators import coordinator_of
from tests.support.history import Key
from tests.support.node import Client, Closed

LATE_S: Final = (0.02, 0.3, 1.5, 4.0)
PATIENCE_S: Final = 3.0


class Connections:
    def __init__(self, bootstrap: Bootstrap) -> None:
        self.random = bootstrap.random
        self._bootstrap = bootstrap
        self._clients: dict[int, Client] = {}
        self._leaders: dict[Key, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self.late: list[asyncio.Task[None]] = []
        """The requests in flight on connections that were given up."""

    async def leader(self, key: Key) -> int:
        """The leader in the last metadata. Raises `Closed`."""
        if key not in self._leaders:
            reply = await self._bootstrap.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9)
            self._leaders = {
                (topic.name, partition.partition_index): partition.leader_id
                for topic in reply.topics
                for partition in topic.partitions
                if partition.leader_id >= 0
            }
        if key not in self._leaders:
            raise Closed
        return self._leaders[key]

    async def coordinator(self, key_type: int, key: str) -> int:
        """The coordinator that a broker reported last. Raises `Closed`."""
        known = self._coordinators.get((key_type, key))
        if known is None:
            known = await coordinator_of(self._bootstrap.ask_any, key, key_type)
            if known < 0:
                raise Closed
            self._coordinators[key_type, key] = known
        return known

    def forget(self) -> None:
        """Forget leaders and coordinators, because one of them refused a request or is gone."""
        self._leaders.clear()
        self._coordinators.clear()

    async def ask(self, node_id: int, request: object, version: int) -> Any:
        """Send a request and return its response. Raises `Closed`; the request may arrive nevertheless."""
        client = self._clients.get(node_id)
        if client is None:
            client = self._clients[node_id] = await self._bootstrap.connect(node_id)
        try:
            return await within(client.ask(request, version), PATIENCE_S)
        except (TimeoutError, Closed) as error:
            self._clients.pop(node_id, None)
            client.close()
            raise Closed from error

    def hold_back(self, node_id: int, request: object, version: int) -> None:
        """Send a request that arrives later, and whose response is not read."""

        async def deliver() -> None:
            await asyncio.sleep(self.random.choice(LATE_S) * (0.5 + self.random.random()))
            with suppress(Closed, TimeoutError):
                client = await self._bootstrap.connect(node_id)
                try:
                    await within(client.ask(request, version), PATIENCE_S)
                finally:
                    client.close()

        self.late = [task for task in self.late if not task.done()]
        self.late.append(asyncio.get_running_loop().create_task(deliver()))

    async def back_off(self) -> None:
        self.forget()
        await self._bootstrap.back_off()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
