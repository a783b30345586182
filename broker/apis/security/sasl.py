"""The exchange by which a client authenticates (KIP-43): its messages go to the SASL exchange of the connection.

SaslHandshake (API key 17, versions 0-1; KIP-43, KIP-152): the mechanism with which the client will authenticate.
1: the messages of the mechanism follow in SaslAuthenticate (KIP-152).
SaslAuthenticate (API key 36, versions 0-2; KIP-152, KIP-368): one message of the mechanism.
1: how long the session lasts (KIP-368).
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import open_to_all
from moldau.broker.network.authentication.exchange import LATE_TOKEN
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handshake(services: object, context: RequestContext, request: SaslHandshakeRequest) -> object:
    """Pass the request to the SASL exchange of the connection. A listener without SASL refuses it."""
    authentication = context.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return authentication.handshake(context, request)


def authenticate(services: object, context: RequestContext, request: SaslAuthenticateRequest) -> object:
    """Pass the message to the SASL exchange of the connection. A listener without SASL refuses it."""
    authentication = context.connection.authentication
    if authentication is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=LATE_TOKEN)
    return authentication.authenticate(context, request)


APIS: Final = (
    Api(SaslHandshakeRequest, broker=handshake, controller=handshake, needs=open_to_all),
    Api(SaslAuthenticateRequest, broker=authenticate, controller=authenticate, needs=open_to_all),
)
