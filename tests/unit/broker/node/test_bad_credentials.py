"""Credentials that are wrong: Kafka's error for the client, and one line for the operator that names no secret."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from moldau.broker.config import ConfigError
from moldau.broker.config.loading import checked_config
from moldau.broker.config.tls import ClientAuth
from moldau.broker.network.tls.contexts import ReloadingTls
from moldau.broker.network.tls.stores import InvalidStore
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.security.sasl.oauthbearer.token import unsecured_token
from tests.support.certificates import Authority
from tests.support.node import Closed, Node, serve_and
from tests.support.scram_login import password_of, scram_log_in
from tests.support.tls_pair import settings_of
from tests.unit.broker.node.test_oauth_logins import UNSECURED, bear, refusal_of
from tests.unit.broker.node.test_scram_logins import PROPERTIES, SASL_PORT


def lines_about(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if words in each.getMessage()]


def test_a_wrong_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(node: Node) -> None:
        await (await node.connect()).ask(password_of("alice", "secret"), 0)
        reply = await scram_log_in(await node.connect(SASL_PORT), "alice", "swordfish")
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    serve_and(story, **PROPERTIES)
    (line,) = lines_about(caplog, "authentication failed")
    assert "'alice'" in line and "SCRAM-SHA-256" in line and "swordfish" not in line


def test_an_expired_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(node: Node) -> None:
        client = await node.connect(SASL_PORT)
        await bear(client, unsecured_token("alice", node.broker.environment.wall_ms() - 120_000, 60_000))
        assert (await refusal_of(client)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(Closed):
            await client.ask(MetadataRequest(topics=[]), 9)

    serve_and(story, **UNSECURED)
    (line,) = lines_about(caplog, "authentication failed")
    assert "the token has expired" in line


def test_an_unknown_mechanism(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(node: Node) -> None:
        reply = await (await node.connect(SASL_PORT)).ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert reply.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]

    serve_and(story, **PROPERTIES)
    (line,) = lines_about(caplog, "authentication failed")
    assert "GSSAPI" in line


def test_gssapi_is_refused_with_a_reason() -> None:
    settings = {name.replace("_", "."): value for name, value in PROPERTIES.items()}
    settings |= {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/tmp/nowhere",
        "sasl.enabled.mechanisms": "GSSAPI",
    }
    with pytest.raises(ConfigError) as refused:
        checked_config(settings)
    assert any("Kerberos needs a native library" in each for each in refused.value.problems)


def test_a_wrong_key_file(tmp_path: Path) -> None:
    authority = Authority("one")
    key = tmp_path / "node.pem"
    key.write_text(authority.issue("node").key_pem() + authority.issue("node").certificate_pem)
    with pytest.raises(InvalidStore) as refused:
        settings = settings_of(None, authority.trust_store(tmp_path / "ca.pem"), ClientAuth.NONE, key_file=key)
        ReloadingTls(settings, lambda: 0)
    assert str(key) in str(refused.value)
    assert "PRIVATE KEY" not in str(refused.value)
