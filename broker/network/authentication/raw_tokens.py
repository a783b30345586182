"""SASL messages without a request header, as they come after SaslHandshake version 0.

Compiled with the connection: an interpreted class cannot be a compiled `FrameHook`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from moldau.broker.network.route import Binding, ClientConnection, FrameHook, RequestContext, Route

SASL_AUTHENTICATE: Final = 36
_SIZE: Final = struct.Struct(">i").pack


class RawTokens(FrameHook):
    """Takes every frame of a connection as one message of its SASL exchange."""

    def __init__(self, take: Callable[[bytes], bytes | None]) -> None:
        """`take` handles a message and returns the message to answer with; None where there is no answer now."""
        super().__init__(Route(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 0, _not_bound))
        self._take = take

    def answer(self, connection: ClientConnection, frame: memoryview) -> bytes | tuple[RequestContext, object] | None:
        message = self._take(bytes(frame))
        return b"" if message is None else _SIZE(len(message)) + message

    def learn(self, context: RequestContext, frame: memoryview, request: object) -> bool:
        raise AssertionError("a frame without a header is not a request")


def _not_bound() -> Binding:
    raise AssertionError("a message without a header has no route")
