"""`moldau format --secure DIR`: makes the keys, certificates, settings and users of a single node that only
authenticated clients can use.

    DIR/ca.pem, ca.key          the authority; clients need ca.pem, the key signs the certificates of the node
    DIR/node.pem                the node's private key and certificate
    DIR/server.properties       the node's settings, with the password of its own user
    DIR/client.properties       what a client needs to log in as the user admin

Clients log in by SCRAM under TLS, and so does the node to itself. PLAINTEXT is served only on the loopback address, to
clients without permissions. Existing files are not changed.

The directory must belong to the user that runs the command, and must not be a link: another user could otherwise read
the keys, or have them written elsewhere. A file is only ever created, never overwritten.
"""

from __future__ import annotations

import errno
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moldau.broker.cli.invocation import CommandError
from moldau.broker.config.catalogue import broker_catalogue
from moldau.broker.config.setting import Stance
from moldau.broker.config.sources import internal_topic_settings
from moldau.storage.files.local_files import PrivateDirectory

AUTHORITY_DAYS: Final = 3_650
NODE_DAYS: Final = 825
"""The days for which the certificate of a node is valid. Some operating systems accept no longer time in their
clients.
"""
VALID_BEFORE_NOW: Final = timedelta(hours=1)
"""The time before the present at which a certificate becomes valid, because the clock of a client may be behind."""
PEM: Final = serialization.Encoding.PEM
MECHANISM: Final = "SCRAM-SHA-512"
LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NODE_USER, ADMIN_USER = "node", "admin"
SECRET_SIZE: Final = 24
"""The number of random bytes of a password."""
LOOPBACK: Final = ("localhost", "127.0.0.1")
CONNECTION_LIMITS: Final = {
    "listener.name.secure.max.connections": "10000",
    "max.connections.per.ip": "2000",
    "listener.name.secure.max.connection.creation.rate": "200",
}
"""The limits on connections, far above the needs of a single node. A TLS handshake takes one to two milliseconds, so
new connections at this rate leave more than half of a CPU core to other requests.
"""
SERVER: Final = "server.properties"
CLIENT: Final = "client.properties"
AUTHORITY, AUTHORITY_KEY, NODE = "ca.pem", "ca.key", "node.pem"
OPEN_MODE, SECRET_MODE = 0o644, 0o600
REFUSED_DIRECTORY_REASONS: Final = {errno.ELOOP: "is a link", errno.ENOTDIR: "is a link or no directory"}
"""Reasons, by error number, for which a directory is refused, in addition to those of `PrivateDirectory`."""


class SecureFiles:
    """The directory with the files of a secured node. `credentials` are the values of `--add-scram` for its users;
    empty if the files existed already, because then the users are in the metadata log. `messages` are lines to print.
    """

    def __init__(self, directory: Path, messages: list[str], credentials: list[str], made: Sequence[str] = ()) -> None:
        """`made` names the files that this command has created."""
        self.directory = directory
        self.messages = messages
        self.credentials = credentials
        self._made = made

    def undo(self) -> None:
        """Remove the files that this command has created. It is called if the metadata log could not be formatted, so
        that the next attempt creates new users.
        """
        with closing(PrivateDirectory(str(self.directory))) as own:
            _remove(own, self._made)

    @property
    def server(self) -> str:
        """The path of the node's server.properties."""
        return str(self.directory / SERVER)


def secure_files(
    directory: Path, data: str | None, hosts: list[str], random_bytes: Callable[[int], bytes], now_ms: int
) -> SecureFiles:
    """Create the keys, certificates and settings of a secured node, unless its server.properties exists. `hosts` are
    the names and addresses by which clients reach the node; the first one is advertised. Raises `CommandError`.
    """
    directory, names = directory.absolute(), [_host(each) for each in hosts or [LOOPBACK[0]]]
    try:
        own = PrivateDirectory(str(directory))
    except OSError as error:
        reason = REFUSED_DIRECTORY_REASONS.get(error.errno or 0, error.strerror)
        raise CommandError(f"{error.filename or directory} is refused for keys and passwords: {reason}") from None
    with closing(own):
        if own.exists(SERVER):
            return SecureFiles(directory, [f"{directory / SERVER} is there already, and stays as it is"], [])
        return _written(directory, own, data, names, random_bytes, now_ms)


def _host(text: str) -> str:
    """A value of `--host`, without the brackets of an IPv6 address. Raises `CommandError` if it has a port."""
    host = text.removeprefix("[").removesuffix("]")
    try:
        ip_address(host)
    except ValueError:
        if ":" in host:
            raise CommandError(f"--host {text}: a name or an address is needed, without a port") from None
    return host


def _endpoint(host: str) -> str:
    return f"[{host}]:9092" if ":" in host else f"{host}:9092"


def _written(
    directory: Path,
    own: PrivateDirectory,
    data: str | None,
    hosts: list[str],
    random_bytes: Callable[[int], bytes],
    now_ms: int,
) -> SecureFiles:
    authority = new_authority(now_ms)
    node = issue(authority, "moldau node 1", list(dict.fromkeys([*hosts, *LOOPBACK])), now_ms)
    passwords = {user: urlsafe_b64encode(random_bytes(SECRET_SIZE)).decode() for user in (NODE_USER, ADMIN_USER)}
    key = urlsafe_b64encode(random_bytes(SECRET_SIZE)).decode()
    server = server_settings(directory, str(Path(data or directory / "data").absolute()), hosts[0], passwords, key)
    contents = {
        AUTHORITY: (authority.certificate_pem(), OPEN_MODE),
        AUTHORITY_KEY: (authority.key_pem(), SECRET_MODE),
        NODE: (node.key_pem() + node.certificate_pem(), SECRET_MODE),
        CLIENT: (_lines(client_settings(directory, hosts[0], passwords[ADMIN_USER])), SECRET_MODE),
        SERVER: (_lines(server), SECRET_MODE),  # last: its presence says that all are there
    }
    made: list[str] = []
    try:
        for name, (content, mode) in contents.items():
            own.create(name, content, mode)
            made.append(name)
    except OSError as error:
        _remove(own, made)
        if isinstance(error, FileExistsError):
            raise CommandError(
                f"{error.filename} is there already, and is not overwritten: remove it, or name another directory"
            ) from None
        raise CommandError(f"{error.filename or directory} cannot be written: {error.strerror}") from None
    return SecureFiles(
        directory,
        [
            f"wrote {directory / SERVER}; start the node with: moldau serve {directory / SERVER}",
            f"wrote {directory / CLIENT} for the user {ADMIN_USER}, with {directory / AUTHORITY} for its clients",
        ],
        [f'{MECHANISM}=[name={user},password="{password}"]' for user, password in passwords.items()],
        made,
    )


def _remove(own: PrivateDirectory, names: Sequence[str]) -> None:
    """Remove files that this command has created. A file that cannot be removed stays; the next attempt reports it."""
    for name in names:
        with suppress(OSError):
            own.remove(name)


def server_settings(
    directory: Path, data: str, host: str, passwords: Mapping[str, str], token_key: str
) -> dict[str, str]:
    """The settings of a secured single node."""
    login = f'{LOGIN_MODULE} required username="{NODE_USER}" password="{passwords[NODE_USER]}";'
    mechanism = MECHANISM.lower()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "listeners": "SECURE://:9092,LOCAL://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": f"SECURE://{_endpoint(host)},LOCAL://127.0.0.1:9094",
        "listener.security.protocol.map": "SECURE:SASL_SSL,LOCAL:PLAINTEXT,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "SECURE",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        **internal_topic_settings(replicas=1),
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.mechanism.controller.protocol": MECHANISM,
        f"listener.name.secure.{mechanism}.sasl.jaas.config": login,
        f"listener.name.controller.{mechanism}.sasl.jaas.config": login,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / NODE),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / AUTHORITY),
        "delegation.token.secret.key": token_key,
        **CONNECTION_LIMITS,
    }
    if broker_catalogue()["authorizer.class.name"].stance is Stance.HONOURED:
        settings["authorizer.class.name"] = AUTHORIZER
        settings["super.users"] = f"User:{NODE_USER};User:{ADMIN_USER}"
        settings["allow.everyone.if.no.acl.found"] = "false"
    return settings


def client_settings(directory: Path, host: str, password: str) -> dict[str, str]:
    """The properties of a client that logs in as admin: for Java clients, and for the tools of Apache Kafka
    (--command-config).
    """
    return {
        "bootstrap.servers": _endpoint(host),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{LOGIN_MODULE} required username="{ADMIN_USER}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / AUTHORITY),
    }


def _lines(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in settings.items()).encode()


# The certificate authority: one key that signs the certificates of the nodes of a cluster. It is needed again only for
# further nodes, and can be taken off the machine.


class KeyPair(NamedTuple):
    """A private key and its certificate. `repr` does not show the key."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def __repr__(self) -> str:
        return f"KeyPair of {self.certificate.subject.rfc4514_string()}"

    def key_pem(self) -> bytes:
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)


def new_authority(now_ms: int) -> KeyPair:
    """Create a certificate authority with a self-signed certificate. It may sign nodes, but no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moldau cluster authority")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = (
        _builder(subject, subject, key.public_key(), now_ms, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(key, builder.sign(key, hashes.SHA256()))


def issue(authority: KeyPair, name: str, hosts: list[str], now_ms: int) -> KeyPair:
    """Issue the certificate of a node, for server and client use. `hosts` are the names and addresses by which clients
    reach the node.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(subject, authority.certificate.subject, key.public_key(), now_ms, NODE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in hosts]), critical=False)
        .add_extension(usage, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    return KeyPair(key, builder.sign(authority.key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID_BEFORE_NOW)
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
