"""RenewDelegationToken (API key 39, versions 1-2; KIP-48): the controller decides.

The owner of a token and its renewers may renew it, up to the maximum lifetime of the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.decided import decide
from moldau.broker.apis.needs import handler_asks
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from moldau.security.delegation_token import may_hold_tokens

if TYPE_CHECKING:
    from moldau.broker.apis.forwarding import ForwardingServices
    from moldau.broker.network.route import RequestContext
    from moldau.broker.runtime.pending import Pending


def handle(
    services: ForwardingServices, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | Pending[RenewDelegationTokenResponse]:
    """Refuse a principal that may not use tokens at all; the controller decides about the others."""
    if not may_hold_tokens(context.principal):
        error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=-1)
    return services.controller.ask(request, context)


API: Final = Api(
    RenewDelegationTokenRequest,
    broker=handle,
    controller=decide,
    needs=handler_asks,
)
