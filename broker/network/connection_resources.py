"""The resources that all connections of a node share, and the interface of the listener that a connection uses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from moldau.broker.network.memory import ReplyMemory, RequestMemory
from moldau.broker.network.replies import EncodedResponse, coalesce
from moldau.broker.network.request_times import RequestClock
from moldau.broker.network.route import Authentication, RequestContext, ServingListener
from moldau.broker.network.turns import TurnScheduler
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.primitives import Chunk
from moldau.protocol.schema import fields_of
from moldau.security.access import Access

if TYPE_CHECKING:
    from moldau.broker.network.connection import Connection

log = logging.getLogger("moldau.connection")

LONG_FRAME_SIZE: Final = 1 << 13
"""The size (bytes) from which on a frame may have more elements than the event loop can decode in time. Such a frame is
then decoded in an executor thread.
"""


ENCODED_AT_ONCE_MAX: Final = 500
"""The most elements of a response of the controller that the event loop encodes itself, which takes about a
millisecond."""
FREED_PER_STEP: Final = 256
"""The number of elements of a long response that are freed at a time."""
CLOSING_LINES_MAX: Final = 20
"""The maximum number of lines about closed connections that one listener logs in `CLOSING_PERIOD_S`."""
CLOSING_PERIOD_S: Final = 1.0


class Transcoder:
    """Decodes long requests and encodes long responses in an executor thread. It does one at a time over all
    connections, so that at most one such thread competes with the event loop for the interpreter lock.
    """

    def __init__(self, environment: Environment, memory: RequestMemory) -> None:
        self._environment = environment
        self._memory = memory
        self._turn = asyncio.Lock()

    async def decode(self, context: RequestContext, body: bytes, serve: Callable[[object], None]) -> None:
        """Decode the body of a request in an executor thread, and pass the request to `serve`. While it waits and is
        decoded, `body` counts as request memory. Raises `MalformedMessage`.
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
        """Encode a long response in an executor thread, and pass the encoded response to `send`."""
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
    """Free the elements of a long list in small steps, between which the event loop can get the interpreter lock."""
    while elements is not None and len(elements) > FREED_PER_STEP:
        del elements[-FREED_PER_STEP:]


def has_many(response: object) -> bool:
    """Whether a response has so many elements that an executor thread should encode it. The controller's responses are
    counted, because a short request may ask it about all partitions."""
    return _count(response, ENCODED_AT_ONCE_MAX) > ENCODED_AT_ONCE_MAX


def _count(value: object, most: int) -> int:
    """The number of structs in all lists of a struct. The count stops above `most`."""
    count = 0
    for field in fields_of(type(value)):
        if field.struct is None or not field.is_array:
            continue
        for each in getattr(value, field.name) or ():
            count += 1 + _count(each, most - count)
            if count > most:
                return count
    return count


class ClosingLog:
    """Logs the connections of one listener that were closed, with the reasons. The number of lines a second is limited;
    of further connections only the number is logged.

    A client can cause any number of closed connections. Each line takes as long as a small request, and an unlimited
    number of lines would fill the disk of the log. A line below the current log level takes no time and is not counted;
    an ERROR is always logged.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._said_count = 0
        self._left_out_count = 0
        self._until_s = -CLOSING_PERIOD_S
        """The end (seconds, the loop's clock) of the current period, in which lines are counted."""

    def say(self, level: int, client_host: str, reason: str) -> None:
        if not log.isEnabledFor(level):
            return
        now_s = self._loop.time()
        if now_s >= self._until_s:
            self._until_s = now_s + CLOSING_PERIOD_S
            self._said_count = 0
        if self._said_count < CLOSING_LINES_MAX or level >= logging.ERROR:
            self._said_count += 1
            log.log(level, "closing connection from %s: %s", client_host, reason)
            return
        if not self._left_out_count:
            self._loop.call_at(self._until_s, self._sum_up)
        self._left_out_count += 1

    def _sum_up(self) -> None:
        log.warning("%d more connections were closed in the last second, not named one by one", self._left_out_count)
        self._left_out_count = 0


@dataclass(frozen=True, slots=True)
class ConnectionResources:
    """The resources that all connections of one node share on its event loop.

    `receive_buffer` receives the bytes of every connection; it is used only within one callback. `purgatory` postpones
    the checks of delayed operations while a connection handles received bytes.
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
    turns: TurnScheduler


class ConnectionSecurity(Protocol):
    """The authentication of a listener's clients, which comes before other requests."""

    def first_access(self, client_host: str) -> Access:
        """The permissions of a client that has not authenticated."""

    def authentication_of(self, connection: Connection) -> Authentication | None:
        """The SASL exchange for a new connection; None if the listener has no SASL."""


class ConnectionListener(ServingListener, Protocol):
    """The part of a listener that its connections use."""

    @property
    def resources(self) -> ConnectionResources: ...

    @property
    def request_size_max(self) -> int:
        """The maximum size (bytes) of a request."""

    @property
    def is_for_nodes(self) -> bool:
        """Whether nodes of the cluster connect to this listener."""

    @property
    def closing_log(self) -> ClosingLog: ...

    @property
    def closing(self) -> set[Connection]:
        """The closed connections whose transports still send written bytes. Each adds itself."""

    @property
    def security(self) -> ConnectionSecurity: ...

    def opened(self, connection: Connection) -> None:
        """Add a connection, whose transport is connected now."""

    def closed(self, connection: Connection) -> None:
        """Remove a connection, whose transport is gone."""
