"""One client connection: frames in, replies out, in the order of the requests.

All connections of a loop share one large receive buffer. A request is parsed, and handled, where it lies; only a frame
that has not arrived whole moves to a buffer of its own. Requests are pipelined: each is handled as soon as it is
complete, and replies wait for those before them.

"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Final, cast

from broker.network.reply import Reply, encoded
from broker.network.reply_memory import held_size
from broker.network.request_memory import SMALL_SIZE
from broker.requests.apis import API_VERSIONS, PRODUCE, Route
from broker.requests.handlers.produce import answer_repeat, is_plain, learn, repeat
from broker.requests.repeated_produce import Place, RepeatedProduce, place_of
from broker.runtime.pending import Pending
from protocol.messages.produce import ProduceRequest
from protocol.primitives import BytesLike, Chunk, MalformedMessage
from protocol.tagged_section import skip_tags

if TYPE_CHECKING:
    from broker.network.direct_output import DirectOutput
    from broker.network.listener import Listener

log = logging.getLogger("moldau.connection")

RECEIVE_BUFFER_SIZE: Final = 1 << 20
"""Bytes of the buffer that all connections share: large, so that a large request arrives in few reads."""
PARTIAL_SIZE_FIRST: Final = 1 << 16
"""A partial frame gets this much at first and doubles as bytes arrive: a claimed size alone allocates nothing."""
WAITING_REPLIES_MAX: Final = 256
"""With so many replies waiting, a connection is not read until some have left."""
WAITING_SIZE_MAX: Final = 1 << 26
"""Nor with so many bytes of replies that are ready and wait for one before them."""
UNSENT_SIZE_MAX: Final = 1 << 18
"""With so many bytes of replies together others get their turn as well, and a slow reader is noticed."""
TURN_REQUESTS_MAX: Final = 256
"""So many requests of one connection are handled before others get their turn: timers must not wait for a burst."""

_SIZE: Final = struct.Struct(">i").unpack_from
_HEADER: Final = struct.Struct(">hhih").unpack_from


class RequestContext:
    """What a handler may know of a request besides its message."""

    __slots__ = ("client_id", "connection", "correlation_id", "route", "version")

    def __init__(self, connection: Connection, route: Route, version: int, correlation_id: int, client_id: str | None):
        self.connection = connection
        self.route = route
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def listener(self) -> Listener:
        """The listener that the client came through: it decides which addresses the client is told."""
        return self.connection.listener

    @property
    def client_host(self) -> str:
        return self.connection.client_host


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection; `listener` gives it the routes, limits and the broker."""

    def __init__(self, listener: Listener, client_host: str) -> None:
        self.listener = listener
        self.client_host = client_host
        self.client_port = 0
        self.software = ("unknown", "unknown")
        """Name and version of the client's library, as its ApiVersions request says."""
        self.was_active = True
        """Set by each request, cleared by the listener's sweep for idle connections."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.served: dict[tuple[str | bytes, int], int] = {}
        """By Fetch replies: the offset that was asked for last in each partition with records; ~offset where it was
        asked for again, and looked at."""
        self.beats_for = -1
        """The broker whose heartbeats come this way, -1 for none."""
        self.was_malformed = False
        """Its last request could not be parsed."""
        self._transport: asyncio.Transport | None = None
        self._shared = listener.receive_buffer
        self._memory = listener.request_memory
        self._partial: memoryview | None = None
        self._partial_size = 0
        self._partial_wanted = 0
        """With so many bytes there is a whole frame, or its size."""
        self._is_short = False
        """There is no room for the rest of the partial frame yet."""
        self._replies: deque[Reply] = deque()
        self._waiting_size = 0
        """Bytes of the replies that are ready and wait for one before them."""
        self._reply_memory = listener.reply_memory
        self._held_size = 0
        """Memory of the replies that were parked and have not been written."""
        self._out_held_size = 0
        """Of those that are in `_out`."""
        self._out: list[Chunk] = []
        self._out_size = 0
        self._direct: DirectOutput | None = None
        """The way past the transport, for all that leaves once a reply holds a piece of a file."""
        self._closing: asyncio.Transport | None = None
        """The transport once the connection is closed, until what was written has left."""
        self._is_writable = True
        self._is_stopped = False
        self._is_held = False
        """Its requests wait until one of them has been examined beside the loop."""
        self._is_flush_scheduled = False
        self._repeated: RepeatedProduce | None = None
        """What the last produce requests had in common."""
        self._last_place: Place | None = None

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.client_port = peer[1] if peer else 0
        self.listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._closing = None
        if self._direct is not None:
            self._direct.close()
        self.listener.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._partial is None:
            return self._shared[:SMALL_SIZE] if self._memory.is_used_up else self._shared
        return self._partial[self._partial_size :]

    def buffer_updated(self, nbytes: int) -> None:
        self.was_active = True
        self.received_bytes += nbytes
        if self._partial is None:
            self._consume(self._shared, nbytes)
            return
        self._partial_size += nbytes
        if self._partial_size >= self._partial_wanted:
            self._consume_partial()
        elif self._partial_size == len(self._partial):
            self._enlarge(self._more_room(len(self._partial)))

    def pause_writing(self) -> None:
        self._is_writable = False
        self._reply_memory.holds(self, self._held_size + self.unsent_size())
        self._stop_reading()

    def resume_writing(self) -> None:
        if self._direct is None:
            self._drained()
        else:
            self._direct.transport_drained()

    def _drained(self) -> None:
        self._is_writable = True
        self._reply_memory.holds(self, self._held_size)
        self._resume_reading()

    def unsent_size(self) -> int:
        """Memory of what was written and has not left."""
        transport = self._transport or self._closing
        if transport is None:
            return 0
        return transport.get_write_buffer_size() + (0 if self._direct is None else self._direct.held_size())

    def sends_files(self) -> bool:
        """Whether a reply may hold slices of files instead of their bytes; the answer yes holds for good.

        Not where bytes are encrypted on their way, nor where there is no socket (the simulated network).
        """
        transport = self._transport
        if self._direct is None and transport is not None and not transport.is_closing():
            if transport.get_extra_info("socket") is None or transport.get_extra_info("sslcontext") is not None:
                return False
            from broker.network.direct_output import DirectOutput

            try:
                self._direct = DirectOutput(self.listener.broker, transport, self.pause_writing, self._drained)
            except OSError as error:  # no descriptor is left
                log.warning("replies to %s are copied: %s", self.client_host, error)
        return self._direct is not None

    # Requests

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """End the connection: replies that are ready leave, those that wait for something are given up."""
        transport = self._transport
        if transport is not None:
            self.listener.closing_log.say(level, self.client_host, reason)
            self._flush()
            self._stop_reading()
            self._forget()
            self._closing = transport
            self._reply_memory.holds(self, self.unsent_size())
            if self._direct is None:
                transport.close()
            else:
                self._direct.end()

    def abort(self) -> None:
        """End at once a connection that was closed, and whose peer does not take what was written."""
        if self._closing is not None:
            self._closing.abort()

    def hold(self) -> None:
        """Handle no further request before `release`."""
        self._is_held = True
        self._stop_reading()

    async def beside(self, work: Coroutine[object, object, None]) -> None:
        """Until its end the connection, which is held, stays so."""
        try:
            await work
        except Exception:
            self._failed()
        finally:
            self.release()

    def release(self) -> None:
        self._is_held = False
        self._resume_reading()

    @property
    def is_closed(self) -> bool:
        return self._transport is None

    @property
    def is_held(self) -> bool:
        """Nothing is read from it until one of its requests has been examined."""
        return self._is_held

    def parked_apis(self) -> list[str]:
        """The APIs of the requests that wait for something."""
        waiting = (reply.context for reply in self._replies if reply.parked is not None)
        return [context.route.api.name for context in waiting if context is not None]

    def _forget(self) -> None:
        """Nobody is there any more to be answered: what waits for these replies need not."""
        self._transport = None
        self._partial = None
        self._memory.let_go(self)
        self._out = []
        self._held_size = self._out_held_size = 0
        self._reply_memory.holds(self, 0)
        replies, self._replies = self._replies, deque()
        for reply in replies:
            if reply.parked is not None:
                reply.parked.abandon()

    def _consume(self, buffer: memoryview, size: int) -> None:
        """Handle what arrived; whoever waited for that looks when our own replies are on their way."""
        wakes = self.listener.broker.wakes
        wakes.gather()
        try:
            self._handle_frames(buffer, size)
        finally:
            try:
                wakes.let_go()
            except Exception:
                log.exception("a parked request failed to look again; it waits until its time is up")

    def _handle_frames(self, buffer: memoryview, size: int) -> None:
        """Handle the whole frames in `buffer[:size]` and keep what is left of it."""
        position = 0
        left = TURN_REQUESTS_MAX
        while size - position >= 4 and not self._is_stopped:
            (frame_size,) = _SIZE(buffer, position)
            if not 0 < frame_size <= self.listener.request_size_max:
                self.was_malformed = True
                self.close(f"a request of {frame_size} bytes is outside 1..{self.listener.request_size_max}")
                return
            end = position + 4 + frame_size
            if end > size:
                break
            try:
                self._handle(buffer[position + 4 : end])
            except MalformedMessage as error:
                self.was_malformed = True
                self.close(f"malformed request: {error}", logging.WARNING)
                return
            except Exception:
                self._failed()
                return
            if self._transport is None:
                return
            position = end
            left -= 1
            if (self._out_size > UNSENT_SIZE_MAX or left == 0) and position < size:
                self._let_others()
        if position < size:
            self._keep(buffer, position, size)
        self._flush()

    def _consume_partial(self) -> None:
        """A frame that came in parts is here, or at least its size."""
        partial = self._partial
        assert partial is not None
        self._partial = None
        self._memory.let_go(self)
        self._consume(partial, self._partial_size)

    def _keep(self, buffer: memoryview, position: int, size: int) -> None:
        """Move the bytes of an unfinished frame to a buffer of its own."""
        left = size - position
        wanted = 4 + _SIZE(buffer, position)[0] if left >= 4 else 4
        if wanted - 4 > self.listener.request_size_max:
            wanted = 4  # enough to refuse it, once it is its turn
        self._partial_size = left
        self._partial_wanted = wanted
        lent = self._memory.lend(self, wanted) if left < wanted else None
        if lent is not None:
            lent[:left] = buffer[position:size]
            self._partial = lent
            return
        if left < wanted <= SMALL_SIZE:
            room = wanted - left
            self._memory.hold(self, wanted)
        else:
            self._memory.hold(self, left)
            room = self._more_room(left) if wanted > left else 0
        own = memoryview(bytearray(left + room))
        own[:left] = buffer[position:size]
        self._partial = own

    def _more_room(self, size: int) -> int:
        """What a buffer of this size may grow by; 0 where the connection must wait for room.

        It is what is still to come, or as much as is here already: a claimed size alone allocates next to nothing.
        """
        lacking = self._partial_wanted - size
        room = min(lacking, max(size, PARTIAL_SIZE_FIRST))
        if self._memory.take(self, room, lacking):
            return room
        self._is_short = True
        self._stop_reading()
        return 0

    def room_granted(self, size: int) -> None:
        """There is room again, and so much of it is this connection's."""
        self._is_short = False
        self._enlarge(size)
        self._resume_reading()

    def _enlarge(self, size: int) -> None:
        old = self._partial
        if old is not None and size:
            own = memoryview(bytearray(len(old) + size))
            own[: len(old)] = old
            self._partial = own

    def _handle(self, frame: memoryview) -> None:
        repeated = self._repeated
        if repeated is not None and self._repeat(repeated, frame):
            return
        try:
            key, version, correlation_id, client_id_size = _HEADER(frame)
        except struct.error as error:
            raise MalformedMessage("the request header is cut short") from error
        route = self.listener.routes.get(key)
        if route is None:
            self.close(f"unknown API key {key}")
            return
        decoder = route.decoders.get(version) or route.load(version)
        if decoder is None:
            self._refuse_version(route, version, correlation_id)
            return
        position = 10
        client_id = None
        if client_id_size >= 0:
            position += client_id_size
            if position > len(frame):
                raise MalformedMessage("the client id ends outside the request")
            client_id = str(frame[10:position], "utf-8", "replace")
        if version >= route.flexible_from:
            position = _after_tags(frame, position)
        request, _ = decoder(frame, position)
        context = RequestContext(self, route, version, correlation_id, client_id)
        assert route.handle is not None and route.sampled is not None
        requests = route.requests = route.requests + 1
        handle = route.handle if requests < route.sample_at else route.sampled
        self._take(context, handle(self.listener.broker, context, request))
        if key == PRODUCE:
            self._learn(context, frame, request)

    def _take(self, context: RequestContext, response: object) -> None:
        """What a handler gave: nothing, a reply that is not ready yet, or the response."""
        if response is None:
            return
        if type(response) is Pending:
            reply = Reply(context, response)
            self._replies.append(reply)
            response.listen(lambda response: self._complete(reply, response))
            if self._is_ahead():
                self._stop_reading()
        else:
            self._answer(context, response)

    def _is_ahead(self) -> bool:
        """Whether too much waits for replies before it. Each reply that leaves asks again."""
        size = self._waiting_size
        return (
            len(self._replies) >= WAITING_REPLIES_MAX
            or size > WAITING_SIZE_MAX
            or (size > 0 and self._reply_memory.room() == 0)
        )

    def _learn(self, context: RequestContext, frame: memoryview, request: object) -> None:
        """The second produce in a row to the same partition is worth remembering: there will be more."""
        assert isinstance(request, ProduceRequest)
        place = place_of(request)
        is_second = place is not None and place == self._last_place
        self._last_place = place
        self._repeated = learn(self.listener.broker, context, frame, request) if is_second else None

    def _repeat(self, repeated: RepeatedProduce, frame: memoryview) -> bool:
        """Handle a produce that is as the ones before it; False where it is not, or is the one to be measured."""
        records = repeated.records_in(frame)
        if records is None:
            return False
        broker = self.listener.broker
        route = self.listener.routes[PRODUCE]
        if route.requests + 1 >= route.sample_at:
            return False
        result = repeat(broker, repeated, records)
        if result is None:
            self._repeated = None
            return False
        route.requests += 1
        if not is_plain(repeated, result):
            context = RequestContext(self, route, repeated.version, _SIZE(frame, 4)[0], None)
            self._take(context, answer_repeat(broker, context, repeated, result))
            return True
        answer = repeated.reply(frame, result)
        self._send(None, [answer], len(answer))
        return True

    def _refuse_version(self, route: Route, version: int, correlation_id: int) -> None:
        """ApiVersions answers an unknown version in version 0 with its own range; nothing else can be answered."""
        if route.api.key != API_VERSIONS:
            self.close(f"{route.api.name} version {version} is outside {route.api.first}..{route.api.last}")
            return
        from broker.requests.handlers.api_versions import unsupported_version

        route.load(0)
        self._answer(RequestContext(self, route, 0, correlation_id, None), unsupported_version(route.api))

    def _failed(self) -> None:
        """A bug of ours ends this connection and no other."""
        log.exception("a handler failed; closing the connection from %s", self.client_host)
        self.close("the handler failed", logging.ERROR)

    # Replies

    def _answer(self, context: RequestContext, response: object) -> None:
        """Send a response that is there at once."""
        pieces, size = encoded(context, response)
        self._send(context, pieces, size)

    def _send(self, context: RequestContext | None, pieces: list[Chunk], size: int) -> None:
        """Behind the replies before it. `context`: only what waits for a response needs one."""
        if self._replies:
            reply = Reply(context)
            self._keep_back(reply, pieces, size)
            self._replies.append(reply)
            if self._is_ahead():
                self._stop_reading()
        else:
            self._out += pieces
            self._out_size += size

    def _keep_back(self, reply: Reply, pieces: list[Chunk], size: int) -> None:
        """The reply is there, and others are before it."""
        reply.pieces = pieces
        self._waiting_size += size
        reply.held_size = held_size(pieces)
        self._held_size += reply.held_size
        self._tell_held()
        reply.parked = None

    def _complete(self, reply: Reply, response: object) -> None:
        """A parked reply is there: send it, and those behind it, unless one before it still waits."""
        if self._transport is None:
            return
        assert reply.context is not None, "only what was parked becomes ready"
        try:
            pieces, size = encoded(reply.context, response)
        except Exception:
            self._failed()
            return
        replies = self._replies
        if replies[0] is not reply:
            self._keep_back(reply, pieces, size)
            return
        replies.popleft()
        self._out += pieces
        self._out_size += size
        if replies:
            self._take_ready()
        if replies:
            self._flush_soon()
        else:
            self._flush()  # nothing more will come to leave with it
        if self._is_stopped and len(replies) < WAITING_REPLIES_MAX // 2:
            self.listener.broker.loop.call_soon(self._resume_reading)

    def _take_ready(self) -> None:
        """Put out the replies that nothing stands before any more."""
        replies = self._replies
        while replies and (pieces := replies[0].pieces) is not None:
            self._out_held_size += replies.popleft().held_size
            size = sum(map(len, pieces))
            self._waiting_size -= size
            self._out += pieces
            self._out_size += size

    def _flush_soon(self) -> None:
        """Once the current callback is done: a commit completes replies by the dozen."""
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self.listener.broker.loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._is_flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None:
            self._out = []
            self.sent_bytes += self._out_size
            self._out_size = 0
            if self._direct is not None:
                self._direct.write(out)
            elif len(out) == 1:
                self._transport.write(cast("BytesLike", out[0]))
            else:
                self._transport.writelines(cast("list[BytesLike]", out))
            if self._out_held_size or not self._is_writable:
                self._held_size -= self._out_held_size
                self._out_held_size = 0
                self._tell_held()

    def _tell_held(self) -> None:
        self._reply_memory.holds(self, self._held_size + (0 if self._is_writable else self.unsent_size()))

    # Back-pressure

    def _let_others(self) -> None:
        """Go on with the requests that are here already in the loop's next round."""
        self._stop_reading()
        self.listener.broker.loop.call_soon(self._resume_reading)

    def _stop_reading(self) -> None:
        if not self._is_stopped and self._transport is not None and not self._transport.is_closing():
            self._is_stopped = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        """Handle what arrived meanwhile, then read on."""
        if not self._is_stopped or not self._is_writable or self._transport is None or self._transport.is_closing():
            return
        if self._is_short or self._is_held or self._is_ahead():
            return
        self._is_stopped = False
        if self._partial is not None and self._partial_size >= self._partial_wanted:
            self._consume_partial()
        if not self._is_stopped and self._transport is not None:
            self._transport.resume_reading()


def _after_tags(frame: memoryview, position: int) -> int:
    """The position after the tagged section of a request header; clients send none, or ones we need not know."""
    try:
        return position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except IndexError:
        raise MalformedMessage("the request header is cut short") from None
