"""The SASL mechanisms of a node, made of the login contexts in its settings."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.config.sasl import (
    AUTHENTICATED,
    LoginSettings,
    SaslSettings,
    login_settings,
    talked_to,
    token_key,
)
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.config.password import Password
    from moldau.broker.metadata.scram_users import MetadataScramUsers
    from moldau.broker.network.authentication.exchange import MechanismMaker
    from moldau.broker.network.authentication.peer_login import ClientMechanismMaker
    from moldau.broker.network.authentication.sasl import CredentialLookup
    from moldau.broker.node.oauthbearer import NodeOauth
    from moldau.kraft.image.metadata_image import MetadataImage
    from moldau.security.sasl.jaas import LoginModule

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SECRET_LABEL: Final = b"salts of unknown users\0"


class NodeMechanisms:
    """Makes the SASL mechanisms of a node. The modules of a mechanism are imported only where a listener offers it."""

    def __init__(
        self, config: Config, environment: Environment, cluster_id: str, image: Callable[[], MetadataImage]
    ) -> None:
        """`image` gives the current metadata, which holds the credentials of users."""
        self._config = config
        self._environment = environment
        self._cluster_id = cluster_id
        self._image = image
        self._users: MetadataScramUsers | None = None
        self._oauth: NodeOauth | None = None

    def offered(self, settings: SaslSettings) -> Mapping[str, MechanismMaker]:
        makers = {PLAIN: self._plain, OAUTHBEARER: self._bearer, **dict.fromkeys(SCRAM, self._scram)}
        return {name: makers[name](settings, name) for name in settings.mechanisms}

    def login(self, settings: LoginSettings) -> ClientMechanismMaker:
        module = _login_module(settings.jaas, settings.mechanism, settings.jaas_name)
        if settings.mechanism == OAUTHBEARER:
            try:
                return self._with_oauth().login(settings.listener, module)
            except ValueError as problem:
                raise ValueError(f"{settings.jaas_name}: {problem}") from None
        try:
            username, password = module.option("username"), module.option("password")
        except ValueError as problem:
            raise ValueError(f"{settings.jaas_name}: {problem}") from None
        if settings.mechanism == PLAIN:
            from moldau.security.sasl.plain import PlainClient

            return partial(PlainClient, username, password)
        if settings.mechanism in SCRAM:
            from moldau.security.sasl.scram.client import ScramClient, ScramLogin
            from moldau.security.sasl.scram.credential import SCRAM_MECHANISMS
            from moldau.security.sasl.scram.messages import TOKEN_EXTENSION

            login = ScramLogin(SCRAM_MECHANISMS[settings.mechanism], username, password)
            is_token = module.options.get(TOKEN_EXTENSION, "").lower() == "true"
            extensions = f",{TOKEN_EXTENSION}=true" if is_token else ""
            return partial(ScramClient, login, self._environment.entropy, extensions)
        raise AssertionError(f"the rules of settings let {settings.mechanism} pass")

    def lookup(self, settings: SaslSettings) -> CredentialLookup:
        oauth = self._oauth
        return nothing if oauth is None else partial(oauth.look_up, settings.listener)

    def begin(self, spawn: Spawn) -> None:
        """Begin to refresh the keys of identity providers and this node's tokens."""
        for follow in self._oauth.followers if self._oauth is not None else ():
            spawn(follow())

    def _plain(self, settings: SaslSettings, name: str) -> MechanismMaker:
        from moldau.security.sasl.plain import PlainServer, PlainUsers

        module = _login_module(settings.jaas.get(name), name, _jaas_name(settings, name))
        return partial(PlainServer, PlainUsers.of_login_module(module))

    def _scram(self, settings: SaslSettings, name: str) -> MechanismMaker:
        """SCRAM. The users are in the metadata, so a login context is not needed; a login context that is set is
        checked.
        """
        from moldau.broker.metadata.scram_users import MetadataScramUsers
        from moldau.security.sasl.scram.credential import SCRAM_MECHANISMS
        from moldau.security.sasl.scram.server import ScramServer

        if name in settings.jaas:
            _login_module(settings.jaas[name], name, _jaas_name(settings, name))
        if self._users is None:
            self._users = MetadataScramUsers(self._image, token_key(self._config), self._environment.wall_ms)
        return partial(
            ScramServer, SCRAM_MECHANISMS[name], self._users, self._environment.entropy, self._secret_of_salts()
        )

    def _bearer(self, settings: SaslSettings, name: str) -> MechanismMaker:
        """OAUTHBEARER. Keys and claims are in settings, so a login context is not needed; a login context that is set
        is checked.
        """
        if name in settings.jaas:
            _login_module(settings.jaas[name], name, _jaas_name(settings, name))
        return self._with_oauth().offered(settings.listener)

    def _with_oauth(self) -> NodeOauth:
        from moldau.broker.node.oauthbearer import NodeOauth

        if self._oauth is None:
            self._oauth = NodeOauth(self._config, self._environment)
        return self._oauth

    def _secret_of_salts(self) -> bytes:
        """A secret that the nodes of the cluster share: the key of delegation tokens, else the password with which this
        node logs in to others. It does not change with a restart. Where neither is set the cluster id is used instead,
        and a client that knows it can find out whether a user exists.
        """
        key = token_key(self._config)
        if key is None:
            protocols = self._config.listener_protocols
            listeners = (each for each in talked_to(self._config) if protocols.get(each) in AUTHENTICATED)
            logins = (login_settings(self._config, each).jaas for each in listeners)
            key = "".join(each.reveal() for each in logins if each is not None).encode()
        return hmac.digest(key or b"none", SECRET_LABEL + self._cluster_id.encode(), "sha256")


async def nothing(what: object) -> object:
    raise AssertionError(f"nothing looks up {type(what).__name__}")


def _jaas_name(settings: SaslSettings, mechanism: str) -> str:
    return f"listener.name.{settings.listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _login_module(jaas: Password | None, mechanism: str, setting: str) -> LoginModule:
    """The login module of a mechanism. Raises ValueError with the name of the setting."""
    from moldau.security.sasl.jaas import JaasError, parse_jaas

    if jaas is None:
        raise ValueError(f"{setting} is not set: the mechanism {mechanism} needs it")
    try:
        return parse_jaas(jaas.reveal(), mechanism)
    except JaasError as problem:
        raise ValueError(f"{setting}: {problem}") from None
