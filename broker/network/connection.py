"""One client connection: receives frames, and sends replies in the order of the requests.

All connections of a loop share one large receive buffer. A request is parsed and handled in that buffer; only a frame
that has not arrived whole moves to a buffer of its own (`PartialFrame`). Requests are pipelined: each is handled as
soon as it is complete, and its reply waits for the replies to earlier requests (`ReplyQueue`). While connections have
more requests than an iteration of the loop has time for, they take turns (`TurnScheduler`). The encoded replies leave
through `Output`; `FlowControl` decides when the connection is not read.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Final, cast

from moldau.broker.network.connection_resources import LONG_FRAME_SIZE, ConnectionListener, has_many
from moldau.broker.network.flow_control import FlowControl
from moldau.broker.network.memory import SMALL_SIZE, PartialFrame
from moldau.broker.network.replies import (
    TAKES_FILES,
    WAITING_REPLIES_MAX,
    EncodedResponse,
    Output,
    QueuedReply,
    ReplyQueue,
    encode_response,
    step_name,
)
from moldau.broker.network.route import Authentication, FrameAnswer, FrameHook, RequestContext, Route
from moldau.broker.network.turns import ConnectionRank
from moldau.broker.runtime.pending import CONTROLLER, Pending
from moldau.protocol.decoded_size import TEXT_ERRORS, LongMessage
from moldau.protocol.frames import REQUEST_HEAD
from moldau.protocol.primitives import MalformedMessage, skip_tags
from moldau.security.access import Access

log = logging.getLogger("moldau.connection")

RECEIVE_BUFFER_SIZE: Final = 1 << 20
"""The size (bytes) of the receive buffer that all connections share. It is large, so that a large request arrives in
few reads.
"""
UNSENT_SIZE_MAX: Final = 1 << 18
"""If the collected replies of a connection have more bytes than this, they are sent before its next request is handled,
and other connections are served first.
"""
ITERATION_REQUESTS_MAX: Final = 256
"""The maximum number of requests of one connection that one event loop iteration handles, even if they are short."""
UNTIMED_REQUESTS_MAX: Final = 8
"""The maximum number of requests in a row that are handled without reading the clock. A request that a hook answers
does not read the clock by itself.
"""

_SIZE: Final = struct.Struct(">i").unpack_from
_HEADER: Final = REQUEST_HEAD.unpack_from


class Connection(asyncio.BufferedProtocol):
    """One client connection as an asyncio protocol. `listener` provides the routes, the limits and the shared parts."""

    def __init__(self, listener: ConnectionListener, client_host: str) -> None:
        self.listener = listener
        self.client_host = client_host
        self.client_port = 0
        self.software = ("unknown", "unknown")
        self.was_active = True
        """Set by each receive, and cleared by the listener's periodic check for idle connections."""
        self.received_bytes = 0
        self.served: dict[tuple[str | bytes, int], int] = {}
        self.heartbeat_broker_id = -1
        self.is_of_follower = False
        self.on_lost: Callable[[], None] | None = None
        self.was_malformed = False
        """Whether the last frame was not a valid request, so that the connection is closed."""
        resources = listener.resources
        # Looked up once for each connection: the listener is not compiled, and a lookup takes as long as a call.
        self._loop = resources.loop
        self._purgatory = resources.purgatory
        self._shared = resources.receive_buffer
        self._memory = resources.request_memory
        self._clock = resources.clock
        self._turns = resources.turns
        self._received_ns = 0
        """The time (ns, the request clock) at which the last bytes were received."""
        self.routes: Mapping[int, Route] = listener.routes
        """The routes that are served now, by API key. Before the client has authenticated they are only a few."""
        self.request_size_max = listener.request_size_max
        self._partial: PartialFrame | None = None
        self._output = Output(resources, self)
        self.replies = ReplyQueue(self._output, resources.reply_memory)
        self._flow = FlowControl(self._output, self.replies)
        self._hooks: dict[int, FrameHook] | None = None
        """The hooks of this connection by API key. The dictionary is made at the first request of an API that has a
        hook: most connections have none.
        """
        self.hook: FrameHook | None = None
        """The hook that is tried for the next frame, because it learned from the last request; None if the next frame
        is decoded.
        """
        security = listener.security
        self.access: Access = security.first_access(client_host)
        self.authentication: Authentication | None = security.authentication_of(self)

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._output.transport = connected = cast("asyncio.Transport", transport)
        if not connected.get_extra_info(TAKES_FILES):
            connected.set_write_buffer_limits(high=0)  # It tells then of any bytes that do not leave at once.
        peer = transport.get_extra_info("peername")
        self.client_port = peer[1] if peer else 0
        self.listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._output.lost()
        self.listener.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        partial = self._partial
        if partial is None:
            return self._shared[:SMALL_SIZE] if self._memory.is_used_up or self._turns.is_spent else self._shared
        return partial.buffer[partial.size :]

    def buffer_updated(self, nbytes: int) -> None:
        self.was_active = True
        self.received_bytes += nbytes
        flow = self._flow
        self._received_ns = self._clock.received(self._output.transport, flow.was_paused, self._received_ns)
        flow.was_paused = False
        partial, turns = self._partial, self._turns
        if partial is None:
            if turns.is_spent:
                _keep(self, self._shared[:nbytes], has_just_arrived=True)
            else:
                began_ns = self._clock.latest_ns
                self._consume(self._shared, nbytes, turns.end_ns(began_ns))
                turns.handled(began_ns)
            return
        partial.size += nbytes
        if partial.size >= partial.wanted:
            if turns.is_spent and partial.wanted > 4:
                _wait_for_turn(self, is_single=True)
            else:
                began_ns = self._clock.latest_ns
                self._consume_partial(partial, turns.end_ns(began_ns))
                turns.handled(began_ns)
        elif partial.size == len(partial.buffer):
            partial.ask_for_room()
            if partial.is_short:
                self._flow.pause()

    def pause_writing(self) -> None:
        self._output.set_writable(False)
        self._flow.pause()

    def resume_writing(self) -> None:
        direct = self._output.direct
        if direct is None:
            self.writing_drained()
        else:
            direct.transport_drained()

    def writing_drained(self) -> None:
        self._output.set_writable(True)
        self._resume()

    # Used by handlers, the listener and the memory accounting

    @property
    def is_closed(self) -> bool:
        return self._output.transport is None

    @property
    def is_held(self) -> bool:
        return self._flow.is_held or self._flow.awaits_turn

    @property
    def sent_bytes(self) -> int:
        return self._output.sent_bytes

    def taken_size(self) -> int:
        return self._output.sent_bytes - self._output.unsent_size()

    def sends_files(self) -> bool:
        return self._output.sends_files()

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """Close the connection. Replies that are ready are still sent; requests that wait for a response are
        abandoned.
        """
        output = self._output
        transport = output.transport
        if transport is not None:
            self.listener.closing_log.say(level, self.client_host, reason)
            self.listener.closing.add(self)
            output.flush()
            self._flow.pause()
            self._forget()
            output.close(transport)

    def abort(self) -> None:
        """End a closed connection at once, because its peer does not read the written bytes."""
        self._output.abort()

    def hold(self) -> None:
        self._flow.hold()

    def throttle(self, delay_ms: int) -> None:
        if not self.is_closed:
            self._flow.throttle(self._loop, delay_ms, self._resume)

    async def hold_during(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
            self._output.flush()
        except MalformedMessage as error:
            self.was_malformed = True
            self.close(f"malformed request: {error}", logging.WARNING)
        except Exception:
            _failed(self)
        finally:
            self._flow.release()
            self._resume()

    def room_granted(self, size: int) -> None:
        """Add `size` bytes of request memory to the buffer of the partial frame, and continue to read."""
        if self._partial is not None:
            self._partial.grow(size)
        self._resume()

    # Turns

    def take_turn(self, until_ns: int) -> None:
        self._flow.awaits_turn = False
        partial = self._partial
        if partial is not None and self._flow.may_resume():
            _go_on(self, partial, until_ns)

    # Frames

    def _consume(self, buffer: memoryview, size: int, until_ns: int) -> None:
        """Handle the frames in `buffer[:size]` until the clock reads `until_ns` (ns). The frames that are left wait for
        the connection's next turn.

        Delayed operations that these requests may complete are checked only after this connection's replies have been
        sent.
        """
        purgatory = self._purgatory
        purgatory.hold_actions()
        try:
            self._handle_frames(buffer, size, until_ns)
        finally:
            try:
                purgatory.try_complete_actions()
            except Exception:
                log.exception("the check of a waiting request failed; the request waits until its timeout")

    def _consume_partial(self, partial: PartialFrame, until_ns: int) -> None:
        """Handle a frame that arrived in parts and is complete, or continue with a frame whose size is now known."""
        self._partial = None
        self._memory.release(self)
        self._consume(partial.buffer, partial.size, until_ns)

    def _handle_frames(self, buffer: memoryview, size: int, until_ns: int) -> None:
        """Handle the whole frames in `buffer[:size]` until the clock reads `until_ns` (ns), and keep the bytes that are
        left.
        """
        flow, output, clock = self._flow, self._output, self._clock
        position = 0
        left = ITERATION_REQUESTS_MAX
        may_run = True
        while size - position >= 4 and not flow.is_paused:
            (frame_size,) = _SIZE(buffer, position)
            if not 0 < frame_size <= self.request_size_max:
                self.was_malformed = True
                self.close(f"a request of {frame_size} bytes is outside 1..{self.request_size_max}")
                return
            end = position + 4 + frame_size
            if end > size:
                break
            count = 1
            try:
                run = _answered_run(self, buffer[position:size]) if may_run and end < size else None
                if run is None:
                    may_run = False  # What refuses one run refuses most: frames are not looked through for nothing.
                    self._handle(buffer[position + 4 : end])
                else:
                    count, end = run[0], position + run[1]
            except MalformedMessage as error:
                self.was_malformed = True
                self.close(f"malformed request: {error}", logging.WARNING)
                return
            except Exception:
                _failed(self)
                return
            if output.transport is None:
                return
            position = end
            left -= count
            if position < size:
                output.encoded()
                if count > 1 or left % UNTIMED_REQUESTS_MAX == 0:
                    clock.read()
                if clock.latest_ns >= until_ns or output.size > UNSENT_SIZE_MAX or left <= 0:
                    break
        if position < size:
            # The buffer is the connection's own: one with several frames is never a lent one.
            _keep(self, buffer[position:size], is_own=position > 0 and buffer is not self._shared)
        output.flush()

    def _resume(self) -> None:
        """Continue after a pause: handle the frames that have already arrived, and then read again. Nothing happens if
        there is another reason for the pause.
        """
        flow, partial, turns = self._flow, self._partial, self._turns
        if not flow.may_resume() or (partial is not None and partial.is_short):
            return
        if partial is None or partial.size < partial.wanted:
            flow.is_paused = False
            flow.read()
        elif turns.is_spent:
            _wait_for_turn(self, is_single=partial.size == partial.wanted)
        else:
            began_ns = self._clock.read()
            _go_on(self, partial, turns.end_ns(began_ns))
            turns.handled(began_ns)

    def _forget(self) -> None:
        """Read nothing more, and abandon the requests that wait for a response, because the connection is closed."""
        self._partial = None
        self._memory.release(self)
        self._flow.end()
        self._output.drop()
        self.replies.abandon()
        if self.authentication is not None:
            self.authentication.closed()
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    # Requests

    def _handle(self, frame: memoryview) -> None:
        # The hook is tried before the header is parsed: for a small produce, parsing and decoding take longer than the
        # append.
        hook = self.hook
        if hook is not None and self._answered_by(hook, frame):
            return
        try:
            key, version, correlation_id, client_id_size = _HEADER(frame)
        except struct.error as error:
            raise MalformedMessage("the request header is cut short") from error
        route = self.routes.get(key)
        if route is None:
            self.close(f"unknown API key {key}")
            return
        decoder = route.decoders.get(version) or route.load(version)
        if decoder is None:
            _refuse_version(self, route, version, correlation_id, frame)
            return
        position = 10
        client_id = None
        if client_id_size >= 0:
            position += client_id_size
            if position > len(frame):
                raise MalformedMessage("the client id ends outside the request")
            client_id = str(frame[10:position], "utf-8", TEXT_ERRORS)
        if version >= route.flexible_from:
            position = _after_tags(frame, position)
        context = RequestContext(self, route, version, correlation_id, client_id)
        self._output.begin(context, self._received_ns, len(frame))
        if len(frame) < LONG_FRAME_SIZE:
            request, _ = decoder(frame, position)
        else:
            try:
                request = route.decode_short(version, frame, position)
            except LongMessage:
                context.is_decoded_aside = True
                self.hold()
                body = bytes(frame[position:])
                decoding = self.listener.resources.transcoder.decode(context, body, partial(_serve, self, context))
                self.listener.resources.spawn(self.hold_during(decoding))
                return
        _serve(self, context, request)
        if route.hook is not None:
            self._learn(route, context, frame, request)

    def _answered_by(self, hook: FrameHook, frame: memoryview) -> bool:
        """Let the hook answer the frame, and send the reply. Returns whether the hook answered."""
        route = hook.route
        if route.is_governed:
            return False
        answer = hook.answer(self, frame)
        if answer is None:
            return False
        _send_answer(self, hook, frame, answer)
        return True

    def _learn(self, route: Route, context: RequestContext, frame: memoryview, request: object) -> None:
        """Let the frame hook of the route learn from a request that was handled, so that it may answer the next
        frame.
        """
        hooks = self._hooks
        if hooks is None:
            hooks = self._hooks = {}
        hook = hooks.get(route.key)
        if hook is None:
            assert route.hook is not None
            hook = hooks[route.key] = route.hook(route)
        if hook.learn(context, frame, request):
            self.hook = hook
        elif self.hook is hook:
            self.hook = None

    def _respond(self, context: RequestContext, response: object) -> None:
        """Respond to a request with what its handler returned: None for no response, a `Pending`, or the response."""
        clock = self._clock
        handled_ns = context.handled_ns = context.completed_ns = clock.read()
        if handled_ns - context.began_ns > clock.steps.longest_ns and not context.is_decoded_aside:
            clock.steps.note_step(handled_ns - context.began_ns, partial(step_name, context))
        if response is None:
            self._output.unanswered(context)
            return
        replies = self.replies
        pending = response if type(response) is Pending else None  # No subclass; isinstance takes as long as a call.
        if pending is not None and pending.response is not None and not context.is_long:
            response, pending = pending.response, None
        if pending is not None:
            reply = QueuedReply(context, pending)
            if replies.waiting:
                replies.before_next()
            replies.waiting.append(reply)
            pending.listen(lambda response: self._complete(reply, response))
            must_wait = True
        else:
            pieces, size = encode_response(context, response)
            must_wait = replies.put(context, pieces, size)
            if must_wait:
                context.encoded_ns = clock.read()
        if must_wait and replies.is_ahead():
            self._flow.pause()

    def _complete(self, reply: QueuedReply, response: object) -> None:
        """Send a reply that has waited for its response, and the ready replies after it. If an earlier reply still
        waits, this one is only marked as ready.
        """
        if self.is_closed:
            return
        assert reply.parked is not None, "only what was parked becomes ready"
        context = reply.context
        if context.completed_ns == context.handled_ns:
            context.completed_ns = self._clock.read()
            context.waits_for = reply.parked.waits_for
        is_encoded = isinstance(response, EncodedResponse)
        if not is_encoded and (context.is_long or (reply.parked.waits_for == CONTROLLER and has_many(response))):
            self.hold()
            encoding = self.listener.resources.transcoder.encode(context, response, partial(self._complete, reply))
            self.listener.resources.spawn(self.hold_during(encoding))
            return
        try:
            pieces, size = encode_response(context, response)
        except Exception:
            _failed(self)
            return
        replies, output = self.replies, self._output
        is_sent = replies.complete(reply, pieces, size)
        if not is_sent or replies.waiting:
            context.encoded_ns = self._clock.read()
        if not is_sent:
            return
        if replies.waiting:
            output.flush_soon()
        else:
            output.flush()  # No more replies will be added that could be sent with it.
        if self._flow.is_paused and len(replies.waiting) < WAITING_REPLIES_MAX // 2:
            self._loop.call_soon(self._resume)


def _send_answer(connection: Connection, hook: FrameHook, frame: memoryview, answer: FrameAnswer) -> None:
    """Send the hook's answer to a frame."""
    hook.route.requests += 1
    if isinstance(answer, bytes):
        if not connection.replies.waiting:
            connection._output.add_hooked(hook, answer, connection._received_ns)
            return
        context = hook.context_of(connection, frame)
        connection._output.begin(context, connection._received_ns, len(frame))
        context.handled_ns = context.completed_ns = context.encoded_ns = connection._clock.read()
        if connection.replies.put(context, [answer], len(answer)) and connection.replies.is_ahead():
            connection._flow.pause()
    else:
        context, response = answer
        connection._output.begin(context, connection._received_ns, len(frame))
        connection._respond(context, response)


def _answered_run(connection: Connection, received: memoryview) -> tuple[int, int] | None:
    """Let the hook answer the first frames of `received` together, and send the replies. Returns the number of the
    frames, and their size with the size fields. Returns None if the first frame has to be handled alone.
    """
    hook = connection.hook
    if hook is None or hook.route.is_governed or connection.replies.waiting:
        return None
    answers = hook.answer_run(connection, received, connection.request_size_max)
    if not answers:
        return None
    size = 0
    for frame, answer in answers:
        _send_answer(connection, hook, frame, answer)
        size += 4 + len(frame)
    return len(answers), size


def _keep(
    connection: Connection, received: memoryview, *, has_just_arrived: bool = False, is_own: bool = False
) -> None:
    """Keep received bytes that were not handled. If they begin with a whole frame, the connection waits for its turn,
    unless it is paused for another reason. `has_just_arrived`: whether the bytes were received now, so that one frame
    counts as a single request. `is_own`: whether only this connection uses the buffer, so that the bytes need not be
    copied.
    """
    flow, memory = connection._flow, connection._memory
    partial = PartialFrame(memory, connection, received, connection.request_size_max, is_own=is_own)
    connection._partial = partial
    if partial.is_short:
        flow.pause()
    elif partial.size >= partial.wanted and not flow.is_paused:
        _wait_for_turn(connection, is_single=has_just_arrived and partial.size == partial.wanted)


def _wait_for_turn(connection: Connection, *, is_single: bool) -> None:
    """Let a connection that keeps a whole frame wait for its turn. `is_single`: whether the client has sent only this
    one request.
    """
    flow, listener = connection._flow, connection.listener
    flow.pause()
    flow.awaits_turn = True
    if connection.authentication is not None and connection.routes is not listener.routes:
        rank = ConnectionRank.LOGIN if is_single else ConnectionRank.LOGIN_BACKLOG
    elif connection.heartbeat_broker_id >= 0 or (is_single and (connection.is_of_follower or listener.is_for_nodes)):
        rank = ConnectionRank.NODE
    else:
        rank = ConnectionRank.SINGLE if is_single else ConnectionRank.BACKLOG
    connection._turns.wait(connection, rank)


def _go_on(connection: Connection, partial: PartialFrame, until_ns: int) -> None:
    """Handle the frames that a connection keeps, then read again."""
    flow = connection._flow
    flow.is_paused = False
    connection._consume_partial(partial, until_ns)
    flow.read()


def _serve(connection: Connection, context: RequestContext, request: object) -> None:
    """Handle a decoded request."""
    if not connection.is_closed:
        route = context.route
        context.decoded_ns = connection._clock.read()
        context.request = request
        route.requests += 1
        connection._respond(context, route.handle(context, request))


def _refuse_version(connection: Connection, route: Route, version: int, correlation_id: int, frame: memoryview) -> None:
    """Refuse a request in a version that is not served. If the route has a response for that case, it is sent;
    otherwise the connection is closed.
    """
    response = route.unserved_version()
    if response is None:
        connection.close(f"{route.name} version {version} is outside {route.first_version}..{route.last_version}")
    else:
        context = RequestContext(connection, route, route.first_version, correlation_id, None)
        connection._output.begin(context, connection._received_ns, len(frame))
        connection._respond(context, response)


def _failed(connection: Connection) -> None:
    """Close a connection because a handler raised an exception, which is a bug of this broker.

    Other connections are not affected.
    """
    log.exception("a handler failed; closing the connection from %s", connection.client_host)
    connection.close("the handler failed", logging.ERROR)


def _after_tags(frame: memoryview, position: int) -> int:
    """The position after the tagged section of a request header.

    Clients send no tags, or tags that are not needed here.
    """
    try:
        return position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except IndexError:
        raise MalformedMessage("the request header is cut short") from None
