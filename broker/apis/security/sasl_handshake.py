"""SaslHandshake (API key 17, versions 0-1; KIP-43, KIP-152): the mechanism with which the client will authenticate."""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import open_to_all
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(services: object, context: RequestContext, request: SaslHandshakeRequest) -> object:
    """Pass the message to the SASL exchange of the connection; a listener without SASL refuses it."""
    authentication = context.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return authentication.handshake(context, request)


API: Final = Api(
    SaslHandshakeRequest,
    broker=handle,
    controller=handle,
    needs=open_to_all,
)
