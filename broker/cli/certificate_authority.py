"""A small certificate authority: one key that signs the certificates of the nodes of a cluster.

The authority's key is needed again only for further nodes; it can be taken off the machine.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3_650
NODE_DAYS: Final = 825
"""What clients of the operating systems take at most."""
EARLY: Final = timedelta(hours=1)
"""How far before now a certificate is valid, for clocks that are behind."""
PEM: Final = serialization.Encoding.PEM


class KeyPair(NamedTuple):
    """A private key and its certificate. Its `repr` shows no key."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def __repr__(self) -> str:
        return f"KeyPair of {self.certificate.subject.rfc4514_string()}"

    def key_pem(self) -> bytes:
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)


def new_authority(name: str, now_ms: int) -> KeyPair:
    """An authority that has signed itself, and may sign nodes but no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = (
        _builder(subject, subject, key.public_key(), now_ms, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return KeyPair(key, builder.sign(key, hashes.SHA256()))


def issue(authority: KeyPair, name: str, hosts: list[str], now_ms: int) -> KeyPair:
    """The certificate of a node, which is server and client, for the host names and addresses that clients use."""
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
        .not_valid_before(now - EARLY)
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
