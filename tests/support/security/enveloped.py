"""Requests of users that reach a controller in Envelopes, as a broker would forward them."""

from __future__ import annotations

from typing import Any

from moldau.broker.metadata.enveloping import ForwardedClient, enclosed_response, enveloped_request
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.security.principal import Principal
from tests.support.cluster_clients import Bootstrap
from tests.support.node import Client, Closed

HOST = "0.0.0.0"


class EnvelopedUser:
    """Asks any controller on behalf of a user."""

    def __init__(self, bootstrap: Bootstrap, principal: Principal) -> None:
        self._bootstrap = bootstrap
        self._principal = principal

    async def ask_any(self, request: object, version: int) -> Any:
        """Raises `NotAsked`, or `Closed` if the request may have been carried out."""
        reply = await self._bootstrap.ask_any(sealed(request, version, self._principal), 0)
        return opened(reply, request, version)


class EnvelopedConnection:
    """A connection of a broker to a controller that carries the requests of one user."""

    def __init__(self, client: Client, principal: Principal) -> None:
        self._client = client
        self._principal = principal

    async def ask(self, request: object, version: int) -> Any:
        """Raises `Closed`."""
        return opened(await self._client.ask(sealed(request, version, self._principal), 0), request, version)

    def close(self) -> None:
        self._client.close()


def sealed(request: object, version: int, principal: Principal) -> EnvelopeRequest:
    return enveloped_request(request, version, ForwardedClient(principal, HOST, "test"))


def opened(reply: EnvelopeResponse, request: object, version: int) -> Any:
    """Raises `Closed` if the node does not lead (any more): what it did with the request is not known."""
    if reply.error_code != ErrorCode.NONE:
        raise Closed
    return enclosed_response(reply, type(request), version)
