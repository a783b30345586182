"""A reply: its place in the order of the requests, and its encoded frame."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, cast

from moldau.protocol.primitives import BytesLike, Chunk

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.runtime.pending import Pending

JOINED_REPLY_SIZE_MAX: Final = 1 << 15
"""The largest reply (bytes) that is joined into one piece. The pieces of larger replies are not copied."""
SLICE_SIZE_MIN: Final = JOINED_REPLY_SIZE_MAX
"""The smallest slice of a file in a reply (bytes), so that a slice is never joined with other pieces."""
KEPT_PIECE_SIZE_MIN: Final = 4096
JOINED_PIECES_MAX: Final = 2048
"""The most pieces that are joined in one call, which holds the interpreter: a long response has a million pieces."""

_REPLY_HEADER: Final = struct.Struct(">ii").pack
_FLEXIBLE_REPLY_HEADER: Final = struct.Struct(">iix").pack


class EncodedResponse:
    """A response that its handler has encoded, in the version of the request."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[Chunk]) -> None:
        self.pieces = pieces


class QueuedReply:
    """A place in the queue of replies.

    The reply is encoded as soon as its response is there, so that its size is known.
    """

    __slots__ = ("context", "held_size", "parked", "pieces")

    def __init__(self, context: RequestContext, parked: Pending[object] | None = None) -> None:
        self.context = context
        """The request's context, with which a later response is encoded."""
        self.parked = parked
        self.pieces: list[Chunk] | None = None
        self.held_size = 0
        """The memory (bytes) of the pieces."""


def encoded(context: RequestContext, response: object) -> tuple[list[Chunk], int]:
    """Encode a reply. Returns the pieces of its frame, and its size in bytes."""
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
    """Join runs of small pieces; large pieces stay as they are."""
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
