"""OAUTHBEARER on a node: the rules by which its listeners verify tokens, and the tokens with which it logs in to other
nodes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.config.oauthbearer import (
    OauthLoginSettings,
    allowed_urls,
    oauth_login_settings,
    oauth_server_settings,
)
from moldau.broker.network.authentication.identity_provider import (
    PostRequest,
    ProviderKeys,
    ProviderTokens,
    ask_provider,
)
from moldau.security.sasl.oauthbearer.exchange import (
    AllowedUrls,
    BearerClient,
    BearerServer,
    token_of_response,
    token_request,
)
from moldau.security.sasl.oauthbearer.keys import KeySet
from moldau.security.sasl.oauthbearer.token import TokenRules, unsecured_token

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.runtime.environment import Environment
    from moldau.security.sasl.jaas import LoginModule
    from moldau.security.sasl.mechanism import Mechanism

log = logging.getLogger("moldau.listener")

UNSECURED_LIFE_MS: Final = 3_600_000
SUBJECT_OPTION: Final = "unsecuredLoginStringClaim_sub"
EXTENSION_PREFIX: Final = "extension_"
AUTHORITIES_OPTION: Final = "ssl.truststore.location"


class NodeOauth:
    """The keys and tokens of OAUTHBEARER on a node. Each function of `followers` makes a coroutine that refreshes keys
    or tokens as long as the node runs.
    """

    def __init__(self, config: Config, environment: Environment) -> None:
        self._config = config
        self._environment = environment
        self.followers: list[Callable[[], Coroutine[object, object, None]]] = []
        self._keys: dict[str, ProviderKeys] = {}
        """For each listener with an identity provider, the provider's keys."""

    def mechanism_maker(self, listener: str) -> Callable[[], Mechanism]:
        """A function that makes the server's side of OAUTHBEARER for a client of the listener."""
        settings = oauth_server_settings(self._config, listener)
        rules = TokenRules(
            issuer=settings.issuer,
            audiences=frozenset(settings.audiences),
            subject_claim=settings.subject_claim,
            scope_claim=settings.scope_claim,
            clock_skew_ms=settings.clock_skew_ms,
            takes_unsecured=settings.keys is None,
        )
        wall_ms = self._environment.wall_ms
        if settings.keys is None:
            log.warning(
                "listener %s accepts OAUTHBEARER tokens without signatures: a client may claim to be any user. "
                "This is for development alone; sasl.oauthbearer.jwks.endpoint.url sets the keys of a provider",
                listener,
            )
            return partial(BearerServer, rules, KeySet(), wall_ms)
        keys = ProviderKeys(settings.keys, settings.refresh_ms, self._environment)
        self.followers.append(keys.follow)
        self._keys[listener] = keys
        return lambda: BearerServer(rules, keys.keys, wall_ms)

    async def look_up(self, listener: str, what: object) -> object:
        """Fetch the keys of a listener's identity provider again, and return them; an empty set if the listener has no
        provider. All keys are fetched, whatever `what` asks for.
        """
        keys = self._keys.get(listener)
        return KeySet() if keys is None else await keys.look_up(what)

    def login(self, listener: str, module: LoginModule) -> Callable[[], BearerClient]:
        """A function that makes this node's side of OAUTHBEARER when it logs in to a listener. Raises ValueError if a
        setting is missing.
        """
        settings = oauth_login_settings(self._config, listener)
        extensions = {
            name.removeprefix(EXTENSION_PREFIX): value
            for name, value in module.options.items()
            if name.startswith(EXTENSION_PREFIX)
        }
        if settings.tokens is None:
            subject = module.option(SUBJECT_OPTION)
            log.warning("this node logs in to listener %s with tokens without signatures", listener)
            return lambda: BearerClient(
                unsecured_token(subject, self._environment.wall_ms(), UNSECURED_LIFE_MS), extensions
            )
        tokens = ProviderTokens(settings, self._environment, self._fetch(settings, module))
        self.followers.append(tokens.follow)
        return lambda: BearerClient(tokens.token(), extensions)

    def _fetch(self, settings: OauthLoginSettings, module: LoginModule) -> Callable[[], str]:
        """A function that requests a token from the identity provider by the client credentials grant. The function
        blocks.
        """
        endpoint = settings.tokens
        assert endpoint is not None, "an endpoint is asked"
        client_id = settings.client_id or module.option("clientId")
        secret = module.option("clientSecret") if settings.client_secret is None else settings.client_secret.reveal()
        scope = settings.scope or module.options.get("scope")
        request = token_request(endpoint.url, client_id, secret, scope, AllowedUrls(allowed_urls(self._config)))
        post, authorities = PostRequest(request.headers, request.body), module.options.get(AUTHORITIES_OPTION)
        return lambda: token_of_response(ask_provider(endpoint, self._environment, post, authorities))
