"""Each listener has its own TLS and SASL settings, and what is wrong with them is said at start."""

from __future__ import annotations

import pytest

from moldau.broker.config import Config, ConfigError
from moldau.broker.config.loading import checked_config
from moldau.broker.config.sasl import login_settings, sasl_settings
from moldau.broker.config.tls import ClientAuth, tls_settings

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "listeners": "INTERNAL://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/tmp/nowhere",
}
STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/etc/moldau/node.pem"}
LOGIN = {
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.internal.plain.sasl.jaas.config": "secret",
}


def load(protocol: str, *changes: dict[str, str]) -> Config:
    properties = BASE | {"listener.security.protocol.map": f"INTERNAL:{protocol},CONTROLLER:PLAINTEXT"}
    for change in changes:
        properties |= change
    return checked_config(properties)


def problems(protocol: str, *changes: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(protocol, *changes)
    return caught.value.problems


def test_a_listener_has_its_own_settings_before_the_shared_ones() -> None:
    config = load(
        "SSL",
        STORE,
        {"ssl.client.auth": "requested", "listener.name.internal.ssl.keystore.location": "/etc/moldau/internal.pem"},
    )
    settings = tls_settings(config, "INTERNAL")
    assert settings.key_store.location == "/etc/moldau/internal.pem"
    assert settings.key_store.location_name == "listener.name.internal.ssl.keystore.location"
    assert settings.client_auth is ClientAuth.REQUESTED
    assert settings.protocols == ("TLSv1.2", "TLSv1.3") and settings.checks_host_names
    assert tls_settings(config, "CONTROLLER").key_store.location == "/etc/moldau/node.pem"
    assert config.warnings == ()


def test_names_of_certificates_are_mapped_and_guarded_by_the_listener_s_own_rules() -> None:
    own, rule = "listener.name.internal", "RULE:^CN=(.*)$/$1/"
    given = {f"{own}.ssl.principal.mapping.rules": rule, f"{own}.ssl.allow.dn.changes": "true"}
    settings = tls_settings(load("SSL", STORE, given, {"ssl.allow.san.changes": "true"}), "INTERNAL")
    assert settings.principal_rules == rule
    assert settings.may_change_name and settings.may_lose_names
    shared = tls_settings(load("SSL", STORE), "INTERNAL")
    assert shared.principal_rules == "DEFAULT" and not shared.may_change_name


def test_under_sasl_certificates_are_asked_for_by_the_prefixed_setting_alone() -> None:
    shared = load("SASL_SSL", STORE, LOGIN, {"ssl.client.auth": "required"})
    assert tls_settings(shared, "INTERNAL").client_auth is ClientAuth.NONE
    own = load("SASL_SSL", STORE, LOGIN, {"listener.name.internal.ssl.client.auth": "required"})
    assert tls_settings(own, "INTERNAL").client_auth is ClientAuth.REQUIRED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ["ssl.keystore.location", "INTERNAL"]),
        (STORE | {"ssl.enabled.protocols": "TLSv1.1"}, ["ssl.enabled.protocols", "TLSv1.2"]),
        (STORE | {"ssl.endpoint.identification.algorithm": "ldaps"}, ["ssl.endpoint.identification.algorithm"]),
        (STORE | {"ssl.keystore.type": "BCFKS"}, ["ssl.keystore.type", "PKCS12"]),
        (STORE | {"ssl.keystore.password": "x"}, ["ssl.keystore.password", "ssl.key.password"]),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "x"}, ["ssl.keystore.key", "together"]),
        (STORE | {"ssl.truststore.certificates": "x"}, ["ssl.truststore.certificates", "ssl.truststore.type"]),
    ],
)
def test_settings_that_cannot_work_stop_the_start(change: dict[str, str], words: list[str]) -> None:
    (problem,) = problems("SSL", change)
    assert all(word in problem for word in words), problem


def test_each_mechanism_has_its_login_context_and_session_length() -> None:
    own = {
        "connections.max.reauth.ms": "60000",
        "listener.name.internal.plain.connections.max.reauth.ms": "5000",
        "connection.failed.authentication.delay.ms": "7",
        "sasl.server.max.receive.size": "1000",
    }
    config = load("SASL_PLAINTEXT", LOGIN, own)
    settings = sasl_settings(config, "INTERNAL")
    assert settings.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert list(settings.jaas) == ["PLAIN"] and settings.jaas["PLAIN"].reveal() == "secret"
    assert settings.reauth_ms_max == {"PLAIN": 5000, "SCRAM-SHA-256": 60000}
    assert (settings.failure_delay_ms, settings.receive_size_max) == (7, 1000)
    login = login_settings(config, "INTERNAL")
    assert login.mechanism == "PLAIN" and login.jaas is not None and login.jaas.reveal() == "secret"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ["GSSAPI is refused", "Kerberos"]),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, ["DIGEST-MD5", "SCRAM-SHA-256"]),
        (LOGIN | {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, ["must be included in sasl.enabled.mechanisms"]),
        (LOGIN | {"listener.name.internal.plain.sasl.jaas.config": ""}, []),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"},
            ["listener.name.internal.plain.sasl.jaas.config", "is not set"],
        ),
    ],
)
def test_logins_that_cannot_work_stop_the_start(change: dict[str, str], words: list[str]) -> None:
    if not words:
        load("SASL_PLAINTEXT", change)
        return
    assert any(all(word in problem for word in words) for problem in problems("SASL_PLAINTEXT", change))


def test_a_controller_listener_has_a_mechanism_of_its_own() -> None:
    properties = {
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": "secret",
    }
    config = checked_config(BASE | properties)
    assert sasl_settings(config, "CONTROLLER").mechanisms == ("SCRAM-SHA-512",)
    assert login_settings(config, "CONTROLLER").mechanism == "SCRAM-SHA-512"
