"""SaslAuthenticate (API key 36, versions 0-2; KIP-152, KIP-368): one message of the exchange of a mechanism."""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import open_to_all
from moldau.broker.network.authentication.exchange import LATE_TOKEN
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(services: object, context: RequestContext, request: SaslAuthenticateRequest) -> object:
    """Pass the message to the SASL exchange of the connection; a listener without SASL refuses it."""
    authentication = context.connection.authentication
    if authentication is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=LATE_TOKEN)
    return authentication.authenticate(context, request)


API: Final = Api(
    SaslAuthenticateRequest,
    broker=handle,
    controller=handle,
    needs=open_to_all,
)
