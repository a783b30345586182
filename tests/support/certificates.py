"""A small certificate authority for tests: keys and certificates in PEM, as files or as texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BEGINS = datetime(2020, 1, 1, tzinfo=UTC)
ENDS = datetime(2120, 1, 1, tzinfo=UTC)
PEM = serialization.Encoding.PEM


class Issued:
    """A key and its certificate."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self.key = key
        self.certificate = certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def key_pem(self, password: str | None = None) -> str:
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption).decode()

    def pem(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.certificate_pem

    def pkcs12(self, password: str, *others: Issued) -> bytes:
        """A key store with the others as its chain."""
        chain = [each.certificate for each in others]
        encryption = serialization.BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"node", self.key, self.certificate, chain, encryption)


class Authority(Issued):
    """An authority that has signed itself."""

    def __init__(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key).add_extension(x509.BasicConstraints(True, None), critical=True)
        super().__init__(key, builder.sign(key, hashes.SHA256()))

    def issue(self, name: str, *hosts: str, ends: datetime = ENDS) -> Issued:
        """A certificate of a server and a client for these hosts or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests")]
        )
        builder = _builder(subject, self.certificate.subject, key, ends)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(each) for each in hosts]), False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        return Issued(key, builder.add_extension(usage, False).sign(self.key, hashes.SHA256()))

    def trust_store(self, path: Path, *others: Authority) -> Path:
        """A PEM file with the certificates of this authority and others."""
        path.write_text("".join(each.certificate_pem for each in (self, *others)))
        return path


def pkcs12_trust_store(path: Path, password: str, *authorities: Authority) -> Path:
    """A trust store as keytool -importcert makes it: certificates, and no key."""
    encryption = serialization.BestAvailableEncryption(password.encode())
    certificates = [each.certificate for each in authorities]
    path.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, certificates, encryption))
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ends: datetime = ENDS
) -> x509.CertificateBuilder:
    begins = min(BEGINS, ends - timedelta(days=1))
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
