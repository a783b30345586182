"""A listener: an address, the APIs served behind it, and the connections that came through it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker.apis import Role, routes
from broker.connection import Connection

if TYPE_CHECKING:
    from broker.node import Broker

log = logging.getLogger("moldau.listener")


class Listener:
    """`receive_buffer` is shared by all listeners of the loop: parsing never spans two callbacks."""

    def __init__(
        self,
        broker: Broker,
        name: str,
        host: str | None,
        port: int,
        role: Role,
        receive_buffer: memoryview,
        *,
        request_size_max: int,
        idle_ms_max: int,
    ) -> None:
        self.broker = broker
        self.name = name
        self.host = host
        self.port = port
        self.role = role
        self.receive_buffer = receive_buffer
        self.request_memory = broker.request_memory
        self.request_size_max = request_size_max
        self.routes = routes(role)
        self.connections: dict[Connection, None] = {}
        """In order of arrival: a set would close them in a different order in every run."""
        self.created_count = 0
        """Connections ever made."""
        self.malformed_count = 0
        """Those that ended with a request that could not be parsed."""
        self._received_bytes = self._sent_bytes = 0
        """Of connections that have ended."""
        self._idle_ms_max = idle_ms_max
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def bind(self) -> None:
        """Take the address; clients are refused until `accept`."""
        self._server = await self.broker.loop.create_server(
            lambda: Connection(self), self.host, self.port, backlog=512, start_serving=False, reuse_address=True
        )

    async def accept(self) -> None:
        """Begin to serve."""
        assert self._server is not None
        await self._server.start_serving()
        self._sweep_later()

    def opened(self, connection: Connection) -> None:
        self.created_count += 1
        self.connections[connection] = None

    def closed(self, connection: Connection) -> None:
        self.malformed_count += connection.was_malformed
        self._received_bytes += connection.received_bytes
        self._sent_bytes += connection.sent_bytes
        self.connections.pop(connection, None)

    @property
    def received_bytes(self) -> int:
        """Through all connections ever made."""
        return self._received_bytes + sum(each.received_bytes for each in self.connections)

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes + sum(each.sent_bytes for each in self.connections)

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.close("the broker is stopping", logging.DEBUG)

    def _sweep_later(self) -> None:
        if self._idle_ms_max >= 0:  # a negative limit is none
            self._sweep = self.broker.loop.call_later(max(self._idle_ms_max, 1) / 1000, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections that sent nothing since the last sweep: idle for one to two times the limit.

        One that was closed by the last sweep and is still here has a peer that takes nothing more.
        """
        for connection in tuple(self.connections):
            if connection.is_closed:
                connection.abort()
            elif connection.was_active:
                connection.was_active = False
            else:
                connection.close("idle for too long", logging.DEBUG)
        self._sweep_later()
