"""What a connection uses: the resources that all connections of a node share, and the interface of its listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from moldau.broker.network.closing_log import ClosingLog
from moldau.broker.network.reply import EncodedResponse, coalesce
from moldau.broker.network.reply_memory import ReplyMemory
from moldau.broker.network.request_memory import RequestMemory
from moldau.broker.network.request_times import RequestClock
from moldau.broker.network.route import Authentication, RequestContext, ServingListener
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.primitives import Chunk
from moldau.protocol.schema import fields_of
from moldau.security.access import Access

if TYPE_CHECKING:
    from moldau.broker.network.connection import Connection


LONG_FRAME_SIZE: Final = 1 << 13
"""The bytes of a frame from which on it may decode into so many objects that an executor thread has to do it."""


FREED_AT_ONCE: Final = 256
"""The elements of a long response that are freed without a pause."""


class Transcoder:
    """Decodes long requests and encodes long responses in an executor thread: one at a time over all connections, so
    that at most one such thread competes with the event loop for the interpreter.
    """

    def __init__(self, environment: Environment, memory: RequestMemory) -> None:
        self._environment = environment
        self._memory = memory
        self._turn = asyncio.Lock()

    async def decode(self, context: RequestContext, body: bytes, serve: Callable[[object], None]) -> None:
        """Decode the bytes after the header of a request, and serve the request. They count as request memory until it
        is decoded. Raises `MalformedMessage`.
        """
        decoder = context.route.decoders[context.version]
        self._memory.keep(len(body))
        try:
            async with self._turn:
                request, _ = await self._environment.offload(partial(decoder, memoryview(body), 0))
        finally:
            self._memory.give_back(len(body))
        serve(request)

    async def encode(self, context: RequestContext, response: object, send: Callable[[object], None]) -> None:
        """Encode a long response, and send it."""
        async with self._turn:
            encoded = await self._environment.offload(partial(_encoded, context, response))
        send(encoded)


def _encoded(context: RequestContext, response: object) -> EncodedResponse:
    chunks: list[Chunk] = []
    context.route.encoders[context.version](response, chunks)
    for field in fields_of(type(response)):
        if field.is_array:
            _free(getattr(response, field.name))
    encoded = EncodedResponse(coalesce(chunks))
    _free(chunks)
    return encoded


def _free(elements: list[Any] | None) -> None:
    """Free the elements of a long list in small steps: between these the event loop gets the interpreter."""
    while elements is not None and len(elements) > FREED_AT_ONCE:
        del elements[-FREED_AT_ONCE:]


@dataclass(frozen=True, slots=True)
class ConnectionResources:
    """The resources that the connections of one node share on its event loop.

    `receive_buffer` receives the bytes of every connection: parsing never spans two callbacks. `purgatory` delays the
    checks of operations while a connection handles received bytes.
    """

    loop: asyncio.AbstractEventLoop
    environment: Environment
    spawn: Spawn
    receive_buffer: memoryview
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    purgatory: Purgatory
    clock: RequestClock
    transcoder: Transcoder


class ConnectionSecurity(Protocol):
    """The authentication that a listener requires before other requests."""

    def first_access(self, client_host: str) -> Access:
        """The access of a client before it has authenticated."""

    def authentication_of(self, connection: Connection) -> Authentication | None:
        """The SASL exchange of a connection; None where the listener has no SASL."""


class ConnectionListener(ServingListener, Protocol):
    """The listener of a connection, as the connection uses it."""

    @property
    def resources(self) -> ConnectionResources: ...

    @property
    def request_size_max(self) -> int:
        """The most bytes of one request."""

    @property
    def closing_log(self) -> ClosingLog: ...

    @property
    def security(self) -> ConnectionSecurity: ...

    def opened(self, connection: Connection) -> None:
        """A transport is connected to the connection."""

    def closed(self, connection: Connection) -> None:
        """The transport of the connection is gone."""
