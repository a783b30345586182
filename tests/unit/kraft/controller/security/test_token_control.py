"""Delegation tokens: their calls as Apache Kafka 4.3.1 answers them, and the end of their lives."""

from __future__ import annotations

import hmac

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from moldau.security.principal import ANONYMOUS, Principal
from tests.support.deciding import KEY, Deciding

ALICE, BOB, CAROL, ADMIN = (Principal("User", name) for name in ("alice", "bob", "carol", "admin"))
DAY_MS = 86_400_000


def create(
    cluster: Deciding, principal: Principal = ALICE, *renewers: Principal, life_ms: int = -1, owner: str | None = None
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers],
        max_lifetime_ms=life_ms,
    )
    reply = cluster.ask(request, principal)
    assert isinstance(reply, CreateDelegationTokenResponse)
    return reply


def renew(cluster: Deciding, principal: Principal, secret: bytes, period_ms: int) -> tuple[int, int]:
    """The error, and how long from now the token lives."""
    reply = cluster.ask(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), principal)
    assert isinstance(reply, RenewDelegationTokenResponse)
    return reply.error_code, reply.expiry_timestamp_ms - cluster.now_ms if not reply.error_code else 0


def expire(cluster: Deciding, principal: Principal, secret: bytes, period_ms: int) -> tuple[int, int]:
    reply = cluster.ask(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms), principal)
    assert isinstance(reply, ExpireDelegationTokenResponse)
    return reply.error_code, reply.expiry_timestamp_ms - cluster.now_ms if not reply.error_code else 0


def test_a_token_is_made_with_its_times_and_its_secret() -> None:
    cluster = Deciding()
    for asked_ms, life_ms, max_ms in (
        (-1, DAY_MS, 7 * DAY_MS),
        (0, DAY_MS, 7 * DAY_MS),
        (1000, 1000, 1000),
        (3 * DAY_MS, DAY_MS, 3 * DAY_MS),
        (10**15, DAY_MS, 7 * DAY_MS),
    ):
        token = create(cluster, life_ms=asked_ms)
        assert token.error_code == 0 and token.issue_timestamp_ms == cluster.now_ms
        assert token.expiry_timestamp_ms - cluster.now_ms == life_ms
        assert token.max_timestamp_ms - cluster.now_ms == max_ms
        assert token.hmac == hmac.digest(KEY, token.token_id.encode(), "sha512")
    assert cluster.replayed_snapshot() == cluster.image
    assert "secret" not in repr(cluster.written)


def test_a_token_for_another_user_belongs_to_that_user() -> None:
    cluster = Deciding()
    token = create(cluster, ADMIN, owner="carol")
    assert (token.principal_name, token.token_requester_principal_name) == ("carol", "admin")
    assert renew(cluster, ADMIN, token.hmac, -1) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert renew(cluster, CAROL, token.hmac, -1) == (0, DAY_MS)


def test_requests_that_are_refused() -> None:
    cluster = Deciding()
    refused = create(cluster, ANONYMOUS, owner="x")
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (refused.principal_name, refused.issue_timestamp_ms, refused.hmac) == ("x", -1, b"")
    by_token = create(cluster, ALICE._replace(is_token_authenticated=True))
    assert by_token.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "no token from a token"
    assert create(cluster, ALICE, Principal("Group", "x")).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert create(Deciding(token_key=None)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert renew(cluster, ALICE, b"unknown", -1)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert not cluster.image.tokens.by_id


def test_owner_and_renewers_renew_up_to_the_maximum() -> None:
    cluster = Deciding()
    token = create(cluster, ALICE, BOB)
    for period_ms, life_ms in ((-1, DAY_MS), (0, DAY_MS), (5000, 5000), (10**13, DAY_MS), ((1 << 63) - 1, DAY_MS)):
        assert renew(cluster, ALICE, token.hmac, period_ms) == (0, life_ms)
    assert renew(cluster, BOB, token.hmac, 1000) == (0, 1000)
    assert renew(cluster, CAROL, token.hmac, -1) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    for _ in range(6):
        assert renew(cluster, ALICE, token.hmac, -1) == (0, DAY_MS)
        cluster.now_ms += DAY_MS - 1
    assert renew(cluster, ALICE, token.hmac, -1) == (0, DAY_MS)
    cluster.now_ms += DAY_MS // 2
    assert renew(cluster, ALICE, token.hmac, -1) == (0, DAY_MS // 2 + 6), "a token does not outlive its maximum"


def test_a_token_expires() -> None:
    cluster = Deciding()
    token = create(cluster, ALICE, BOB)
    assert expire(cluster, CAROL, token.hmac, -1) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert expire(cluster, BOB, token.hmac, 10**15) == (0, 7 * DAY_MS)
    assert expire(cluster, ALICE, token.hmac, 0) == (0, 0)
    assert renew(cluster, ALICE, token.hmac, -1) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert expire(cluster, ALICE, token.hmac, -1) == (0, 0)
    assert renew(cluster, ALICE, token.hmac, -1) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_expired_tokens_are_removed() -> None:
    cluster = Deciding()
    short, long = create(cluster, life_ms=1000), create(cluster)
    cluster.now_ms += 3_599_999
    cluster.tick()
    assert len(cluster.image.tokens.by_id) == 2, "the search is due once an hour"
    cluster.now_ms += 1
    cluster.tick()
    assert [token.id for token in cluster.image.tokens.by_id.values()] == [long.token_id] != [short.token_id]


def test_a_token_is_seen_by_those_it_concerns() -> None:
    cluster = Deciding()
    create(cluster, ALICE, BOB)
    create(cluster, ADMIN, owner="carol")
    tokens = cluster.image.tokens

    def seen(principal: Principal, owners: list[Principal] | None = None, may_describe: bool = False) -> list[str]:
        return sorted(token.owner.name for token in tokens.visible(owners, principal, lambda token: may_describe))

    assert seen(ALICE) == seen(BOB) == ["alice"]
    assert seen(CAROL) == seen(ADMIN) == ["carol"]
    assert seen(BOB, may_describe=True) == ["alice", "carol"]
    assert seen(ADMIN, [CAROL]) == ["carol"] and seen(ADMIN, [ALICE]) == seen(ADMIN, []) == []
