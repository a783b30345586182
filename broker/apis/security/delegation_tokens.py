"""Delegation tokens (KIP-48). A principal creates tokens for itself, or for another user on which it has CREATE_TOKENS.
The owner of a token and its renewers may renew it, up to its maximum lifetime, and end it. The controller decides.

CreateDelegationToken (API key 38, versions 1-3; KIP-48, KIP-373): 3: another owner (KIP-373).
RenewDelegationToken (API key 39, versions 1-2; KIP-48): 2: tagged fields (KIP-482).
ExpireDelegationToken (API key 40, versions 1-2; KIP-48): 2: tagged fields (KIP-482).
DescribeDelegationToken (API key 41, versions 1-3; KIP-48, KIP-373): 3: the requester (KIP-373).
The owner, the requester and the renewers of a token see it. Others need DESCRIBE on the token, or DESCRIBE_TOKENS on
its owner.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from moldau.broker.apis.api import Api, forward
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import handler_asks
from moldau.broker.apis.parts import in_parts
from moldau.broker.apis.services import Services
from moldau.broker.config.sasl import token_key
from moldau.broker.network.route import RequestContext
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.controller.security.token_control import owner_of, refused
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.protocol.schema import response_class_of
from moldau.security.access import Access, AclOperation, ResourceKind
from moldau.security.delegation_token import DelegationToken, is_same_principal, may_hold_tokens, secret_of
from moldau.security.principal import Principal

NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def create(services: Services, context: RequestContext, request: CreateDelegationTokenRequest) -> object:
    """Refuse a request that this node can refuse by itself, otherwise forward it. A controller listener gets the
    request in an Envelope or directly."""
    requester, access = context.principal, context.access
    owner = owner_of(request, requester)
    if not may_hold_tokens(requester):
        return refused(owner, requester, NOT_ALLOWED)
    if not is_same_principal(owner, requester) and not access.allows(
        AclOperation.CREATE_TOKENS, ResourceKind.USER, str(owner)
    ):
        return refused(owner, requester, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    return forward(services, context, request)


def change(
    services: Services, context: RequestContext, request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest
) -> object:
    """Refuse a principal that may not use delegation tokens at all. The controller decides on other requests."""
    if may_hold_tokens(context.principal):
        return forward(services, context, request)
    response: Any = response_class_of(type(request))
    return response(error_code=NOT_ALLOWED, expiry_timestamp_ms=-1)


def describe(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Answer with the delegation tokens that the client may see, and their HMACs."""
    if not may_hold_tokens(context.principal):
        return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED)
    key = token_key(services.config)
    if key is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]
    visible = services.cluster.image.tokens.visible(owners, context.principal, partial(_may_describe, context.access))
    return DescribeDelegationTokenResponse(tokens=[_described(token, key) for token in visible])


def _may_describe(access: Access, token: DelegationToken) -> bool:
    return any(
        access.allows(operation, kind, name, logs_denied=False)
        for operation, kind, name in (
            (AclOperation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, token.id),
            (AclOperation.DESCRIBE_TOKENS, ResourceKind.USER, str(token.owner)),
        )
    )


def _described(token: DelegationToken, key: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.id,
        hmac=secret_of(token.id, key),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )


APIS: Final = (
    Api(
        CreateDelegationTokenRequest,
        broker=create,
        controller=create,
        needs=handler_asks,
        lists=[at_most(ENTRIES_MAX, "renewers")],
    ),
    Api(RenewDelegationTokenRequest, broker=change, controller=forward, needs=handler_asks),
    Api(ExpireDelegationTokenRequest, broker=change, controller=forward, needs=handler_asks),
    Api(
        DescribeDelegationTokenRequest,
        broker=describe,
        needs=handler_asks,
        lists=[in_parts("owners", "tokens", is_distinct=True)],
    ),
)
