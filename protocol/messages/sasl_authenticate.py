"""SaslAuthenticate (API 36): one message of a SASL exchange, and the server's reply to it."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int16, Int64, message, nullable, since


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0
