"""Names of subjects, and ends of validity; each DER value with its text was written by Java's X500Principal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.tls.certificate_names import (
    MalformedCertificate,
    distinguished_name,
    escaped_value,
    subject_name,
    validity_end_ms,
)
from tests.support.certificates import Authority

WRITTEN_BY_JAVA = (
    (
        "304a310b300906035504061302555331193017060355040a131053756e204d6963726f73797374656d733111300f060355040b1308"
        "4a617661536f6674310d300b0603550403130444756b65",
        "CN=Duke,OU=JavaSoft,O=Sun Microsystems,C=US",
    ),
    (
        "3037310f300d060355040a0c063d233b3c3e5c3114301206092a864886f70d01090116057840792e7a310e300c0603550403130561"
        "2c622b63",
        r"CN=a\,b\+c,1.2.840.113549.1.9.1=#16057840792e7a,O=\=\#\;\<\>\\",
    ),
    (
        "307b310b3009060355040813027374310a3008060355040713016c310a3008060355040913017331133011060a0992268993f22c64"
        "01191603636f6d31173015060a0992268993f22c64011916076578616d706c653111300f060a0992268993f22c6401011301753113"
        "30110603550403130a6c65616420747261696c",
        "CN=lead trail,UID=u,DC=example,DC=com,STREET=s,L=l,ST=st",
    ),
    ("3000", ""),
    ("300e310c300a06035504031303612f62", "CN=a/b"),
    ("300d310b300906035504030c022378", r"CN=\#x"),
)


@pytest.mark.parametrize(("encoded", "name"), WRITTEN_BY_JAVA)
def test_names_as_java_writes_them(encoded: str, name: str) -> None:
    assert distinguished_name(bytes.fromhex(encoded)) == name


def test_the_subject_of_a_certificate() -> None:
    name = bytes.fromhex(WRITTEN_BY_JAVA[0][0])
    issuer = b"\x30\x00"
    for version in (b"", b"\xa0\x03\x02\x01\x02"):
        signed = version + b"\x02\x01\x05" + b"\x30\x00" + issuer + b"\x30\x00" + name + b"\x30\x00"
        certificate = bytes((0x30, len(signed) + 2, 0x30, len(signed))) + signed
        assert subject_name(certificate) == WRITTEN_BY_JAVA[0][1]


@pytest.mark.parametrize("year", [2019, 2049, 2050, 2120])
def test_the_end_of_the_validity_of_a_certificate(year: int) -> None:
    ends = datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC)
    assert validity_end_ms(Authority("one").issue("client", ends=ends).der) == int(ends.timestamp()) * 1000


def test_spaces_at_the_ends_are_escaped() -> None:
    assert escaped_value("  a b ") == r"\ \ a b\ "
    assert escaped_value("   ") == r"\ \ \ "


@given(st.binary(max_size=80))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedCertificate):
        subject_name(data)
    with pytest.raises(MalformedCertificate):
        validity_end_ms(data)
