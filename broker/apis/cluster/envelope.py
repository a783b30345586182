"""Envelope (API key 58, version 0; KIP-590): a broker forwards a client's request to the controller.

The envelope has the request as the client sent it, with the client's principal and address. Only an API that may be
forwarded is accepted. The response is returned in an envelope too.
"""

from __future__ import annotations

import logging
import struct
from typing import Final, cast

from moldau.broker.apis.api import Api
from moldau.broker.apis.forwarding import StandInConnection
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.services import Services
from moldau.broker.metadata.enveloping import read_principal
from moldau.broker.metadata.refusals import error_of
from moldau.broker.network.replies import EncodedResponse
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import EXECUTOR, Pending, Reply
from moldau.protocol.decoded_size import TEXT_ERRORS, LongMessage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import REQUEST_HEAD
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.primitives import BytesLike, Chunk, MalformedMessage, skip_tags
from moldau.security.access import AclOperation
from moldau.security.principal import Principal

log = logging.getLogger("moldau.connection")

ADDRESS_SIZES: Final = (4, 16)

_REPLY_HEADER: Final = struct.Struct(">i").pack
_FLEXIBLE_REPLY_HEADER: Final = struct.Struct(">ix").pack


def handle(services: Services, context: RequestContext, request: EnvelopeRequest) -> Reply[EnvelopeResponse]:
    """Handle the enclosed request as if its client had sent it here. The response is enclosed with its own header. Like
    other requests, one that takes long to decode or encode is decoded or encoded in an executor thread."""
    try:
        principal = read_principal(request.request_principal)
    except (MalformedMessage, IndexError):
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        inner, body = _opened(context, request, principal)
        message = inner.route.decode_short(inner.version, body, 0)
    except LongMessage:
        reply: Pending[EnvelopeResponse] = Pending(waits_for=EXECUTOR)
        _answer_failure(inner, reply)
        services.spawn(inner.connection.hold_during(_decoded_aside(services, inner, bytes(body), reply)))
        return reply
    except (MalformedMessage, IndexError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _answered(services, inner, message)


def _answered(services: Services, inner: RequestContext, message: object) -> Reply[EnvelopeResponse]:
    """Handle the enclosed request."""
    inner.route.requests += 1
    try:
        response = inner.route.handle(inner, message)
    except Exception:
        return _failed(inner)
    if not isinstance(response, Pending):
        return _sealed(inner, response)
    reply: Pending[EnvelopeResponse] = Pending(response.abandon, response.waits_for)
    _answer_failure(inner, reply)

    def seal(response: object) -> None:
        if inner.is_long and error_of(response) is not ErrorCode.NOT_CONTROLLER:
            encoding = services.transcoder.encode(inner, response, lambda long: reply.complete(_sealed(inner, long)))
            services.spawn(inner.connection.hold_during(encoding))
        else:
            reply.complete(_sealed(inner, response))

    response.listen(seal)
    return reply


async def _decoded_aside(
    services: Services, inner: RequestContext, body: bytes, reply: Pending[EnvelopeResponse]
) -> None:
    """Decode the enclosed request in an executor thread, then handle it."""

    def serve(message: object) -> None:
        reply.follow(_answered(services, inner, message))

    try:
        await services.transcoder.decode(inner, body, serve)
    except (MalformedMessage, IndexError):
        reply.complete(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))


def _answer_failure(inner: RequestContext, reply: Pending[EnvelopeResponse]) -> None:
    """If later work on the enclosed request fails, answer it as if its handler had failed."""

    def answer() -> None:
        if not reply.is_complete:
            reply.complete(EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))

    assert isinstance(inner.connection, StandInConnection)
    inner.connection.answer_failure = answer


def _opened(
    context: RequestContext, envelope: EnvelopeRequest, principal: Principal
) -> tuple[RequestContext, memoryview]:
    """Parse the header of the enclosed request. Returns its context, and the bytes after the header. Raises
    `MalformedMessage` or `IndexError` if the header is malformed, and `MalformedMessage` if the API may not be
    enclosed."""
    if len(envelope.client_host_address) not in ADDRESS_SIZES:
        raise MalformedMessage("the client's address is none")
    data = memoryview(envelope.request_data)
    if len(data) < REQUEST_HEAD.size:
        raise MalformedMessage("the request header is cut short")
    key, version, correlation_id, client_id_size = REQUEST_HEAD.unpack_from(data)
    route = context.listener.routes.get(key)
    if route is None or not route.is_forwardable or route.load(version) is None:
        raise MalformedMessage(f"API key {key} in version {version} is not served in an envelope")
    position = 10 + max(0, client_id_size)
    if position > len(data):
        raise MalformedMessage("the client id ends outside the request")
    client_id = str(data[10:position], "utf-8", TEXT_ERRORS) if client_id_size >= 0 else None
    if version >= route.flexible_from:
        position = skip_tags(data, position)
    from ipaddress import ip_address

    host = str(ip_address(bytes(envelope.client_host_address)))
    client = StandInConnection(context.listener, context.listener.access_of(principal, host), host)
    return RequestContext(client, route, version, correlation_id, client_id), data[position:]


def _sealed(inner: RequestContext, response: object) -> EnvelopeResponse:
    """Enclose the response to a request in the response to its envelope. NOT_CONTROLLER becomes the error of the
    envelope itself, so that the broker that sent it looks for the leader. A response that cannot be encoded
    becomes UNKNOWN_SERVER_ERROR."""
    if not isinstance(response, EncodedResponse) and error_of(response) is ErrorCode.NOT_CONTROLLER:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    route, version = inner.route, inner.version
    header = _FLEXIBLE_REPLY_HEADER if version >= route.flexible_from else _REPLY_HEADER
    chunks: list[Chunk] = [header(inner.correlation_id)]
    if isinstance(response, EncodedResponse):
        chunks += response.pieces
    else:
        try:
            route.encoders[version](response, chunks)
        except Exception:
            return _failed(inner)
    return EnvelopeResponse(response_data=b"".join(cast("list[BytesLike]", chunks)))


def _failed(inner: RequestContext) -> EnvelopeResponse:
    """Log an exception, and answer UNKNOWN_SERVER_ERROR. Only the enclosed request ends: its connection carries the
    broker's heartbeats and the requests of its other clients."""
    log.exception("a handler failed; its request came in an envelope for %s", inner.client_host)
    return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


API: Final = Api(EnvelopeRequest, controller=handle, needs=needs_cluster(AclOperation.CLUSTER_ACTION))
