"""Key stores and trust stores: reads them from a file or a setting, and converts them to PEM.

    PEM       in a file, or in the settings themselves
    PKCS12    in a file; the default of Java's keytool, also if the setting calls it JKS
    JKS       refused with the command that converts it

The library `cryptography` reads PKCS12, and the names in certificates.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.config.tls import StoreSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JAVA_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_CERTIFICATE_END: Final = "-----END CERTIFICATE-----"
_CONVERT: Final = (
    "keytool -importkeystore -srckeystore {file} -srcstoretype JKS -destkeystore {file}.p12 -deststoretype PKCS12"
)


class InvalidStore(ValueError):
    """Raised if a key store or trust store cannot be used. The text names the setting and the file."""


class CertificateNames(NamedTuple):
    """The names in a certificate: its subject, and its subject alternative names."""

    subject: str
    alternatives: frozenset[str]


class OwnKey(NamedTuple):
    """A private key with its certificate chain."""

    pem: bytes
    """The private key and the certificates in PEM, the leaf certificate first. The key may be encrypted."""
    password: str | None
    """The password of the key."""


def own_key(store: StoreSettings, key_password: str | None) -> OwnKey | None:
    """The private key in a key store; None if there is no store. Raises `InvalidStore`."""
    if store.certificates is not None:
        key = store.key.reveal() if store.key is not None else ""
        return OwnKey(f"{_pem(key)}\n{_pem(store.certificates.reveal())}\n".encode(), key_password)
    if store.location is None:
        return None
    data = _read(store)
    if store.type == "PEM":
        if b"PRIVATE KEY-----" not in data or _CERTIFICATE.encode() not in data:
            raise InvalidStore(f"{store.location_name}={store.location} lacks a private key or a certificate in PEM")
        return OwnKey(data, key_password)
    return _from_pkcs12(store, data)


def trusted_certificates(store: StoreSettings) -> tuple[bytes, ...] | None:
    """The certificates of a trust store in DER, without repetitions.

    None if there is no store, so that the system's certificates are trusted. Raises `InvalidStore`.
    """
    where = f"{store.location_name}={store.location}"
    if store.certificates is not None:
        where = store.certificates_name
        found = _certificates(_pem(store.certificates.reveal()), where)
    elif store.location is None:
        return None
    elif store.type == "PEM":
        found = _certificates(_read(store).decode("latin-1"), where)
    else:
        found = _pkcs12_certificates(store, _read(store))
    if not found:
        raise InvalidStore(f"{where} holds no certificate")
    return found


def certificate_names(pem: bytes) -> CertificateNames:
    """The names in the first certificate of a PEM text. Raises ValueError."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem[pem.index(_CERTIFICATE.encode()) :])
    return CertificateNames(certificate.subject.rfc4514_string(), _alternatives(certificate))


def _alternatives(certificate: Certificate) -> frozenset[str]:
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise ValueError(str(error)) from None
    return frozenset(f"{type(each).__name__}:{each.value}" for each in extension.value)


def _read(store: StoreSettings) -> bytes:
    assert store.location is not None
    try:
        data = Path(store.location).read_bytes()
    except OSError as error:
        raise InvalidStore(f"{store.location_name}={store.location} cannot be read: {error.strerror}") from None
    if data.startswith(_JAVA_MAGICS):
        command = _CONVERT.format(file=store.location)
        raise InvalidStore(
            f"{store.location_name}={store.location} is a JKS store, which only Java reads. Convert it: {command}"
        )
    return data


def _pem(text: str) -> str:
    """Restore the line breaks in the PEM text of a setting, which may be one line with blanks in their place."""
    lines: list[str] = []
    for block in text.replace("\\n", "\n").split("-----BEGIN ")[1:]:
        label, _, rest = block.partition("-----")
        body, _, _ = rest.partition("-----END ")
        words = body.split()
        if "Proc-Type:" in body:  # A header that belongs to the encrypted key.
            lines.append(f"-----BEGIN {label}-----{body}-----END {label}-----")
        else:
            lines += [f"-----BEGIN {label}-----", *words, f"-----END {label}-----"]
    return "\n".join(lines)


def _certificates(text: str, where: str) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for block in text.split(_CERTIFICATE)[1:]:
        body, end, _ = block.partition(_CERTIFICATE_END)
        try:
            found.append(ssl.PEM_cert_to_DER_cert(f"{_CERTIFICATE}{body.rstrip()}\n{_CERTIFICATE_END}"))
        except ValueError:
            end = ""
        if not end:
            raise InvalidStore(f"{where} holds a certificate that is cut short or damaged")
    return _unique(found)


def _unique(certificates: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(certificates))


def _load_pkcs12(store: StoreSettings, data: bytes) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, _password(store))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unreadable(store, error) from None


def _from_pkcs12(store: StoreSettings, data: bytes) -> OwnKey:
    from cryptography.hazmat.primitives import serialization

    loaded = _load_pkcs12(store, data)
    if loaded.key is None or loaded.cert is None:
        raise InvalidStore(f"{store.location_name}={store.location} holds no private key with a certificate")
    key = loaded.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = [loaded.cert.certificate, *(each.certificate for each in loaded.additional_certs)]
    return OwnKey(key + b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain), None)


def _pkcs12_certificates(store: StoreSettings, data: bytes) -> tuple[bytes, ...]:
    from cryptography.hazmat.primitives import serialization

    found = [each.certificate for each in _load_pkcs12(store, data).additional_certs]
    return _unique(each.public_bytes(serialization.Encoding.DER) for each in found)


def _password(store: StoreSettings) -> bytes | None:
    return store.password.reveal().encode() if store.password is not None else None


def _unreadable(store: StoreSettings, error: Exception) -> InvalidStore:
    name = store.location_name.removesuffix("location")
    return InvalidStore(
        f"{store.location_name}={store.location} cannot be read as {store.type}; is {name}password right? ({error})"
    )
