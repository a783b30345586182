"""The SASL mechanisms of a node, made of the login contexts in its settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.config.config import ConfigError
from broker.config.sasl import LoginSettings, SaslSettings
from broker.network.authentication.exchange import MechanismMaker
from broker.network.authentication.peer_login import ClientMechanismMaker
from broker.runtime.environment import Environment

if TYPE_CHECKING:
    from broker.config.password import Password
    from security.sasl.jaas import LoginModule

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class NodeMechanisms:
    """Modules of a mechanism are imported where a listener offers it."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def offered(self, settings: SaslSettings) -> Mapping[str, MechanismMaker]:
        makers = {PLAIN: self._plain}
        offered: dict[str, MechanismMaker] = {}
        for name in settings.mechanisms:
            make = makers.get(name)
            if make is None:
                raise ConfigError(
                    [f"Listener {settings.listener} cannot offer {name}: it is not part of this version."]
                )
            setting = f"listener.name.{settings.listener.lower()}.{name.lower()}.sasl.jaas.config"
            offered[name] = make(_login_module(settings.jaas.get(name), name, setting))
        return offered

    def login(self, settings: LoginSettings) -> ClientMechanismMaker:
        module = _login_module(settings.jaas, settings.mechanism, settings.jaas_name)
        try:
            username, password = module.option("username"), module.option("password")
        except ValueError as problem:
            raise ValueError(f"{settings.jaas_name}: {problem}") from None
        if settings.mechanism == PLAIN:
            from security.sasl.plain import PlainClient

            return partial(PlainClient, username, password)
        if settings.mechanism in SCRAM:
            from security.sasl.scram.client import ScramClient, ScramLogin
            from security.sasl.scram.credential import ScramMechanism

            mechanism = next(each for each in ScramMechanism if each.mechanism_name == settings.mechanism)
            login = ScramLogin(mechanism, username, password)
            return partial(ScramClient, login, self._environment.entropy)
        raise ValueError(f"This node cannot log in with {settings.mechanism}: it is not part of this version.")

    async def look_up(self, what: object) -> object:
        raise AssertionError(f"nothing looks up {type(what).__name__}")

    def _plain(self, module: LoginModule) -> MechanismMaker:
        from security.sasl.plain import PlainServer, PlainUsers

        return partial(PlainServer, PlainUsers.of_login_module(module))


def _login_module(jaas: Password | None, mechanism: str, setting: str) -> LoginModule:
    """The login module of a mechanism. Raises ValueError with the name of the setting."""
    from security.sasl.jaas import JaasError, parse_jaas

    if jaas is None:
        raise ValueError(f"{setting} is not set: the mechanism {mechanism} needs it")
    try:
        return parse_jaas(jaas.reveal(), mechanism)
    except JaasError as problem:
        raise ValueError(f"{setting}: {problem}") from None
