"""The settings of OAUTHBEARER for one listener. They are read with the prefix of the listener and the mechanism, or
else with that of the listener, or else without a prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.broker.config.listeners import ListenerConfig
from moldau.broker.config.sasl import SASL_PROTOCOLS, login_settings, outgoing_listeners, sasl_settings
from moldau.broker.config.setting import Password
from moldau.protocol.late_dataclass import dataclass

NAME: Final = "OAUTHBEARER"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
SIGNED_HANDLERS: Final = (
    _PACKAGE + "OAuthBearerValidatorCallbackHandler",
    _PACKAGE + "secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_HANDLERS: Final = (
    _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
LOGIN_HANDLERS: Final = (
    _PACKAGE + "OAuthBearerLoginCallbackHandler",
    _PACKAGE + "secured.OAuthBearerLoginCallbackHandler",
)
ALLOWED_URLS_SETTING: Final = "moldau.oauthbearer.allowed.urls"
JWKS_URL_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL_SETTING: Final = "sasl.oauthbearer.token.endpoint.url"
JWKS_BACKOFF: Final = (
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
)
LOGIN_BACKOFF: Final = ("sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms")
TIMEOUT_MS: Final = 10_000
"""The default time-out (ms) for connecting to the identity provider, and for each read of its response."""


@dataclass(frozen=True, slots=True)
class ProviderEndpoint:
    """The URL of an identity provider, with the time-outs of requests to it and the pauses between attempts."""

    url: str
    connect_ms: int
    read_ms: int
    backoff_ms: int
    """The pause (ms) after the first failure. It doubles with each further failure, up to `backoff_ms_max`."""
    backoff_ms_max: int


@dataclass(frozen=True, slots=True)
class OauthServerSettings:
    """The rules by which a listener checks the tokens of its clients."""

    keys: ProviderEndpoint | None
    """The endpoint with the keys that sign tokens; None if tokens are accepted without a signature."""
    refresh_ms: int
    issuer: str | None
    audiences: tuple[str, ...]
    clock_skew_ms: int
    subject_claim: str
    scope_claim: str


@dataclass(frozen=True, slots=True)
class OauthLoginSettings:
    """The source of the token with which this node logs in to another node: an identity provider, or an unsecured
    token.
    """

    tokens: ProviderEndpoint | None
    """The endpoint of the identity provider that issues tokens; None if this node makes unsecured tokens."""
    client_id: str | None
    client_secret: Password | None
    scope: str | None
    refresh_factor: float
    refresh_jitter: float
    refresh_ms_min: int
    refresh_buffer_ms: int


def oauth_server_settings(config: ListenerConfig, listener: str) -> OauthServerSettings:
    # DIVERGES: if the URL of keys is set, tokens are signed; Apache Kafka takes unsecured ones unless its handler
    # for signed ones is named.
    of = _OfMechanism(config, listener)
    return OauthServerSettings(
        keys=of.endpoint(JWKS_URL_SETTING, JWKS_BACKOFF),
        refresh_ms=config.settings.integer(of.name("sasl.oauthbearer.jwks.endpoint.refresh.ms")),
        issuer=of.text("sasl.oauthbearer.expected.issuer"),
        audiences=config.settings.entries(of.name("sasl.oauthbearer.expected.audience")),
        clock_skew_ms=1000 * config.settings.integer(of.name("sasl.oauthbearer.clock.skew.seconds")),
        subject_claim=of.text("sasl.oauthbearer.sub.claim.name") or "sub",
        scope_claim=of.text("sasl.oauthbearer.scope.claim.name") or "scope",
    )


def oauth_login_settings(config: ListenerConfig, listener: str) -> OauthLoginSettings:
    of, settings = _OfMechanism(config, listener), config.settings
    return OauthLoginSettings(
        tokens=of.endpoint(TOKEN_URL_SETTING, LOGIN_BACKOFF),
        client_id=of.text("sasl.oauthbearer.client.credentials.client.id"),
        client_secret=settings.password(of.name("sasl.oauthbearer.client.credentials.client.secret")),
        scope=of.text("sasl.oauthbearer.scope"),
        refresh_factor=settings.real(of.name("sasl.login.refresh.window.factor")),
        refresh_jitter=settings.real(of.name("sasl.login.refresh.window.jitter")),
        refresh_ms_min=1000 * settings.integer(of.name("sasl.login.refresh.min.period.seconds")),
        refresh_buffer_ms=1000 * settings.integer(of.name("sasl.login.refresh.buffer.seconds")),
    )


def allowed_urls(config: ListenerConfig) -> tuple[str, ...]:
    return config.settings.entries(ALLOWED_URLS_SETTING)


def broken_oauth_rules(config: ListenerConfig) -> Iterator[str]:
    """The problems of the OAUTHBEARER settings. The URLs are not opened."""
    for name in (SERVER_HANDLER, LOGIN_HANDLER):
        if config.settings.text_or_none(name):
            yield f"{name} stands behind a listener and a mechanism: listener.name.<listener>.oauthbearer.{name}"
    for each in config.listeners:
        if each.security_protocol in SASL_PROTOCOLS and NAME in sasl_settings(config, each.name).mechanisms:
            of = _OfMechanism(config, each.name)
            yield from of.broken(SERVER_HANDLER, SIGNED_HANDLERS, JWKS_URL_SETTING)
            yield from of.unverified()
    for listener in outgoing_listeners(config):
        if (
            config.listener_protocols.get(listener) in SASL_PROTOCOLS
            and login_settings(config, listener).mechanism == NAME
        ):
            yield from _OfMechanism(config, listener).broken(LOGIN_HANDLER, LOGIN_HANDLERS, TOKEN_URL_SETTING)


class _OfMechanism:
    """Reads the OAUTHBEARER settings of one listener."""

    def __init__(self, config: ListenerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener

    def name(self, name: str) -> str:
        own = f"listener.name.{self._listener.lower()}.{NAME.lower()}.{name}"
        return (
            own
            if self._config.settings.is_set(own)
            else self._config.settings.listener_setting_name(self._listener, name)
        )

    def text(self, name: str) -> str | None:
        return self._config.settings.text_or_none(self.name(name)) or None

    def endpoint(self, url_name: str, backoff: tuple[str, str]) -> ProviderEndpoint | None:
        url = self.text(url_name)
        if url is None:
            return None
        settings = self._config.settings
        return ProviderEndpoint(
            url,
            self._timeout_ms("sasl.login.connect.timeout.ms"),
            self._timeout_ms("sasl.login.read.timeout.ms"),
            settings.integer(self.name(backoff[0])),
            settings.integer(self.name(backoff[1])),
        )

    def broken(self, handler_name: str, secured: tuple[str, ...], url_name: str) -> Iterator[str]:
        handler, url = self.text(handler_name), self.text(url_name)
        if handler is not None and handler not in secured + UNSECURED_HANDLERS:
            yield f"{self.name(handler_name)} must be {secured[0]}: Java classes are not loaded, and not {handler}"
        if handler in secured and url is None:
            yield f"{self.name(handler_name)} asks for signed tokens, and {url_name} is not set"
        if handler in UNSECURED_HANDLERS and url is not None:
            yield f"{self.name(handler_name)} asks for unsecured tokens, and {self.name(url_name)} is set"
        if url is not None and url not in allowed_urls(self._config):
            yield f"{self.name(url_name)}: {url} is not among the URLs of {ALLOWED_URLS_SETTING}"

    def unverified(self) -> Iterator[str]:
        """Report each claim of signed tokens that must be verified, but for which no expected value is set.

        DIVERGES: Apache Kafka 4.4 wants the expected values also if nothing says whether they may be missing. Here any
        issuer and audience are accepted then, as in Apache Kafka 4.3.1, so that its files work.
        """
        settings = self._config.settings
        for claim, allowing, expecting, is_expected in (
            (
                "audience",
                "sasl.oauthbearer.allow.unverified.audience",
                "sasl.oauthbearer.expected.audience",
                bool(settings.entries(self.name("sasl.oauthbearer.expected.audience"))),
            ),
            (
                "issuer",
                "sasl.oauthbearer.allow.unverified.issuer",
                "sasl.oauthbearer.expected.issuer",
                self.text("sasl.oauthbearer.expected.issuer") is not None,
            ),
        ):
            allowed, expected = self.name(allowing), self.name(expecting)
            is_wanted = settings.is_set(allowed) and not settings.flag(allowed)
            if is_wanted and self.text(JWKS_URL_SETTING) is not None and not is_expected:
                yield f"{allowed} is false, and {expected} is not set: the {claim} of a token could not be verified"

    def _timeout_ms(self, name: str) -> int:
        value = self._config.settings.integer_or_none(self.name(name))
        return TIMEOUT_MS if value is None else value
