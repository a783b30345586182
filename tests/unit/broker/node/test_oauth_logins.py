"""OAUTHBEARER on whole simulated nodes: signed tokens of a provider, unsecured ones, and nodes among themselves."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import Any

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.principal import Principal
from moldau.security.sasl.oauthbearer.exchange import bearer_message
from moldau.security.sasl.oauthbearer.token import unsecured_token
from tests.support.cluster import Cluster
from tests.support.identity_provider import IdentityProvider
from tests.support.node import Client, Closed, Node, serve_and
from tests.unit.broker.node.test_scram_logins import PROPERTIES, SASL_PORT

PATH = "/data/keys.json"
METADATA = MetadataRequest(topics=[])
UNSECURED: dict[str, Any] = PROPERTIES | {"sasl_enabled_mechanisms": "OAUTHBEARER"}
LOGIN = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)


async def bear(client: Client, token: str) -> SaslAuthenticateResponse:
    await client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    request = SaslAuthenticateRequest(auth_bytes=bearer_message(token, {}))
    reply: SaslAuthenticateResponse = await client.ask(request, 2)
    return reply


async def refusal_of(client: Client) -> SaslAuthenticateResponse:
    """The client acknowledges the challenge that says that its token is refused."""
    reply: SaslAuthenticateResponse = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    return reply


def now_s(node: Node) -> int:
    return node.broker.environment.wall_ms() // 1000


def test_a_signed_token_names_its_bearer_until_it_expires() -> None:
    provider = IdentityProvider()

    def publish(node: Node, key_set: bytes) -> None:
        with closing(node.host.disk.open(PATH, create=True)) as file:
            file.truncate(0)
            file.append([key_set])

    async def story(node: Node) -> None:
        client = await node.connect(SASL_PORT)
        publish(node, provider.key_set())
        await asyncio.sleep(2)
        reply = await bear(client, provider.token({"sub": "alice", "exp": now_s(node) + 60, "aud": "kafka"}))
        assert (reply.error_code, reply.auth_bytes) == (ErrorCode.NONE, b"")
        assert 0 < reply.session_lifetime_ms <= 60_000
        await client.ask(METADATA, 9)
        listener = next(each for each in node.broker.listeners if each.name == "SASL")
        assert [each.access.principal for each in listener.connections] == [Principal("User", "alice")]
        claims: list[dict[str, object]] = [
            {"sub": "alice", "exp": now_s(node) - 31, "aud": "kafka"},
            {"sub": "alice", "exp": now_s(node) + 60, "aud": "other"},
        ]
        tokens = [provider.token(each) for each in claims]
        other = IdentityProvider()
        tokens.append(other.token({"sub": "alice", "exp": now_s(node) + 60, "aud": "kafka"}))
        tokens.append(unsecured_token("alice", node.broker.environment.wall_ms(), 60_000))
        for token in tokens:
            client = await node.connect(SASL_PORT)
            challenge = await bear(client, token)
            assert json.loads(bytes(challenge.auth_bytes)) == {"status": "invalid_token"}
            assert (await refusal_of(client)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            with pytest.raises(Closed):
                await client.ask(METADATA, 9)
        publish(node, other.key_set())  # the provider has new keys: the next unknown one is looked up
        client = await node.connect(SASL_PORT)
        rotated = other.token({"sub": "bob", "exp": now_s(node) + 60, "aud": "kafka"}, "ES256", "e2")
        assert json.loads(bytes((await bear(client, rotated)).auth_bytes)) == {"status": "invalid_token"}
        client = await node.connect(SASL_PORT)
        assert (await bear(client, tokens[2])).auth_bytes == b""

    settings: dict[str, Any] = {
        "listener_name_sasl_oauthbearer_sasl_oauthbearer_jwks_endpoint_url": f"file://{PATH}",
        "sasl_oauthbearer_expected_audience": "kafka",
        "moldau_oauthbearer_allowed_urls": f"file://{PATH}",
    }
    serve_and(story, **UNSECURED, **settings)


def test_unsecured_tokens_are_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        client = await node.connect(SASL_PORT)
        reply = await bear(client, unsecured_token("alice", node.broker.environment.wall_ms(), 60_000))
        assert reply.error_code == ErrorCode.NONE
        await client.ask(METADATA, 9)

    serve_and(story, **UNSECURED)
    assert any("for development alone" in each for each in caplog.messages)


def test_a_session_of_a_token_is_renewed_with_a_new_token() -> None:
    async def story(node: Node) -> None:
        client = await node.connect(SASL_PORT)
        wall_ms = node.broker.environment.wall_ms
        reply = await bear(client, unsecured_token("alice", wall_ms(), 5_000))
        assert 0 < reply.session_lifetime_ms <= 5_000
        await asyncio.sleep(2)
        renewed = await bear(client, unsecured_token("alice", wall_ms(), 60_000))
        assert renewed.error_code == ErrorCode.NONE and renewed.session_lifetime_ms > 58_000
        await asyncio.sleep(10)
        await client.ask(METADATA, 9)
        await asyncio.sleep(60)
        with pytest.raises(Closed):
            await client.ask(METADATA, 9)

    serve_and(story, **UNSECURED)


def test_brokers_and_controllers_log_in_to_each_other() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()

    secured: dict[str, Any] = {
        "listener_security_protocol_map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_mechanism_inter_broker_protocol": "OAUTHBEARER",
        "sasl_mechanism_controller_protocol": "OAUTHBEARER",
        "listener_name_plaintext_oauthbearer_sasl_jaas_config": LOGIN,
        "listener_name_controller_oauthbearer_sasl_jaas_config": LOGIN,
    }
    with Cluster(seed=3, **secured) as cluster:
        cluster.live(story)
