"""Delegation tokens on a whole simulated node: made, described, renewed and ended by users, and used to log in."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from moldau.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from moldau.security.principal import Principal
from tests.support.node import Client, Node, serve_and
from tests.support.scram_login import password_of, scram_log_in
from tests.unit.broker.node.test_scram_logins import PROPERTIES, SASL_PORT

WITH_KEY: dict[str, Any] = PROPERTIES | {"delegation_token_secret_key": "key of the cluster"}
HOUR_MS = 3_600_000


async def logged_in(node: Node, user: str) -> Client:
    admin = await node.connect()
    await admin.ask(password_of(user, "secret"), 0)
    client = await node.connect(SASL_PORT)
    assert (await scram_log_in(client, user, "secret")).error_code == ErrorCode.NONE
    return client


async def bearer(node: Node, token: CreateDelegationTokenResponse) -> tuple[Client, SaslAuthenticateResponse]:
    client = await node.connect(SASL_PORT)
    password = b64encode(token.hmac).decode()
    return client, await scram_log_in(client, token.token_id, password, extensions=",tokenauth=true")


def created(renewer: str | None = None, life_ms: int = HOUR_MS) -> CreateDelegationTokenRequest:
    renewers = [] if renewer is None else [CreatableRenewers(principal_type="User", principal_name=renewer)]
    return CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=life_ms)


def test_the_bearer_of_a_token_is_its_owner_and_gets_no_token_itself() -> None:
    async def story(node: Node) -> None:
        alice = await logged_in(node, "alice")
        token = await alice.ask(created(), 3)
        assert token.error_code == ErrorCode.NONE
        assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")
        assert len(token.hmac) == 64
        client, reply = await bearer(node, token)
        assert reply.error_code == ErrorCode.NONE
        assert 0 < reply.session_lifetime_ms <= HOUR_MS
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        assert any(each.access.principal == Principal("User", "alice", True) for each in listener.connections)
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        for request, version in (
            (created(), 3),
            (RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), 2),
            (ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2),
            (DescribeDelegationTokenRequest(owners=None), 3),
        ):
            assert (await client.ask(request, version)).error_code == refused

    serve_and(story, **WITH_KEY)


def test_tokens_are_seen_and_renewed_by_those_that_they_concern() -> None:
    async def story(node: Node) -> None:
        alice, bob, carol = [await logged_in(node, each) for each in ("alice", "bob", "carol")]
        token = await alice.ask(created(renewer="bob"), 3)
        for client in (alice, bob):
            (described,) = (await client.ask(DescribeDelegationTokenRequest(owners=None), 3)).tokens
            assert (described.token_id, described.hmac) == (token.token_id, token.hmac)
        owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="carol")
        assert (await bob.ask(DescribeDelegationTokenRequest(owners=[owner]), 3)).tokens == []
        renew = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=2 * HOUR_MS)
        assert (await bob.ask(renew, 2)).expiry_timestamp_ms == token.max_timestamp_ms
        assert (await carol.ask(renew, 2)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        other = RenewDelegationTokenRequest(hmac=b"other", renew_period_ms=-1)
        assert (await alice.ask(other, 2)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    serve_and(story, **WITH_KEY)


def test_a_token_that_ends_takes_its_sessions_with_it() -> None:
    async def story(node: Node) -> None:
        alice = await logged_in(node, "alice")
        token = await alice.ask(created(life_ms=5_000), 3)
        _client, reply = await bearer(node, token)
        assert reply.session_lifetime_ms <= 5_000
        await asyncio.sleep(6)
        _, late = await bearer(node, token)
        assert late.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        again = await alice.ask(created(), 3)
        end = ExpireDelegationTokenRequest(hmac=again.hmac, expiry_time_period_ms=-1)
        assert (await alice.ask(end, 2)).error_code == ErrorCode.NONE
        _, refused = await bearer(node, again)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    serve_and(story, **WITH_KEY)


def test_the_session_of_a_token_that_was_renewed_is_renewed_too() -> None:
    async def story(node: Node) -> None:
        alice = await logged_in(node, "alice")
        token = await alice.ask(created(), 3)
        short = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=5_000)
        assert (await alice.ask(short, 2)).error_code == ErrorCode.NONE
        client, reply = await bearer(node, token)
        assert 0 < reply.session_lifetime_ms <= 5_000
        longer = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=60_000)
        assert (await alice.ask(longer, 2)).error_code == ErrorCode.NONE
        password = b64encode(token.hmac).decode()
        renewed = await scram_log_in(client, token.token_id, password, extensions=",tokenauth=true")
        assert renewed.error_code == ErrorCode.NONE and renewed.session_lifetime_ms > 58_000
        await asyncio.sleep(10)
        described = await client.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert described.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    serve_and(story, **WITH_KEY)


def test_without_a_key_there_are_no_tokens() -> None:
    async def story(node: Node) -> None:
        alice = await logged_in(node, "alice")
        assert (await alice.ask(created(), 3)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        described = await alice.ask(DescribeDelegationTokenRequest(owners=None), 3)
        assert described.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    serve_and(story, **PROPERTIES)
