"""Addresses and security of a client."""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moldau.tables.client.settings import Address, client_settings_of, parse_address
from moldau.tables.refusals import Refused
from tests.support.certificates import Authority

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="secret";'
LOGIN = {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": PLAIN}


def test_addresses() -> None:
    assert parse_address("h:9092") == Address("h", 9092)
    assert parse_address("[::1]:9092") == Address("::1", 9092)
    assert str(parse_address("[::1]:9092")) == "[::1]:9092" and str(parse_address("h:9092")) == "h:9092"
    for name in ("h", "h:", ":1", "h:0", "h:70000", "h:x", "::1", "a..b:1", f"{'h' * 64}:1", "\udcff:1"):
        with pytest.raises(Refused, match="is not host:port"):
            parse_address(name)


def test_a_login_is_made_of_the_options_and_shows_no_secret() -> None:
    settings = client_settings_of(("h:1",), LOGIN)
    assert settings.logs_in and not settings.is_encrypted
    assert settings.new_login_mechanism().first() == b"\0a\0secret"
    assert "secret" not in repr(settings)
    assert client_settings_of(("h:1",), {"kafka.security.protocol": "SASL_SSL", **LOGIN}).logs_in


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.security.protocol": "TLS"}, "TLS is not one of PLAINTEXT"),
        ({"kafka.security.protocol": "SASL_SSL"}, "needs kafka.sasl.mechanism"),
        ({"kafka.ssl.truststore.location": "a.jks"}, "only a truststore of type PEM"),
        ({"kafka.ssl.keystore.location": "a.jks"}, "only a keystore of type PEM"),
        ({"kafka.request.timeout.ms": "soon"}, "not a whole number above 0"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        client_settings_of(("h:1",), given)


def test_a_mechanism_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused) as problem:
        client_settings_of(("h:1",), {**LOGIN, "kafka.sasl.mechanism": "GSSAPI"}).new_login_mechanism()
    assert "secret" not in str(problem.value)


@pytest.mark.parametrize("password", [None, "secret"])
def test_a_key_store_is_the_certificate_of_the_client(tmp_path: Path, password: str | None) -> None:
    authority = Authority("ours")
    trust = authority.trust_store(tmp_path / "ca.pem")
    (tmp_path / "node.pem").write_text(authority.issue("node", "node").pem())
    (tmp_path / "client.pem").write_text(authority.issue("alice").pem(password))
    given = {
        "kafka.ssl.ca.location": str(trust),
        "kafka.ssl.keystore.location": str(tmp_path / "client.pem"),
        "kafka.ssl.keystore.type": "PEM",
    }
    if password is not None:
        with pytest.raises(Refused, match=r"kafka.ssl.keystore.location: .*client.pem"):
            client_settings_of(("h:1",), given).tls_context()
        given["kafka.ssl.key.password"] = password
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(trust))
    server.load_cert_chain(tmp_path / "node.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(server.wrap_socket, theirs, server_side=True)
        context = client_settings_of(("h:1",), given).tls_context()
        with context.wrap_socket(ours, server_hostname="node"), accepted.result(5) as there:
            assert "alice" in str(there.getpeercert())
