"""Envelope (API key 58, version 0; KIP-590): a broker forwards a client's request to the controller.

The request inside is as the client sent it, with the client's principal and address. Only an API that may be
forwarded is accepted inside; its response travels back in the same way.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from broker.metadata.refusals import error_of
from broker.network.route import RequestContext
from broker.runtime.pending import Pending
from protocol.errors import ErrorCode
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.primitives import BytesLike, Chunk, MalformedMessage, read_uvarint
from protocol.tagged_section import skip_tags

ADDRESS_SIZES: Final = (4, 16)

_HEADER: Final = struct.Struct(">hhih").unpack_from
_REPLY_HEADER: Final = struct.Struct(">i").pack
_FLEXIBLE_REPLY_HEADER: Final = struct.Struct(">ix").pack


def handle(
    services: object, context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse | Pending[EnvelopeResponse]:
    """Answer the request inside as if it had come by itself; its answer comes back with its header."""
    try:
        _check_principal(request.request_principal)
    except (MalformedMessage, IndexError):
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        inner, message = _opened(context, request)
    except (MalformedMessage, IndexError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    route = inner.route
    route.requests += 1
    response = route.handle(inner, message)
    if not isinstance(response, Pending):
        return _sealed(inner, response)
    reply: Pending[EnvelopeResponse] = Pending(response.abandon)
    response.listen(lambda response: reply.complete(_sealed(inner, response)))
    return reply


def _opened(context: RequestContext, envelope: EnvelopeRequest) -> tuple[RequestContext, object]:
    """The request inside, and what its header says. Raises `MalformedMessage` also where it may not be inside, or
    `IndexError`."""
    if len(envelope.client_host_address) not in ADDRESS_SIZES:
        raise MalformedMessage("the client's address is none")
    data = memoryview(envelope.request_data)
    if len(data) < 10:
        raise MalformedMessage("the request header is cut short")
    key, version, correlation_id, client_id_size = _HEADER(data)
    route = context.listener.routes.get(key)
    decoder = None if route is None or not route.is_forwardable else route.load(version)
    if route is None or decoder is None:
        raise MalformedMessage(f"API key {key} in version {version} is not served in an envelope")
    position = 10 + max(0, client_id_size)
    if position > len(data):
        raise MalformedMessage("the client id ends outside the request")
    client_id = str(data[10:position], "utf-8", "replace") if client_id_size >= 0 else None
    if version >= route.flexible_from:
        position = skip_tags(data, position)
    message, _ = decoder(data, position)
    return RequestContext(context.connection, route, version, correlation_id, client_id), message


def _sealed(inner: RequestContext, response: object) -> EnvelopeResponse:
    """Where this node does not lead, the envelope itself says so: it is the broker that must look for the leader."""
    if error_of(response) is ErrorCode.NOT_CONTROLLER:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    route, version = inner.route, inner.version
    header = _FLEXIBLE_REPLY_HEADER if version >= route.flexible_from else _REPLY_HEADER
    chunks: list[Chunk] = [header(inner.correlation_id)]
    route.encoders[version](response, chunks)
    return EnvelopeResponse(response_data=b"".join(cast("list[BytesLike]", chunks)))


def _check_principal(principal: bytes | None) -> None:
    """Read a serialized principal: a version, type and name as compact strings, whether a delegation token
    authenticated it, tags. No access is decided by it, but one without a name is refused. Raises `MalformedMessage` or
    `IndexError`."""
    if principal is None or principal[:2] != b"\0\0":
        raise MalformedMessage("the principal has no version that is known")
    position = 2
    for _ in ("type", "name"):
        size, position = read_uvarint(principal, position)
        position += size - 1
        if size == 0 or position >= len(principal):
            raise MalformedMessage("the principal ends within its name")
    skip_tags(principal, position + 1)
