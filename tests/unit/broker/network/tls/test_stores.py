"""Key stores and trust stores are read from files and settings; what cannot be used is said with setting and file."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.broker.config.setting import Password
from moldau.broker.config.tls import StoreSettings
from moldau.broker.network.tls.stores import InvalidStore, certificate_names, own_key, trusted_certificates
from tests.support.certificates import Authority, pkcs12_trust_store

AUTHORITY = Authority("root")
OTHER = Authority("other")
NODE = AUTHORITY.issue("node", "localhost", "127.0.0.1")


def store(purpose: str, kind: str, location: Path | None = None, password: str | None = None) -> StoreSettings:
    return StoreSettings(
        purpose,
        kind,
        None if location is None else str(location),
        f"ssl.{purpose}.location",
        None if password is None else Password(password),
        None,
        f"ssl.{purpose}.certificates",
        None,
    )


def inline(purpose: str, certificates: str, key: str | None = None) -> StoreSettings:
    return StoreSettings(
        purpose,
        "PEM",
        None,
        f"ssl.{purpose}.location",
        None,
        Password(certificates),
        f"ssl.{purpose}.certificates",
        None if key is None else Password(key),
    )


def test_a_key_in_a_pem_file_or_in_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    path.write_text(NODE.pem("sesame"))
    of_file = own_key(store("keystore", "PEM", path), "sesame")
    assert of_file is not None and of_file.password == "sesame" and of_file.pem == path.read_bytes()
    one_line = NODE.certificate_pem.replace("\n", " ")  # a value of a properties file has no lines
    of_settings = own_key(inline("keystore", one_line, NODE.key_pem()), None)
    assert of_settings is not None and certificate_names(of_settings.pem) == certificate_names(of_file.pem)


def test_a_key_in_pkcs12_also_where_the_type_says_jks(tmp_path: Path) -> None:
    path = tmp_path / "node.p12"
    path.write_bytes(NODE.pkcs12("sesame", AUTHORITY))
    for kind in ("PKCS12", "JKS"):
        key = own_key(store("keystore", kind, path, "sesame"), None)
        assert key is not None and key.pem.count(b"BEGIN CERTIFICATE") == 2


def test_names_of_a_certificate() -> None:
    names = certificate_names(NODE.certificate_pem.encode())
    assert names.subject == "O=Tests,CN=node"
    assert names.alternatives == {"DNSName:localhost", "IPAddress:127.0.0.1"}


def test_trusted_certificates(tmp_path: Path) -> None:
    both = (AUTHORITY.der, OTHER.der)
    path = AUTHORITY.trust_store(tmp_path / "trust.pem", OTHER, AUTHORITY)
    assert trusted_certificates(store("truststore", "PEM", path)) == both
    assert trusted_certificates(inline("truststore", path.read_text().replace("\n", " "))) == both
    java = pkcs12_trust_store(tmp_path / "trust.p12", "sesame", AUTHORITY, OTHER)
    assert trusted_certificates(store("truststore", "PKCS12", java, "sesame")) == both
    assert trusted_certificates(store("truststore", "JKS")) is None


@pytest.mark.parametrize(
    ("contents", "kind", "words"),
    [
        (None, "PEM", ["ssl.keystore.location", "node.store", "No such file"]),
        (b"\xfe\xed\xfe\xed\0\0", "JKS", ["ssl.keystore.location", "keytool -importkeystore", "node.store.p12"]),
        (b"\xfe\xed\xfe\xed\0\0", "PKCS12", ["keytool -importkeystore"]),
        (b"no store", "PKCS12", ["node.store", "ssl.keystore.password"]),
        (AUTHORITY.certificate_pem.encode(), "PEM", ["node.store", "lacks a private key"]),
        (NODE.pkcs12("other"), "PKCS12", ["node.store", "ssl.keystore.password"]),
    ],
)
def test_a_key_store_that_cannot_be_used(tmp_path: Path, contents: bytes | None, kind: str, words: list[str]) -> None:
    path = tmp_path / "node.store"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(InvalidStore) as caught:
        own_key(store("keystore", kind, path, "sesame"), None)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("text", ["", NODE.key_pem(), AUTHORITY.certificate_pem[:200]])
def test_a_trust_store_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trust.pem"
    path.write_text(text)
    with pytest.raises(InvalidStore, match=r"trust\.pem"):
        trusted_certificates(store("truststore", "PEM", path))
