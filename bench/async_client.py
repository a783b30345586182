"""A client on an event loop: many connections side by side, each with one request at a time."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, TypeVar

from bench.frames import request_frame
from moldau.protocol.compiler import decode
from moldau.protocol.errors import ErrorCode

Response = TypeVar("Response")

COORDINATOR_STARTING_ERRORS: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""The errors of a broker whose coordinator is not ready yet."""


class Connection(asyncio.Protocol):
    """A connection to a broker that sends one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._reply: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4:
            return
        size = 4 + struct.unpack_from(">i", self._received)[0]
        if len(self._received) >= size and self._reply is not None:
            reply, self._received = bytes(self._received[:size]), self._received[size:]
            if not self._reply.cancelled():
                self._reply.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionError("the broker closed the connection"))

    async def ask(self, message: object, response: type[Response], version: int) -> Response:
        """Send a request in a flexible version, and return its response."""
        assert self._transport is not None
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request_frame(message, version))
        return decode(response, memoryview(await self._reply)[9:], version)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def open_connection(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection
