"""An HTTP client for the other processes of this machine, over their Unix sockets: sends a request, and returns the
whole response.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import h11

from moldau.broker.config.listeners import LocalAddress

ANSWER_SIZE_MAX: Final = 1 << 26
"""The maximum size (bytes) of a response."""
PIECE: Final = 1 << 16


class LocalResponse(NamedTuple):
    status: int
    body: bytes


class NoAnswer(Exception):
    """Raised if the other process does not answer. The message says why."""


async def get_response(address: LocalAddress, target: str, patience_s: float) -> LocalResponse:
    """Send a GET request to another process of this machine, and return the response. Raises `NoAnswer`, also if there
    is no response after `patience_s` seconds.
    """
    try:
        async with asyncio.timeout(patience_s):
            return await _get(address, target)
    except TimeoutError:
        raise NoAnswer(f"no answer in {patience_s:g} s") from None
    except (OSError, h11.RemoteProtocolError) as problem:
        raise NoAnswer(getattr(problem, "strerror", None) or str(problem)) from None


async def _get(address: LocalAddress, target: str) -> LocalResponse:
    reader, writer = await asyncio.open_unix_connection(address.path)
    try:
        connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method="GET", target=target, headers=[("Host", "localhost"), ("Connection", "close")])
        writer.write((connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
        status, body, size = 0, [], 0
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(PIECE))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
                size += len(event.data)
                if size > ANSWER_SIZE_MAX:
                    raise NoAnswer(f"the answer is longer than {ANSWER_SIZE_MAX} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return LocalResponse(status, b"".join(body))
    finally:
        writer.close()
