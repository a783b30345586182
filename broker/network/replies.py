"""Sends the replies of a connection: each reply is encoded, waits for the replies to earlier requests, and is written.

    no reply waits  ──put──▶       the output, at once
    replies wait    ──put──▶       the end of the queue, as a ready reply
    parked          ──complete──▶  if first in the queue: the output, with the ready replies behind it
                                   if an earlier reply still waits: ready

The output collects replies while received bytes are handled, and sends them in one write: through the transport, or
directly to the socket once a reply holds a slice of a file (`DirectOutput`).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from moldau.broker.network.memory import ReplyMemory, ReplyOwner, held_size
from moldau.protocol.primitives import BytesLike, Chunk

if TYPE_CHECKING:
    from moldau.broker.network.connection_resources import ConnectionResources
    from moldau.broker.network.direct_output import DirectOutput
    from moldau.broker.network.route import ClientConnection, FrameHook, RequestContext
    from moldau.broker.runtime.pending import Pending

log = logging.getLogger("moldau.connection")

JOINED_REPLY_SIZE_MAX: Final = 1 << 15
"""The largest reply (bytes) that is joined into one piece. The pieces of larger replies are not copied."""
SLICE_SIZE_MIN: Final = JOINED_REPLY_SIZE_MAX
"""The smallest slice of a file in a reply (bytes), so that a slice is never joined with other pieces."""
KEPT_PIECE_SIZE_MIN: Final = 4096
JOINED_PIECES_MAX: Final = 2048
"""The maximum number of pieces that are joined in one call. A call holds the interpreter lock, and a long response may
have a million pieces.
"""

_REPLY_HEADER: Final = struct.Struct(">ii").pack
_FLEXIBLE_REPLY_HEADER: Final = struct.Struct(">iix").pack
WAITING_REPLIES_MAX: Final = 256
"""The number of waiting replies at which the connection is not read any more, until some are sent."""
WAITING_SIZE_MAX: Final = 1 << 26
"""If the ready replies that wait for an earlier one have more bytes than this, the connection is not read until some
are sent.
"""
TAKES_FILES: Final = "takes_files"
"""The key of `get_extra_info` whose value is true if the transport's `writelines` takes slices of files."""


class EncodedResponse:
    """A response that its handler has already encoded, in the version of the request."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[Chunk]) -> None:
        self.pieces = pieces


class QueuedReply:
    """A reply in the queue: parked until its response is there, and then ready.

    A reply is encoded as soon as its response is there, so that its size is known.
    """

    __slots__ = ("context", "held_size", "parked", "pieces")

    def __init__(self, context: RequestContext, parked: Pending[object] | None = None) -> None:
        self.context = context
        """The request's context, with which a later response is encoded."""
        self.parked = parked
        self.pieces: list[Chunk] | None = None
        self.held_size = 0
        """The memory (bytes) of the pieces of the encoded reply."""


def encode_response(context: RequestContext, response: object) -> tuple[list[Chunk], int]:
    """Encode a response with its header. Returns the pieces of the reply frame, and the size of the frame in bytes."""
    chunks: list[Chunk] = [b""]
    route = context.route
    if isinstance(response, EncodedResponse):
        chunks += response.pieces
    else:
        route.encoders[context.version](response, chunks)
    size = sum(map(len, chunks))
    if context.version >= route.reply_flexible_from:
        chunks[0] = _FLEXIBLE_REPLY_HEADER(size + 5, context.correlation_id)
    else:
        chunks[0] = _REPLY_HEADER(size + 4, context.correlation_id)
    if size <= JOINED_REPLY_SIZE_MAX:
        return [b"".join(cast("list[BytesLike]", chunks))], size + len(chunks[0])
    return coalesce(chunks), size + len(chunks[0])


def coalesce(pieces: list[Chunk]) -> list[Chunk]:
    """Join successive small pieces. Large pieces stay as they are."""
    out: list[Chunk] = []
    run: list[BytesLike] = []
    for piece in pieces:
        is_kept = len(piece) >= KEPT_PIECE_SIZE_MIN
        if not is_kept:
            run.append(cast("BytesLike", piece))
        if run and (is_kept or len(run) == JOINED_PIECES_MAX):
            out.append(b"".join(run))
            run = []
        if is_kept:
            out.append(piece)
    if run:
        out.append(b"".join(run))
    return out


class ReplyQueue:
    """The replies of one connection, sent in the order of its requests."""

    __slots__ = ("_memory", "_output", "_ready_size", "waiting")

    def __init__(self, output: Output, memory: ReplyMemory) -> None:
        self._output = output
        self._memory = memory
        self.waiting: deque[QueuedReply] = deque()
        """The replies that wait, in the order of their requests; the first one is never ready."""
        self._ready_size = 0
        """The total size (bytes) of the ready replies that wait for an earlier reply."""

    def put(self, context: RequestContext, pieces: list[Chunk], size: int) -> bool:
        """Add a ready reply after all earlier ones. Returns whether the reply has to wait for them."""
        if self.waiting:
            self.before_next()
        if self.waiting:
            reply = QueuedReply(context)
            self._make_ready(reply, pieces, size)
            self.waiting.append(reply)
            return True
        self._output.add(context, pieces, size)
        return False

    def before_next(self) -> None:
        """Tell the last reply in the queue that a later one is about to wait for it. The replies before it were told
        when it came.
        """
        last = self.waiting[-1].parked
        if last is not None and last.on_next is not None:
            last.on_next()

    def complete(self, reply: QueuedReply, pieces: list[Chunk], size: int) -> bool:
        """Send a parked reply, whose response is there now, and the ready replies after it. If an earlier reply still
        waits, this one is only marked as ready. Returns whether the reply was sent.
        """
        waiting = self.waiting
        if waiting[0] is not reply:
            self._make_ready(reply, pieces, size)
            return False
        waiting.popleft()
        self._output.add(reply.context, pieces, size)
        if waiting:
            self._send_ready()
        return True

    def is_ahead(self) -> bool:
        """Whether the connection must not be read, because too many replies or bytes wait for an earlier reply."""
        size = self._ready_size
        return (
            len(self.waiting) >= WAITING_REPLIES_MAX
            or size > WAITING_SIZE_MAX
            or (size > 0 and self._memory.room() == 0)
        )

    def parked_apis(self) -> list[str]:
        """The API names of the requests that wait for their response."""
        return [reply.context.route.name for reply in self.waiting if reply.parked is not None]

    def abandon(self) -> None:
        """Abandon all requests that wait for their response, because the client is gone."""
        waiting, self.waiting = self.waiting, deque()
        self._ready_size = 0
        for reply in waiting:
            if reply.parked is not None:
                self._output.abandoned(reply.context, reply.parked.waits_for)
                reply.parked.abandon()

    def _make_ready(self, reply: QueuedReply, pieces: list[Chunk], size: int) -> None:
        reply.pieces = pieces
        reply.parked = None
        reply.held_size = held_size(pieces)
        self._ready_size += size
        self._output.held_size += reply.held_size
        self._output.report_held_size()

    def _send_ready(self) -> None:
        """Move the ready replies at the head of the queue to the output."""
        waiting, output = self.waiting, self._output
        while waiting and (pieces := waiting[0].pieces) is not None:
            reply = waiting.popleft()
            output.ready_held_size += reply.held_size
            size = sum(map(len, pieces))
            self._ready_size -= size
            output.add(reply.context, pieces, size)


class OutputOwner(ReplyOwner, Protocol):
    """The part of a connection that its output calls."""

    client_host: str

    def pause_writing(self) -> None:
        """Stop reading, because written bytes do not leave at once."""

    def writing_drained(self) -> None:
        """Continue, because all written bytes have left."""


def step_name(context: RequestContext, what: str = "") -> str:
    """A description of what the event loop did for a request: `what`, the API, the client and the size of the
    request.
    """
    client = f"client {context.client_id!r} at {context.client_host}"
    return f"{what}{context.route.name} of {client}, {context.request_size} bytes"


class HookedFrames:
    """Successive frames that a hook answered, whose replies are written together. Its times are those of all the
    frames.
    """

    __slots__ = ("began_ns", "count", "end_position", "hook", "received_ns", "written_ns")

    def __init__(
        self, hook: FrameHook, count: int, received_ns: int, began_ns: int, written_ns: int, end_position: int
    ) -> None:
        self.hook = hook
        self.count = count
        self.received_ns = received_ns
        self.began_ns = began_ns
        self.written_ns = written_ns
        self.end_position = end_position


class Output:
    """The output of one connection. `transport` is None before the connection is made and once it is closed."""

    __slots__ = (
        "_clock",
        "_closing",
        "_hook",
        "_hooked_began_ns",
        "_hooked_received_ns",
        "_is_flush_scheduled",
        "_loop",
        "_memory",
        "_owner",
        "_ready",
        "_resources",
        "_unsent",
        "direct",
        "held_size",
        "hooked_count",
        "is_writable",
        "pieces",
        "ready_held_size",
        "sent_bytes",
        "size",
        "transport",
    )

    def __init__(self, resources: ConnectionResources, owner: OutputOwner) -> None:
        self._resources = resources
        self._loop = resources.loop
        self._memory = resources.reply_memory
        self._owner: OutputOwner | None = owner
        """The connection; None once it is lost, so that a closed connection is not part of a reference cycle."""
        self.transport: asyncio.Transport | None = None
        self._closing: asyncio.Transport | None = None
        """The transport of a closed connection, until the written bytes have been sent."""
        self.direct: DirectOutput | None = None
        """The output that bypasses the transport, once a reply holds a slice of a file."""
        self.pieces: list[Chunk] = []
        """The collected pieces that are not written yet."""
        self.size = 0
        """The size of `pieces` in bytes."""
        self.sent_bytes = 0
        self.held_size = 0
        """The memory (bytes) of the replies that waited in the queue and are not written yet."""
        self.ready_held_size = 0
        """The memory (bytes) of replies that waited in the queue and are among `pieces` now."""
        self.is_writable = True
        """False while written bytes wait for the peer to read."""
        self._is_flush_scheduled = False
        self._clock = resources.clock
        self._ready: list[RequestContext] = []
        """The requests whose replies are among `pieces`."""
        self._unsent: deque[RequestContext | HookedFrames] = deque()
        """The requests whose replies are written, but not sent completely."""
        self.hooked_count = 0
        """The number of frames answered by a hook whose replies are among `pieces`."""
        self._hook: FrameHook | None = None
        self._hooked_received_ns = self._hooked_began_ns = 0

    def begin(self, context: RequestContext, received_ns: int, size: int) -> None:
        """Begin to measure the times of a request of `size` bytes. Replies of a hook to earlier frames are written
        first, so that their times do not include this request.
        """
        if self.hooked_count:
            self.flush()
        context.received_ns = received_ns
        context.began_ns = context.decoded_ns = self._clock.latest_ns
        context.request_size = size

    def add(self, context: RequestContext, pieces: list[Chunk], size: int) -> None:
        """Add the reply to a request."""
        self.pieces += pieces
        self.size += size
        context.response_size = size
        context.end_position = self.sent_bytes + self.size
        self._ready.append(context)

    def add_hooked(self, hook: FrameHook, reply: bytes, received_ns: int) -> None:
        """Add the reply of a hook. `received_ns` is the time (ns) at which its frame was received."""
        if not self.hooked_count:
            self._hook = hook
            self._hooked_received_ns = received_ns
            self._hooked_began_ns = self._clock.latest_ns
        self.hooked_count += 1
        self.pieces.append(reply)
        self.size += len(reply)

    def encoded(self) -> None:
        """Note when the last reply was encoded. It is called if more frames are handled before the reply is written."""
        if self._ready and not self._ready[-1].encoded_ns:
            self._ready[-1].encoded_ns = self._clock.read()

    def flush(self) -> None:
        """Write the collected pieces."""
        pieces, transport = self.pieces, self.transport
        if not pieces or transport is None:
            return
        self.pieces = []
        self.sent_bytes += self.size
        self.size = 0
        written_ns = self._clock.read()
        if self.direct is not None:
            self.direct.write(pieces)
        elif len(pieces) == 1:
            transport.write(cast("BytesLike", pieces[0]))
        else:
            transport.writelines(cast("list[BytesLike]", pieces))
        # Most replies never wait, and most writes complete at once, so reply memory is not updated for them.
        if self.ready_held_size or not self.is_writable:
            self.held_size -= self.ready_held_size
            self.ready_held_size = 0
            self.report_held_size()
        self._measure(written_ns)

    def _measure(self, written_ns: int) -> None:
        """Record the times of the requests whose replies were just written. If the replies are not sent completely yet,
        keep the requests until they are.
        """
        count, hook, ready = self.hooked_count, self._hook, self._ready
        sent_ns = self._clock.read() if self.is_writable else 0
        if count and hook is not None:
            self.hooked_count = 0
            received_ns, began_ns = self._hooked_received_ns, self._hooked_began_ns
            if sent_ns:
                self._sent_hooked(hook, count, received_ns, began_ns, written_ns, sent_ns)
            else:
                self._unsent.append(HookedFrames(hook, count, received_ns, began_ns, written_ns, self.sent_bytes))
        if ready:
            for context in ready:
                context.written_ns = written_ns
                if not context.encoded_ns:
                    context.encoded_ns = written_ns
                if sent_ns:
                    self._sent(context, sent_ns)
                else:
                    self._unsent.append(context)
            ready.clear()

    def _sent(self, context: RequestContext, sent_ns: int) -> None:
        context.route.times.observe(context, sent_ns)
        clock = self._clock
        if sent_ns - context.received_ns > clock.slow.threshold_ns:
            clock.slow.finished(context, sent_ns)
        encode_ns = context.encoded_ns - context.completed_ns
        if encode_ns > clock.steps.longest_ns and not context.is_long:
            clock.steps.note_step(encode_ns, partial(step_name, context, "the encoding of "))

    def _sent_hooked(
        self, hook: FrameHook, count: int, received_ns: int, began_ns: int, written_ns: int, sent_ns: int
    ) -> None:
        hook.route.times.observe_hooked(count, received_ns, began_ns, written_ns, sent_ns)
        clock = self._clock
        if sent_ns - received_ns > clock.slow.threshold_ns and self._owner is not None:
            client = cast("ClientConnection", self._owner)
            clock.slow.hooked(hook, client, count, (received_ns, began_ns, written_ns, sent_ns))
        if written_ns - began_ns > clock.steps.longest_ns:
            name = f"{count} {hook.route.name} requests of client {hook.client_id!r}"
            clock.steps.note_step(written_ns - began_ns, lambda: name)

    def sent_until(self, position: int) -> None:
        """Record the times of the requests whose replies end at or before `position`, a count of the bytes sent on the
        connection.
        """
        unsent = self._unsent
        if not unsent or unsent[0].end_position > position:
            return
        sent_ns = self._clock.read()
        while unsent and unsent[0].end_position <= position:
            first = unsent.popleft()
            if isinstance(first, HookedFrames):
                hook, received_ns = first.hook, first.received_ns
                self._sent_hooked(hook, first.count, received_ns, first.began_ns, first.written_ns, sent_ns)
            else:
                self._sent(first, sent_ns)

    def unanswered(self, context: RequestContext) -> None:
        """Record the times of a request that was handled and has no response."""
        context.encoded_ns = context.written_ns = context.handled_ns
        self._sent(context, context.handled_ns)

    def progressed(self) -> None:
        """Record the times of the requests whose replies were sent completely, while bytes of later replies are
        unsent.
        """
        if len(self._unsent) > 1 and self.direct is not None:
            self.sent_until(self.sent_bytes - self.direct.unsent_size())

    def abandoned(self, context: RequestContext, waits_for: str) -> None:
        """Record the times of a request whose client disconnected while the request waited. The request counts as ended
        now.
        """
        now_ns = self._clock.read()
        context.waits_for = waits_for
        context.completed_ns = context.encoded_ns = context.written_ns = now_ns
        context.route.times.observe(context, now_ns)
        if now_ns - context.received_ns > self._clock.slow.threshold_ns:
            self._clock.slow.finished(context, now_ns, was_abandoned=True)

    def flush_soon(self) -> None:
        """Flush after the current callback of the event loop. One callback may complete many replies, such as those of
        a commit.
        """
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush_scheduled)

    def _flush_scheduled(self) -> None:
        self._is_flush_scheduled = False
        self.flush()

    def report_held_size(self) -> None:
        """Report to reply memory the bytes that this connection holds now."""
        if self._owner is not None:
            self._memory.holds(self._owner, self.held_size + (0 if self.is_writable else self.unsent_size()))

    def unsent_size(self) -> int:
        """The memory (bytes) of the pieces that are written but not sent."""
        transport = self.transport or self._closing
        if transport is None:
            return 0
        return transport.get_write_buffer_size() + (0 if self.direct is None else self.direct.held_size())

    def set_writable(self, is_writable: bool) -> None:
        self.is_writable = is_writable
        self.report_held_size()
        if is_writable:
            self.sent_until(self.sent_bytes)

    def sends_files(self) -> bool:
        """Whether slices of files may be written. Once true, the result stays true.

        A transport under TLS reads slices when it encrypts them; for another transport a `DirectOutput` is made. The
        result is False if the transport has no socket, as in the simulated network.
        """
        transport, owner = self.transport, self._owner
        if self.direct is None and owner is not None and transport is not None and not transport.is_closing():
            if transport.get_extra_info(TAKES_FILES):
                return True
            if transport.get_extra_info("socket") is None or transport.get_extra_info("sslcontext") is not None:
                return False
            from moldau.broker.network.direct_output import DirectOutput

            shared = self._resources
            try:
                self.direct = DirectOutput(
                    shared.loop,
                    shared.environment,
                    shared.spawn,
                    transport,
                    owner.pause_writing,
                    owner.writing_drained,
                    self.progressed,
                )
            except OSError as error:  # No file descriptor is left.
                log.warning("replies to %s are copied instead of sent from files: %s", owner.client_host, error)
        return self.direct is not None

    # The end

    def drop(self) -> asyncio.Transport | None:
        """Stop writing, and drop the collected replies. Returns the transport if the connection was open."""
        transport, self.transport = self.transport, None
        self.pieces = []
        self._ready.clear()
        self._unsent.clear()
        self.hooked_count = 0
        self.held_size = self.ready_held_size = 0
        if self._owner is not None:
            self._memory.holds(self._owner, 0)
        return transport

    def close(self, transport: asyncio.Transport) -> None:
        """Close the transport that `drop` returned, once the written bytes are sent."""
        self._closing = transport
        if self._owner is not None:
            self._memory.holds(self._owner, self.unsent_size())
        if self.direct is None:
            transport.close()
        else:
            self.direct.end()

    def abort(self) -> None:
        """Abort the transport of a closed connection: its peer does not read the bytes that were written before."""
        if self._closing is not None:
            self._closing.abort()

    def lost(self) -> None:
        """Release all references to the transport, because its connection is lost."""
        self._closing = None
        self._owner = None
        if self.direct is not None:
            self.direct.close()
