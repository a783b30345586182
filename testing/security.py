"""The security of a cluster: a certificate authority and a certificate that are made at its start, users with
passwords, and the settings with which each kind of client logs in.

Clients log in by SCRAM under TLS. The nodes authenticate to one another with their certificate, on listeners of their
own. No file holds a key: nodes get keys in their environment, clients in their settings.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ADMINISTRATOR: Final = "admin"
"""The user that may do everything. The conveniences of a cluster log in as this user."""

MECHANISM: Final = "SCRAM-SHA-512"
NODE: Final = "node"
"""The subject in the certificate of the nodes."""
VALID: Final = timedelta(days=1)
"""The time before and after its creation for which a certificate is valid: a test may move its clock a little."""
SECRET_SIZE: Final = 16
"""The number of random bytes in a password."""


class Security:
    """The keys, certificates and users of a cluster."""

    def __init__(self, users: Sequence[str], host: str) -> None:
        self.passwords: Final = {user: secrets.token_urlsafe(SECRET_SIZE) for user in (ADMINISTRATOR, *users)}
        authority_key, node_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority = _name("moldau testing authority")
        may_sign = x509.BasicConstraints(ca=True, path_length=0)
        hosts = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address(host))])
        self.authority_pem: Final = _signed(authority, authority, authority_key, authority_key, may_sign)
        """The certificate of the authority in PEM, which clients trust."""
        self._certificate = _signed(_name(NODE), authority, node_key, authority_key, hosts)
        self._key = node_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def node_settings(self) -> dict[str, str]:
        """The security settings of every node, without its listeners."""
        return {
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "NODES",
            "sasl.enabled.mechanisms": MECHANISM,
            "listener.name.nodes.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:CN={NODE};User:{ADMINISTRATOR}",
            "allow.everyone.if.no.acl.found": "false",
        }

    def node_variables(self) -> dict[str, str]:
        """The settings with keys, and the users with their passwords, as environment variables. Other users of the
        machine cannot read a process's environment, but could read its command line.
        """
        users = [f'{MECHANISM}=[name={user},password="{password}"]' for user, password in self.passwords.items()]
        return {
            "MOLDAU_ADD_SCRAM": "\n".join(users),
            "KAFKA_SSL_KEYSTORE_KEY": self._key,
            "KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN": self._certificate,
            "KAFKA_SSL_TRUSTSTORE_CERTIFICATES": self.authority_pem,
        }

    def client_settings(self, library: str, user: str | None) -> dict[str, Any]:
        """The TLS and SASL settings for a client of a library. `user` None means `admin`. Raises ValueError for a user
        that does not exist.
        """
        name = ADMINISTRATOR if user is None else user
        if name not in self.passwords:
            raise ValueError(f"there is no user {name}: the users are {', '.join(self.passwords)}")
        password = self.passwords[name]
        if library == "confluent-kafka":
            return {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": MECHANISM,
                "sasl.username": name,
                "sasl.password": password,
                "ssl.ca.pem": self.authority_pem,
            }
        if library == "java":
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            return {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": f'{module} required username="{name}" password="{password}";',
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.authority_pem,
            }
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": name,
            "sasl_plain_password": password,
            "ssl_context": ssl.create_default_context(cadata=self.authority_pem),
        }


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> str:
    now = datetime.fromtimestamp(time.time(), UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
