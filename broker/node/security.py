"""The security of a node: TLS of its listeners, the mechanisms that they offer, and its own logins to other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from broker.config.config import Config
from broker.config.sasl import AUTHENTICATED, LoginSettings, SaslSettings, login_settings, sasl_settings
from broker.config.tls import ENCRYPTED, names_of_encrypted, tls_settings
from broker.network.authentication.counts import AuthenticationCounts
from broker.network.authentication.exchange import MechanismMaker
from broker.network.authentication.peer_login import ClientMechanismMaker
from broker.network.authentication.sasl import CredentialLookup, SaslGate
from broker.network.listener_security import CertificatePrincipal, ListenerSecurity
from broker.network.peer_channel import PeerChannels
from broker.network.peer_security import NodeTls, PeerSecurity
from broker.network.tls.following import FollowedTls, follow
from broker.network.tls.handshakes import Handshakes
from broker.network.tls.stream import RAW_BUFFER_SIZE
from broker.purgatory.timer_wheel import Timeouts
from broker.release import KAFKA_VERSION
from broker.runtime.environment import Environment
from broker.runtime.tasks import Spawn
from security.access import Access, Unrestricted
from security.principal import ANONYMOUS, USER, Principal
from security.tls.certificate_names import subject_name
from security.tls.principal_rules import PrincipalRules


class Mechanisms(Protocol):
    """The SASL mechanisms of a node, on both sides."""

    def offered(self, settings: SaslSettings) -> Mapping[str, MechanismMaker]:
        """Makes each mechanism of a listener. Raises ValueError where its login context cannot be used."""

    def login(self, settings: LoginSettings) -> ClientMechanismMaker:
        """Makes the side of a client. Raises ValueError where its login context cannot be used."""

    def lookup(self, settings: SaslSettings) -> CredentialLookup:
        """Gives the mechanisms of a listener what they need before they decide."""

    def begin(self, spawn: Spawn) -> None:
        """Keep new what mechanisms decide with."""


class NodeSecurity:
    """Reads the key and trust stores when it is made. Raises ValueError with the setting and the file."""

    def __init__(
        self,
        config: Config,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        mechanisms: Mechanisms,
    ) -> None:
        self._config = config
        self._environment = environment
        self._loop = loop
        self._spawn = spawn
        self._mechanisms = mechanisms
        self._tls: dict[str, NodeTls] = {}
        names = names_of_encrypted(config)
        if names:
            handshakes, buffer = Handshakes(loop), memoryview(bytearray(RAW_BUFFER_SIZE))
            for name in names:
                self._tls[name] = NodeTls(FollowedTls(tls_settings(config, name)), handshakes, buffer)
        self._everything = Unrestricted()

    def begin(self) -> None:
        """Follow the files of the stores, and what mechanisms decide with."""
        self._mechanisms.begin(self._spawn)
        if self._tls:
            self._spawn(follow(tuple(each.tls for each in self._tls.values()), self._environment.offload))

    def of_listener(self, name: str) -> ListenerSecurity:
        """What the clients of a listener go through."""
        protocol = self._config.listener_protocols[name]
        counts = AuthenticationCounts()
        gate = None
        if protocol in AUTHENTICATED:
            settings = sasl_settings(self._config, name)
            gate = SaslGate(
                settings,
                self._mechanisms.offered(settings),
                self.access_of,
                self._mechanisms.lookup(settings),
                counts,
                self._environment,
                self._loop,
                self._spawn,
            )
        return ListenerSecurity(
            self.access_of,
            counts,
            entrance=self._tls[name] if protocol in ENCRYPTED else None,
            gate=gate,
            principal_of=self._certificate_principal() if protocol == "SSL" else None,
        )

    def _certificate_principal(self) -> CertificatePrincipal:
        rules = PrincipalRules(self._config.text("ssl.principal.mapping.rules"))

        def principal_of(certificate: bytes) -> Principal:
            subject = subject_name(certificate)
            name = rules.name_of(subject)
            if name is None:
                raise ValueError(f"no rule of ssl.principal.mapping.rules matches {subject}")
            return Principal(USER, name)

        return principal_of

    def _to_listener(self, name: str) -> PeerSecurity | None:
        """How this node talks to a listener of other nodes; None where it is PLAINTEXT."""
        protocol = self._config.listener_protocols.get(name, "PLAINTEXT")
        if protocol == "PLAINTEXT":
            return None
        login = None
        if protocol in AUTHENTICATED:
            login = self._mechanisms.login(login_settings(self._config, name))
        return PeerSecurity(self._tls[name] if protocol in ENCRYPTED else None, login)

    def channels(self, timeouts: Timeouts) -> tuple[PeerChannels, PeerChannels]:
        """The ways to other brokers and to controllers; the same where neither asks for anything."""
        config = self._config
        brokers = self._to_listener(config.inter_broker_listener_name) if config.is_broker else None
        controllers = self._to_listener(config.controller_listener_names[0])

        def channels(security: PeerSecurity | None) -> PeerChannels:
            return PeerChannels(self._loop, timeouts, f"node-{config.node_id}", KAFKA_VERSION, security)

        to_brokers = channels(brokers)
        return to_brokers, to_brokers if brokers is controllers is None else channels(controllers)

    def access_of(self, principal: Principal, client_host: str) -> Access:
        """What a principal may do: everything, where no authorizer is configured."""
        return self._everything if principal == ANONYMOUS else Unrestricted(principal)
