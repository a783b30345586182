"""The security of a node: TLS of its listeners, the mechanisms that they offer, and its own logins to other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.broker.config.config import Config
from moldau.broker.config.sasl import AUTHENTICATED, LoginSettings, SaslSettings, login_settings, sasl_settings
from moldau.broker.config.tls import ENCRYPTED, names_of_encrypted, tls_settings
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.network.authentication.counts import AuthenticationCounts
from moldau.broker.network.listener_security import CertificatePrincipal, ListenerSecurity
from moldau.broker.network.peer_channel import PeerChannels
from moldau.broker.network.peer_security import NodeTls, PeerSecurity
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.broker.release import KAFKA_VERSION
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage
from moldau.security.access import Access, Unrestricted
from moldau.security.principal import ANONYMOUS, USER, Principal

if TYPE_CHECKING:
    from moldau.broker.network.authentication.exchange import MechanismMaker
    from moldau.broker.network.authentication.peer_login import ClientMechanismMaker
    from moldau.broker.network.authentication.sasl import CredentialLookup
    from moldau.security.acl.authorizer import Authorizer


class Mechanisms(Protocol):
    """The SASL mechanisms of a node, on both sides."""

    def offered(self, settings: SaslSettings) -> Mapping[str, MechanismMaker]:
        """Functions that make the server's side of each mechanism of a listener. Raises ValueError where its login
        context cannot be used.
        """

    def login(self, settings: LoginSettings) -> ClientMechanismMaker:
        """A function that makes this node's side of an exchange as a client. Raises ValueError where its login context
        cannot be used.
        """

    def lookup(self, settings: SaslSettings) -> CredentialLookup:
        """The lookup by which the mechanisms of a listener get data such as a provider's keys."""

    def begin(self, spawn: Spawn) -> None:
        """Begin to refresh the keys of identity providers and this node's tokens."""


def authorizer_of(config: Config, environment: Environment) -> Authorizer | None:
    """The authorizer that the configuration names. Raises OSError where its audit log cannot be opened."""
    if not config.text("authorizer.class.name"):
        return None
    from moldau.broker.node.audit_log import JsonAuditLog, open_audit_file
    from moldau.security.acl.authorizer import Authorizer, AuthorizerSettings, parse_super_users

    open_audit_file(config)
    settings = AuthorizerSettings(
        super_users=parse_super_users(config.text("super.users")),
        allows_without_acls=config.flag("allow.everyone.if.no.acl.found"),
        audits_allowed=config.flag("moldau.audit.log.allowed"),
    )
    return Authorizer(settings, JsonAuditLog(environment.wall_ms))


class NodeSecurity:
    """The TLS, the mechanisms and the authorizer of a node. The constructor reads the key and trust stores, and
    raises ValueError with the setting and the file.
    """

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
            from moldau.broker.network.tls.following import FollowedTls
            from moldau.broker.network.tls.handshakes import Handshakes
            from moldau.broker.network.tls.stream import RAW_BUFFER_SIZE

            handshakes, buffer = Handshakes(loop), memoryview(bytearray(RAW_BUFFER_SIZE))
            for name in names:
                self._tls[name] = NodeTls(
                    FollowedTls(tls_settings(config, name), environment.wall_ms), handshakes, buffer
                )
        self._everything = Unrestricted()
        self.authorizer = authorizer_of(config, environment)

    def begin(self) -> None:
        """Begin to reload key and trust stores that change on disk, and to refresh the keys and tokens of the
        mechanisms.
        """
        self._mechanisms.begin(self._spawn)
        if self._tls:
            from moldau.broker.network.tls.following import follow

            self._spawn(follow(tuple(each.tls for each in self._tls.values()), self._environment.offload))

    def follow(self, quorum: Quorum) -> None:
        """Let the ACLs of the metadata decide from now on, as they change. The metadata has been read up to its end."""
        authorizer = self.authorizer
        if authorizer is None:
            return
        authorizer.changed(dict(quorum.image.acls.by_id.items()))
        authorizer.loaded()

        def published(image: MetadataImage, delta: MetadataDelta) -> None:
            if delta.acls.changed:
                authorizer.changed(delta.acls.changed)

        quorum.subscribe(published)

    def of_listener(self, name: str) -> ListenerSecurity:
        """The security of a listener: the TLS and the SASL exchange of its connections, and the access of its
        clients.
        """
        protocol = self._config.listener_protocols[name]
        counts = AuthenticationCounts()
        gate = None
        if protocol in AUTHENTICATED:
            from moldau.broker.network.authentication.sasl import SaslGate

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
            principal_of=self._certificate_principal(name) if protocol == "SSL" else None,
        )

    def _certificate_principal(self, listener: str) -> CertificatePrincipal:
        from moldau.security.tls.certificate_names import subject_name
        from moldau.security.tls.principal_rules import PrincipalRules

        rules = PrincipalRules(tls_settings(self._config, listener).principal_rules)

        def principal_of(certificate: bytes) -> Principal:
            subject = subject_name(certificate)
            name = rules.name_of(subject)
            if name is None:
                raise ValueError(f"no rule of ssl.principal.mapping.rules matches {subject}")
            return Principal(USER, name)

        return principal_of

    def _to_listener(self, name: str) -> PeerSecurity | None:
        """The TLS and the login for a listener of other nodes; None where it is PLAINTEXT."""
        protocol = self._config.listener_protocols.get(name, "PLAINTEXT")
        if protocol == "PLAINTEXT":
            return None
        login = None
        if protocol in AUTHENTICATED:
            login = self._mechanisms.login(login_settings(self._config, name))
        return PeerSecurity(self._tls[name] if protocol in ENCRYPTED else None, login)

    def channels(self, timeouts: Timeouts) -> tuple[PeerChannels, PeerChannels]:
        """The channels to other brokers and those to controllers: the same object where neither needs TLS or a
        login.
        """
        config = self._config
        brokers = self._to_listener(config.inter_broker_listener_name) if config.is_broker else None
        controllers = self._to_listener(config.controller_listener_names[0])

        def channels(security: PeerSecurity | None) -> PeerChannels:
            return PeerChannels(self._loop, timeouts, f"node-{config.node_id}", KAFKA_VERSION, security)

        to_brokers = channels(brokers)
        return to_brokers, to_brokers if brokers is controllers is None else channels(controllers)

    def access_of(self, principal: Principal, client_host: str) -> Access:
        """An `Access` for a principal at an address. It allows everything where no authorizer is configured."""
        if self.authorizer is not None:
            return self.authorizer.access(principal, client_host)
        return self._everything if principal == ANONYMOUS else Unrestricted(principal)
