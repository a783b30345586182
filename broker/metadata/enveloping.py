"""Envelopes: the requests of clients that a broker forwards to the controller, with the principal and address of the
client.
"""

from __future__ import annotations

from typing import Final

from moldau.kraft.controller.context import STRICT_QUOTA_VERSIONS
from moldau.protocol.frames import request_frame, response_of
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.primitives import MalformedMessage, read_uvarint, skip_tags, uvarint
from moldau.security.principal import NODE, Principal, Requester

CORRELATION_ID: Final = 0
"""The correlation id of the enclosed request; the envelope has one of its own."""
_VERSION_0 = b"\0\0"


class ForwardedClient(NamedTuple):
    """The client on whose behalf a broker forwards a request."""

    principal: Principal
    host: str
    client_id: str | None


def requester_of(request: object, version: int | None, client: ForwardedClient | None) -> Requester:
    """The requester in whose name the controller decides: the client, or this node for a request without a client.

    A controller mutation quota limits only the requests of clients (KIP-599). A broker requests the creation of
    internal topics, and automatic creation of topics, in its own name.
    """
    if client is None:
        return NODE
    strict_since = STRICT_QUOTA_VERSIONS.get(type(request))
    is_strict = None if strict_since is None or version is None else version >= strict_since
    return Requester(client.principal, client.client_id or "", is_strict)


def enveloped_request(request: object, version: int, client: ForwardedClient) -> EnvelopeRequest:
    """Encode a request with its header, and enclose it in an envelope."""
    client_id = None if client.client_id is None else client.client_id.encode()
    return EnvelopeRequest(
        request_data=request_frame(request, version, CORRELATION_ID, client_id),
        request_principal=written_principal(client.principal),
        client_host_address=_address(client.host),
    )


def enclosed_response(envelope: EnvelopeResponse, request_class: type[object], version: int) -> object:
    """Decode the enclosed response. Raises `MalformedMessage`."""
    if envelope.response_data is None:
        raise MalformedMessage("an envelope without a response")
    return response_of(request_class, version, envelope.response_data)


def _address(host: str) -> bytes:
    from ipaddress import ip_address

    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)  # In the simulated network, and in tests, hosts have no IP address.


def written_principal(principal: Principal) -> bytes:
    """A principal as bytes, in version 0 of Kafka's DefaultPrincipalData."""
    texts = (principal.type.encode(), principal.name.encode())
    body = b"".join(uvarint(len(text) + 1) + text for text in texts)
    return _VERSION_0 + body + bytes((principal.is_token_authenticated, 0))


def read_principal(data: bytes | None) -> Principal:
    """Parse the bytes of a principal. Raises `MalformedMessage`, also for a principal without a type or a name, or
    IndexError.
    """
    if data is None or data[:2] != _VERSION_0:
        raise MalformedMessage("the principal has no version that is known")
    position = 2
    texts = []
    for _ in ("type", "name"):
        size, position = read_uvarint(data, position)
        end = position + size - 1
        if size < 2 or end >= len(data):
            raise MalformedMessage("the principal ends within its name, or has none")
        try:
            texts.append(data[position:end].decode())
        except UnicodeDecodeError:
            raise MalformedMessage("the principal's name is not UTF-8") from None
        position = end
    skip_tags(data, position + 1)
    return Principal(texts[0], texts[1], data[position] != 0)
