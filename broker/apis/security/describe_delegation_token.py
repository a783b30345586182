"""DescribeDelegationToken (API key 41, versions 1-3; KIP-48): tokens with their secrets.

The owner, the requester and the renewers of a token see it. Others need DESCRIBE on the token, or DESCRIBE_TOKENS on
its owner.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import handler_asks
from moldau.broker.apis.parts import cut
from moldau.broker.config.sasl import token_key
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from moldau.security.access import Access, AclOperation, ResourceKind
from moldau.security.delegation_token import DelegationToken, may_hold_tokens, secret_of
from moldau.security.principal import Principal

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    if not may_hold_tokens(context.principal):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
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


API: Final = Api(
    DescribeDelegationTokenRequest,
    broker=handle,
    needs=handler_asks,
    lists=[cut("owners", "tokens", is_distinct=True)],
)
