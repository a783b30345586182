"""CreateDelegationToken (API key 38, versions 1-3; KIP-48, KIP-373): always refused, because no listener authenticates
clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

if TYPE_CHECKING:
    from broker.network.route import RequestContext

ANONYMOUS: Final = ("User", "ANONYMOUS")
"""The principal of a client that did not authenticate itself."""
NOT_SET_MS: Final = -1


def handle(
    services: object, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """The answer names the owner that was asked for, else the one that asks, as in Apache Kafka."""
    kind, name = ANONYMOUS
    if request.owner_principal_type and request.owner_principal_name:
        kind, name = request.owner_principal_type, request.owner_principal_name
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=ANONYMOUS[0],
        token_requester_principal_name=ANONYMOUS[1],
        issue_timestamp_ms=NOT_SET_MS,
        expiry_timestamp_ms=NOT_SET_MS,
        max_timestamp_ms=NOT_SET_MS,
        token_id="",
        hmac=b"",
    )
