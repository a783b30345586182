"""Envelope (API 58): a broker forwards a client's request to the controller, with the client's principal."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Bytes, Int16, message, nullable


@message(key=58, versions="0", flexible="0+")
class EnvelopeRequest:
    request_data: Bytes
    request_principal: Annotated[Bytes | None, nullable()]
    client_host_address: Bytes


@message(key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    response_data: Annotated[Bytes | None, nullable()] = None
    error_code: Int16 = 0
