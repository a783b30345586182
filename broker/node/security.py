"""The security of a node: the TLS of its listeners, the SASL mechanisms that they offer, its own logins to other nodes,
and its authorizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from moldau.broker.config.config import Config
from moldau.broker.config.sasl import (
    SASL_PROTOCOLS,
    LoginSettings,
    SaslSettings,
    login_settings,
    outgoing_listeners,
    sasl_settings,
    token_key,
)
from moldau.broker.config.tls import ENCRYPTED, encrypted_listeners, tls_settings
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.network.listener_security import AuthenticationCounts, CertificatePrincipal, ListenerSecurity
from moldau.broker.network.memory import receive_buffer
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
    from moldau.broker.config.setting import Password
    from moldau.broker.metadata.scram_users import MetadataScramUsers
    from moldau.broker.network.authentication.exchange import MechanismMaker
    from moldau.broker.network.authentication.sasl import CredentialLookup
    from moldau.broker.network.peer_security import ClientMechanismMaker
    from moldau.broker.node.audit_log import JsonAuditLog
    from moldau.broker.node.oauthbearer import NodeOauth
    from moldau.security.acl.authorizer import Authorizer
    from moldau.security.sasl.jaas import LoginModule

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SECRET_LABEL: Final = b"salts of unknown users\0"


def audit_log_of(config: Config, environment: Environment, loop: asyncio.AbstractEventLoop) -> JsonAuditLog | None:
    """The audit log of the node's authorizer; None if the configuration names no authorizer. Raises OSError if the file
    of the audit log cannot be opened.
    """
    if not config.text("authorizer.class.name"):
        return None
    from moldau.broker.node.audit_log import JsonAuditLog, open_audit_file

    open_audit_file(config)
    return JsonAuditLog(environment.wall_ms, loop.call_later)


def authorizer_of(config: Config, audit: JsonAuditLog) -> Authorizer:
    """The authorizer that the configuration names."""
    from moldau.security.acl.authorizer import Authorizer, AuthorizerSettings, parse_super_users

    settings = AuthorizerSettings(
        super_users=parse_super_users(config.text("super.users")),
        allows_without_acls=config.flag("allow.everyone.if.no.acl.found"),
        audits_allowed=config.flag("moldau.audit.log.allowed"),
    )
    return Authorizer(settings, audit)


class NodeSecurity:
    """The TLS, the SASL mechanisms and the authorizer of a node. The constructor reads the key and trust stores. It
    raises ValueError with the setting and the file if one cannot be used.
    """

    def __init__(
        self,
        config: Config,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
        mechanisms: NodeMechanisms,
    ) -> None:
        self._config = config
        self._environment = environment
        self._loop = loop
        self._spawn = spawn
        self._mechanisms = mechanisms
        self._tls: dict[str, NodeTls] = {}
        names = encrypted_listeners(config)
        if names:
            from moldau.broker.network.tls.contexts import ReloadingTls
            from moldau.broker.network.tls.handshakes import Handshakes
            from moldau.broker.network.tls.stream import RAW_BUFFER_SIZE

            handshakes, buffer = Handshakes(loop), receive_buffer(RAW_BUFFER_SIZE)
            for name in names:
                self._tls[name] = NodeTls(
                    ReloadingTls(tls_settings(config, name), environment.wall_ms), handshakes, buffer
                )
        self._everything = Unrestricted()
        self._audit = audit_log_of(config, environment, loop)
        self.authorizer = None if self._audit is None else authorizer_of(config, self._audit)

    def begin(self) -> None:
        """Begin to reload key and trust stores that change on disk, and to refresh the keys and tokens of the
        mechanisms.
        """
        self._mechanisms.begin(self._spawn)
        if self._tls:
            from moldau.broker.network.tls.contexts import watch_files

            self._spawn(watch_files(tuple(each.tls for each in self._tls.values()), self._environment.offload))

    def end(self) -> None:
        """Write what the audit log has only counted, once no client is connected."""
        if self._audit is not None:
            self._audit.write_counts()

    def follow(self, quorum: Quorum) -> None:
        """Decide by the ACLs of the committed metadata from now on, and follow their changes. The metadata must have
        been read up to its end.
        """
        authorizer = self.authorizer
        if authorizer is None:
            return
        authorizer.apply_changes(dict(quorum.image.acls.by_id.items()))
        authorizer.on_metadata_loaded()

        def published(image: MetadataImage, delta: MetadataDelta) -> None:
            if delta.acls.changed:
                authorizer.apply_changes(delta.acls.changed)

        quorum.subscribe(published)

    def of_listener(self, name: str) -> ListenerSecurity:
        """The security of a listener: the TLS and the SASL exchange of its connections, and the permissions of its
        clients.
        """
        protocol = self._config.listener_protocols[name]
        counts = AuthenticationCounts()
        gate = None
        if protocol in SASL_PROTOCOLS:
            from moldau.broker.network.authentication.sasl import SaslGate

            settings = sasl_settings(self._config, name)
            gate = SaslGate(
                settings,
                self._mechanisms.mechanism_makers(settings),
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
            login=None if gate is None else gate.begin,
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
        """The security of this node's connections to the listener `name` of other nodes: TLS and login; None if the
        listener is PLAINTEXT.
        """
        protocol = self._config.listener_protocols.get(name, "PLAINTEXT")
        if protocol == "PLAINTEXT":
            return None
        login = None
        if protocol in SASL_PROTOCOLS:
            login = self._mechanisms.login(login_settings(self._config, name))
        return PeerSecurity(self._tls[name] if protocol in ENCRYPTED else None, login)

    def channels(self, timeouts: Timeouts) -> tuple[PeerChannels, PeerChannels]:
        """The channels to other brokers and the channels to controllers. Both are the same object if neither needs TLS
        or a login.
        """
        config = self._config
        brokers = self._to_listener(config.inter_broker_listener_name) if config.is_broker else None
        controllers = self._to_listener(config.controller_listener_names[0])

        def channels(security: PeerSecurity | None) -> PeerChannels:
            return PeerChannels(self._loop, timeouts, f"node-{config.node_id}", KAFKA_VERSION, security)

        to_brokers = channels(brokers)
        return to_brokers, to_brokers if brokers is controllers is None else channels(controllers)

    def access_of(self, principal: Principal, client_host: str) -> Access:
        """The permissions of a principal whose client is at an address. Without an authorizer everything is allowed."""
        if self.authorizer is not None:
            return self.authorizer.access(principal, client_host)
        return self._everything if principal == ANONYMOUS else Unrestricted(principal)


class NodeMechanisms:
    """Makes the SASL mechanisms of a node. The modules of a mechanism are imported only if a listener offers it or this
    node logs in with it.
    """

    def __init__(
        self, config: Config, environment: Environment, cluster_id: str, image: Callable[[], MetadataImage]
    ) -> None:
        """`image` gives the current metadata, which has the SCRAM credentials of users."""
        self._config = config
        self._environment = environment
        self._cluster_id = cluster_id
        self._image = image
        self._users: MetadataScramUsers | None = None
        self._oauth: NodeOauth | None = None

    def mechanism_makers(self, settings: SaslSettings) -> Mapping[str, MechanismMaker]:
        """For each mechanism that a listener offers, a function that makes its server's side. Raises ValueError if a
        JAAS login context cannot be used.
        """
        makers = {PLAIN: self._plain, OAUTHBEARER: self._bearer, **dict.fromkeys(SCRAM, self._scram)}
        return {name: makers[name](settings, name) for name in settings.mechanisms}

    def login(self, settings: LoginSettings) -> ClientMechanismMaker:
        """A function that makes this node's side of a SASL exchange with a listener of other nodes. Raises ValueError
        if the JAAS login context cannot be used.
        """
        module = _login_module(settings.jaas, settings.mechanism, settings.jaas_name)
        if settings.mechanism == OAUTHBEARER:
            try:
                return self._with_oauth().login(settings.listener, module)
            except ValueError as problem:
                raise ValueError(f"{settings.jaas_name}: {problem}") from None
        from moldau.security.sasl.client_login import PASSWORD_MECHANISMS, password_login

        assert settings.mechanism in PASSWORD_MECHANISMS, f"the rules of settings let {settings.mechanism} pass"
        try:
            return password_login(settings.mechanism, module, self._environment.entropy)
        except ValueError as problem:
            raise ValueError(f"{settings.jaas_name}: {problem}") from None

    def lookup(self, settings: SaslSettings) -> CredentialLookup:
        """The function by which the mechanisms of a listener look up data such as an identity provider's keys."""
        oauth = self._oauth
        return no_lookup if oauth is None else partial(oauth.look_up, settings.listener)

    def begin(self, spawn: Spawn) -> None:
        """Begin to refresh the keys of identity providers and this node's tokens."""
        for follow in self._oauth.followers if self._oauth is not None else ():
            spawn(follow())

    def _plain(self, settings: SaslSettings, name: str) -> MechanismMaker:
        from moldau.security.sasl.plain import PlainServer, PlainUsers

        module = _login_module(settings.jaas.get(name), name, _jaas_name(settings, name))
        return partial(PlainServer, PlainUsers.of_login_module(module))

    def _scram(self, settings: SaslSettings, name: str) -> MechanismMaker:
        """A function that makes the server's side of SCRAM. The users are in the metadata, so it needs no JAAS login
        context. One that is set is checked.
        """
        from moldau.broker.metadata.scram_users import MetadataScramUsers
        from moldau.security.sasl.scram.credential import SCRAM_MECHANISMS
        from moldau.security.sasl.scram.exchange import ScramServer

        if name in settings.jaas:
            _login_module(settings.jaas[name], name, _jaas_name(settings, name))
        if self._users is None:
            self._users = MetadataScramUsers(self._image, token_key(self._config), self._environment.wall_ms)
        return partial(
            ScramServer, SCRAM_MECHANISMS[name], self._users, self._environment.entropy, self._secret_of_salts()
        )

    def _bearer(self, settings: SaslSettings, name: str) -> MechanismMaker:
        """A function that makes the server's side of OAUTHBEARER. Its keys and claims are in settings, so it needs no
        JAAS login context. One that is set is checked.
        """
        if name in settings.jaas:
            _login_module(settings.jaas[name], name, _jaas_name(settings, name))
        return self._with_oauth().mechanism_maker(settings.listener)

    def _with_oauth(self) -> NodeOauth:
        from moldau.broker.node.oauthbearer import NodeOauth

        if self._oauth is None:
            self._oauth = NodeOauth(self._config, self._environment)
        return self._oauth

    def _secret_of_salts(self) -> bytes:
        """A secret from which the SCRAM salts of unknown users are made, the same on all nodes of the cluster and after
        a restart: the key of delegation tokens, or else the password with which this node logs in to other nodes. If
        neither is set, it is made from the cluster id, and a client that knows the cluster id can find out whether a
        user exists.
        """
        import hmac

        key = token_key(self._config)
        if key is None:
            protocols = self._config.listener_protocols
            listeners = (each for each in outgoing_listeners(self._config) if protocols.get(each) in SASL_PROTOCOLS)
            logins = (login_settings(self._config, each).jaas for each in listeners)
            key = "".join(each.reveal() for each in logins if each is not None).encode()
        return hmac.digest(key or b"none", SECRET_LABEL + self._cluster_id.encode(), "sha256")


async def no_lookup(what: object) -> object:
    raise AssertionError(f"nothing looks up {type(what).__name__}")


def _jaas_name(settings: SaslSettings, mechanism: str) -> str:
    return f"listener.name.{settings.listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _login_module(jaas: Password | None, mechanism: str, setting: str) -> LoginModule:
    """Parse the JAAS login module of a mechanism. Raises ValueError with the name of the setting."""
    from moldau.security.sasl.jaas import JaasError, parse_jaas

    if jaas is None:
        raise ValueError(f"{setting} is not set: the mechanism {mechanism} needs it")
    try:
        return parse_jaas(jaas.reveal(), mechanism)
    except JaasError as problem:
        raise ValueError(f"{setting}: {problem}") from None
