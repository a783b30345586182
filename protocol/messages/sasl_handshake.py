"""SaslHandshake (API 17): the mechanism with which a client will authenticate."""

from __future__ import annotations

from moldau.protocol.schema import Int16, empty, message


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: str


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: Int16 = 0
    mechanisms: list[str] = empty()
