"""Delegation tokens: created, renewed and expired by their users, and removed once they have expired (KIP-48).

A client that is not authenticated, or that authenticated with a token, gets no token. Whether a requester may create a
token for another user is decided before the request arrives here.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import TypeVar

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.security.delegation_tokens import record_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from moldau.protocol.records.metadata import RemoveDelegationTokenRecord
from moldau.security.delegation_token import DelegationToken, may_hold_tokens, secret_of
from moldau.security.principal import USER, Principal

NOT_SET_MS = -1
Response = TypeVar("Response", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


def refusal_of_requester(context: DecisionContext) -> ErrorCode | None:
    """The error for a requester that may not create, renew, expire or describe tokens; None if it may."""
    if not may_hold_tokens(context.principal):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if context.settings.security.token_key is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return None


def create_token(context: DecisionContext, request: CreateDelegationTokenRequest) -> Decision:
    refusal = refusal_of_requester(context)
    if refusal is None and any(renewer.principal_type != USER for renewer in request.renewers):
        refusal = ErrorCode.INVALID_PRINCIPAL_TYPE
    owner = owner_of(request, context.principal)
    if refusal is not None:
        return Decision((), refused(owner, context.principal, refusal))
    settings = context.settings.security
    assert settings.token_key is not None, "a requester was let in without a key"
    now_ms = settings.wall_clock_ms()
    life_ms = settings.token_life_ms_max
    if request.max_lifetime_ms > 0:
        life_ms = min(life_ms, request.max_lifetime_ms)
    token = DelegationToken(
        id=urlsafe_b64encode(context.settings.new_uuid()).decode().rstrip("="),
        owner=owner,
        requester=context.principal._replace(is_token_authenticated=False),
        renewers=tuple(Principal(each.principal_type, each.principal_name) for each in request.renewers),
        issued_at_ms=now_ms,
        max_at_ms=now_ms + life_ms,
        expires_at_ms=min(now_ms + life_ms, now_ms + settings.token_life_ms),
    )
    reply = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp_ms=token.issued_at_ms,
        expiry_timestamp_ms=token.expires_at_ms,
        max_timestamp_ms=token.max_at_ms,
        token_id=token.id,
        hmac=secret_of(token.id, settings.token_key),
    )
    return Decision([record_of(token)], reply)


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """The owner of a new token: the owner that the request names, or the requester if it names none."""
    if not request.owner_principal_name:
        return Principal(requester.type, requester.name)
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def refused(owner: Principal, requester: Principal, error: ErrorCode) -> CreateDelegationTokenResponse:
    """The response with the error of a refused CreateDelegationToken. As in Apache Kafka it names the owner and the
    requester."""
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=NOT_SET_MS,
        expiry_timestamp_ms=NOT_SET_MS,
        max_timestamp_ms=NOT_SET_MS,
        token_id="",
        hmac=b"",
    )


def renew_token(context: DecisionContext, request: RenewDelegationTokenRequest) -> Decision:
    token = token_for(context, request.hmac)
    if isinstance(token, ErrorCode):
        return Decision((), RenewDelegationTokenResponse(error_code=token, expiry_timestamp_ms=0))
    settings = context.settings.security
    now_ms = settings.wall_clock_ms()
    if token.is_expired(now_ms):
        error = ErrorCode.DELEGATION_TOKEN_EXPIRED
        return Decision((), RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=0))
    period_ms = settings.token_life_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    renewed = token._replace(expires_at_ms=min(token.max_at_ms, now_ms + period_ms))
    return Decision([record_of(renewed)], RenewDelegationTokenResponse(expiry_timestamp_ms=renewed.expires_at_ms))


def expire_token(context: DecisionContext, request: ExpireDelegationTokenRequest) -> Decision:
    """Set the expiry of a token. A negative period removes the token at once."""
    token = token_for(context, request.hmac)
    if isinstance(token, ErrorCode):
        return Decision((), ExpireDelegationTokenResponse(error_code=token, expiry_timestamp_ms=0))
    now_ms = context.settings.security.wall_clock_ms()
    if request.expiry_time_period_ms < 0:
        record = RemoveDelegationTokenRecord(token_id=token.id)
        return Decision([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    if token.is_expired(now_ms):
        error = ErrorCode.DELEGATION_TOKEN_EXPIRED
        return Decision((), ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=0))
    changed = token._replace(expires_at_ms=min(token.max_at_ms, now_ms + request.expiry_time_period_ms))
    return Decision([record_of(changed)], ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expires_at_ms))


def token_for(context: DecisionContext, secret: bytes) -> DelegationToken | ErrorCode:
    """The token with this HMAC, or an error if there is no such token or the requester may not renew it.

    The HMACs are not stored, so the function computes the HMAC of every token.
    """
    refusal = refusal_of_requester(context)
    if refusal is not None:
        return refusal
    from hmac import compare_digest

    key = context.settings.security.token_key
    assert key is not None, "a requester was let in without a key"
    for token in context.image.tokens.by_id.values():
        if compare_digest(secret_of(token.id, key), bytes(secret)):
            is_allowed = token.may_be_renewed_by(context.principal)
            return token if is_allowed else ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def expired_tokens(image: MetadataImage, settings: ControllerSettings) -> Iterator[RemoveDelegationTokenRecord]:
    """Yield the records that remove expired tokens."""
    now_ms = settings.security.wall_clock_ms()
    for token in image.tokens.by_id.values():
        if token.is_expired(now_ms):
            yield RemoveDelegationTokenRecord(token_id=token.id)
