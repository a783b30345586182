"""Settings of OAUTHBEARER: URLs of the list alone, known handlers alone, and what they ask for."""

from __future__ import annotations

import pytest

from moldau.broker.config import ConfigError
from moldau.broker.config.loading import checked_config
from moldau.broker.config.oauthbearer import oauth_login_settings, oauth_server_settings
from moldau.broker.config.sources import single_node_defaults

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
KEYS, TOKENS = "https://idp.example/keys", "https://idp.example/token"
LISTENER = "listener.name.sasl."
BASE = single_node_defaults("/tmp/nowhere") | {
    "listeners": "SASL://:9092,CONTROLLER://:9093",
    "advertised.listeners": "SASL://localhost:9092",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "SASL",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    LISTENER + "oauthbearer.sasl.jaas.config": PACKAGE
    + 'OAuthBearerLoginModule required clientId="node" clientSecret="s";',
}
SIGNED = {
    LISTENER + "oauthbearer.sasl.server.callback.handler.class": PACKAGE + "OAuthBearerValidatorCallbackHandler",
    LISTENER + "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": KEYS,
    LISTENER + "oauthbearer.sasl.login.callback.handler.class": PACKAGE + "OAuthBearerLoginCallbackHandler",
    LISTENER + "sasl.oauthbearer.token.endpoint.url": TOKENS,
    "sasl.oauthbearer.expected.issuer": "https://idp.example",
    "sasl.oauthbearer.expected.audience": "kafka,other",
    "sasl.login.read.timeout.ms": "5000",
    "moldau.oauthbearer.allowed.urls": f"{KEYS},{TOKENS}",
}


def problems(changes: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        checked_config(BASE | SIGNED | changes)
    return refusal.value.problems


def test_settings_are_found_behind_listener_and_mechanism() -> None:
    config = checked_config(BASE | SIGNED)
    server, login = oauth_server_settings(config, "SASL"), oauth_login_settings(config, "SASL")
    assert server.keys is not None
    assert (server.keys.url, server.keys.read_ms, server.keys.connect_ms) == (KEYS, 5000, 10_000)
    assert (server.issuer, server.audiences) == ("https://idp.example", ("kafka", "other"))
    assert login.tokens is not None
    assert login.tokens.url == TOKENS
    assert not config.warnings


def test_without_keys_tokens_are_unsecured() -> None:
    config = checked_config(BASE)
    assert oauth_server_settings(config, "SASL").keys is None
    assert oauth_login_settings(config, "SASL").tokens is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("moldau.oauthbearer.allowed.urls", KEYS, f"{TOKENS} is not among"),
        ("moldau.oauthbearer.allowed.urls", "", f"{KEYS} is not among"),
        (LISTENER + "oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd", "is not among"),
        (LISTENER + "oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "", "asks for signed tokens"),
        (LISTENER + "oauthbearer.sasl.server.callback.handler.class", "a.B", "Java classes are not loaded"),
        (LISTENER + "oauthbearer.sasl.login.callback.handler.class", "a.B", "Java classes are not loaded"),
        ("sasl.server.callback.handler.class", PACKAGE + "OAuthBearerValidatorCallbackHandler", "stands behind"),
        (
            LISTENER + "oauthbearer.sasl.server.callback.handler.class",
            PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
            "asks for unsecured tokens",
        ),
    ],
)
def test_cve_2025_27817_no_setting_makes_this_node_read_other_urls_or_classes(name: str, value: str, said: str) -> None:
    assert any(said in each for each in problems({name: value}))


@pytest.mark.parametrize("claim", ["audience", "issuer"])
def test_a_claim_that_must_be_verified_needs_an_expected_value(claim: str) -> None:
    allowed, expected = f"sasl.oauthbearer.allow.unverified.{claim}", f"sasl.oauthbearer.expected.{claim}"
    assert problems({allowed: "false", expected: ""}) == [
        f"{allowed} is false, and {expected} is not set: the {claim} of a token could not be verified"
    ]
    for accepted in ({expected: ""}, {allowed: "true", expected: ""}, {allowed: "false"}):
        checked_config(BASE | SIGNED | accepted)
    checked_config(BASE | {allowed: "false"})
