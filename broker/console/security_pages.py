"""The page about permissions: ACLs, users, quotas and delegation tokens. It shows no secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.broker.console.page import Page, PageRequest, error_name
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from moldau.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from moldau.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from moldau.security.access import AclOperation, ResourceKind

ANY: Final = 1
PATTERNS: Final = {3: "literal", 4: "prefix"}
PERMISSIONS: Final = {2: "denied", 3: "allowed"}
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
SHOWN_MAX: Final = 500
"""The most rows of each table. A user may narrow them with the query parameter `q`."""
REASONS: Final[dict[int, str]] = {
    ErrorCode.SECURITY_DISABLED: "The cluster has no authorizer: authorizer.class.name is not set at its nodes, and "
    "all users may do everything.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "There are none: delegation.token.secret.key is not set at the nodes.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Only users that have logged in, and not by a token, see them.",
}
"""Why a table of the page is empty, by error code."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AclRow:
    principal: str
    host: str
    operation: str
    permission: str
    resource: str
    name: str
    pattern: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UserRow:
    name: str
    credentials: list[str]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class QuotaRow:
    entity: dict[str, str]
    values: dict[str, float]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TokenRow:
    id: str
    owner: str
    requester: str
    renewers: list[str]
    expires_in_ms: int
    lasts_at_most_ms: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Permissions:
    q: str
    acls: list[AclRow]
    users: list[UserRow]
    quotas: list[QuotaRow]
    tokens: list[TokenRow]
    left_out: int
    """The number of rows, over all tables, that are not shown."""
    errors: dict[str, str]
    """Why a table is empty, by the name of the table."""


async def describe_permissions(visit: PageRequest) -> Permissions:
    q = visit.field("q").lower()
    errors: dict[str, str] = {}
    acls = [each for each in await _acls(visit, errors) if q in f"{each.principal} {each.name}".lower()]
    users = [each for each in await _users(visit, errors) if q in each.name.lower()]
    quotas = [each for each in await _quotas(visit, errors) if q in " ".join(each.entity.values()).lower()]
    tokens = [each for each in await _tokens(visit, errors) if q in f"{each.id} {each.owner}".lower()]
    left_out = sum(max(len(each) - SHOWN_MAX, 0) for each in (acls, users, quotas, tokens))
    return Permissions(
        visit.field("q"),
        acls[:SHOWN_MAX],
        users[:SHOWN_MAX],
        quotas[:SHOWN_MAX],
        tokens[:SHOWN_MAX],
        left_out,
        errors,
    )


async def _acls(visit: PageRequest, errors: dict[str, str]) -> list[AclRow]:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await visit.client.ask(request, DescribeAclsResponse)
    if answer.error_code:
        errors["acls"] = _reason(answer.error_code, answer.error_message)
    rows = [
        AclRow(
            acl.principal,
            acl.host,
            AclOperation(acl.operation).name,
            PERMISSIONS.get(acl.permission_type, "unknown"),
            ResourceKind(resource.resource_type).name.lower(),
            resource.resource_name,
            PATTERNS.get(resource.pattern_type, "unknown"),
        )
        for resource in answer.resources
        for acl in resource.acls
    ]
    return sorted(rows, key=lambda each: (each.principal, each.resource, each.name, each.operation))


async def _users(visit: PageRequest, errors: dict[str, str]) -> list[UserRow]:
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = await visit.client.ask(request, DescribeUserScramCredentialsResponse)
    if answer.error_code:
        errors["users"] = _reason(answer.error_code, answer.error_message)
    rows = [
        UserRow(
            each.user,
            [
                f"{MECHANISMS.get(info.mechanism, 'unknown')}, {info.iterations} iterations"
                for info in each.credential_infos
            ],
        )
        for each in answer.results
    ]
    return sorted(rows, key=lambda each: each.name)


async def _quotas(visit: PageRequest, errors: dict[str, str]) -> list[QuotaRow]:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer = await visit.client.ask(request, DescribeClientQuotasResponse)
    if answer.error_code:
        errors["quotas"] = _reason(answer.error_code, answer.error_message)
    return [
        QuotaRow(
            {part.entity_type: part.entity_name or "(default)" for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or []
    ]


async def _tokens(visit: PageRequest, errors: dict[str, str]) -> list[TokenRow]:
    request = DescribeDelegationTokenRequest(owners=None)
    answer = await visit.client.ask(request, DescribeDelegationTokenResponse)
    if answer.error_code:
        errors["tokens"] = _reason(answer.error_code)
    now_ms = visit.ports.environment.wall_ms()
    return [
        TokenRow(
            each.token_id,
            f"{each.principal_type}:{each.principal_name}",
            f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
            [f"{other.principal_type}:{other.principal_name}" for other in each.renewers],
            each.expiry_timestamp - now_ms,
            each.max_timestamp - now_ms,
        )
        for each in answer.tokens
    ]


def _reason(code: int, told: str | None = None) -> str:
    return REASONS.get(code) or told or error_name(code)


PAGES: Final = (Page("/permissions", "permissions.html", describe_permissions),)
