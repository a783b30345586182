"""CreateDelegationToken (API key 38, versions 1-3; KIP-48, KIP-373): the controller makes the token.

A principal creates tokens for itself. For another owner it needs CREATE_TOKENS on that user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis import decided
from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import handler_asks
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.controller.security.token_control import owner_of, refused
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.delegation_token import is_same, may_hold_tokens

if TYPE_CHECKING:
    from moldau.broker.apis.forwarding import ForwardingServices
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext
    from moldau.broker.runtime.pending import Pending


def handle(
    services: ForwardingServices, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | Pending[CreateDelegationTokenResponse]:
    """Refuse a request that can be refused without the controller, and forward any other one."""
    refusal = refusal_of(context, request)
    return services.controller.ask(request, context) if refusal is None else refusal


def decide(services: Services, context: RequestContext, request: CreateDelegationTokenRequest) -> object:
    """Decide at a controller's listener, for a request that came in an Envelope or directly."""
    return refusal_of(context, request) or decided.decide(services, context, request)


def refusal_of(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse | None:
    """The answer to a principal that may not create the token; None if it may."""
    requester, access = context.principal, context.access
    owner = owner_of(request, requester)
    if not may_hold_tokens(requester):
        return refused(owner, requester, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not is_same(owner, requester) and not access.allows(AclOperation.CREATE_TOKENS, ResourceKind.USER, str(owner)):
        return refused(owner, requester, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    return None


API: Final = Api(
    CreateDelegationTokenRequest,
    broker=handle,
    controller=decide,
    needs=handler_asks,
    lists=[at_most(ENTRIES_MAX, "renewers")],
)
