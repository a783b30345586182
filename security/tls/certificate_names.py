"""The name of a certificate's subject, written as Java does in the form of RFC 2253, and the end of its validity.

    CN=orders,OU=Sales\\, EU,O=Example,C=DE

The order is the reverse of that in the certificate. Attributes without a keyword in RFC 2253 are written as `OID=#hex
of the DER value`. TLS has already verified the certificate, but bytes that are not DER still raise an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
VERSION: Final = 0xA0
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
VALIDITY_FIELD: Final = 3
"""The index of the validity among the fields of a certificate after its version."""
FIELDS_BEFORE_SUBJECT: Final = 4
"""The number of certificate fields between the version and the subject: serial number, algorithm, issuer, validity."""
ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString
    0x16: "ascii",  # IA5String
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
"""The text encodings by DER tag."""
ESCAPED: Final = frozenset(',+<>#;"\\=')


class MalformedCertificate(ValueError):
    """Raised if bytes are not a certificate in DER."""


class DerElement(NamedTuple):
    """A DER element: its tag and its content."""

    tag: int
    content: bytes
    encoded: bytes
    """The whole element, with tag and length."""


def subject_name(certificate: bytes) -> str:
    """The distinguished name of the subject of a certificate in DER, as text. Raises `MalformedCertificate`."""
    return distinguished_name(_fields(certificate)[FIELDS_BEFORE_SUBJECT].encoded)


def validity_end_ms(certificate: bytes) -> int:
    """The time (wall clock, ms) after which a certificate in DER is not valid. Raises `MalformedCertificate`."""
    times = list(_elements(_content(_fields(certificate)[VALIDITY_FIELD], SEQUENCE)))
    if len(times) != 2 or times[1].tag not in (UTC_TIME, GENERALIZED_TIME):
        raise MalformedCertificate("the validity of the certificate has no end")
    text = times[1].content.decode("latin-1")
    if times[1].tag == UTC_TIME:  # Its years have two digits: 1950 to 2049.
        text = ("20" if text < "5" else "19") + text
    try:
        return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        raise MalformedCertificate("the end of the validity is not a time") from None


def _fields(certificate: bytes) -> list[DerElement]:
    """The fields of a certificate after its version. There are enough fields to include the subject."""
    signed = _elements(_content(_first(certificate), SEQUENCE))
    fields = list(_elements(_content(next(signed, None), SEQUENCE)))
    if fields and fields[0].tag == VERSION:
        del fields[0]
    if len(fields) <= FIELDS_BEFORE_SUBJECT:
        raise MalformedCertificate("the certificate has no subject")
    return fields


def distinguished_name(name: bytes) -> str:
    """A distinguished name in DER as text, in the form of RFC 2253. Raises `MalformedCertificate`."""
    parts = [
        "+".join(_attribute(attribute) for attribute in _elements(_content(part, SET)))
        for part in _elements(_content(_first(name), SEQUENCE))
    ]
    return ",".join(reversed(parts))


def _attribute(attribute: DerElement) -> str:
    parts = list(_elements(_content(attribute, SEQUENCE)))
    if len(parts) != 2:
        raise MalformedCertificate("an attribute is not a type with a value")
    identifier = _identifier(_content(parts[0], OBJECT_IDENTIFIER))
    keyword, encoding = KEYWORDS.get(identifier), ENCODINGS.get(parts[1].tag)
    if keyword is None or encoding is None:
        return f"{keyword or identifier}=#{parts[1].encoded.hex()}"
    try:
        return f"{keyword}={escaped_value(parts[1].content.decode(encoding))}"
    except UnicodeDecodeError:
        raise MalformedCertificate("a text is not what its tag says") from None


def escaped_value(text: str) -> str:
    """Write the value of an attribute as RFC 2253 does, with a backslash before special characters and before spaces at
    both ends."""
    begin = len(text) - len(text.lstrip(" "))
    end = len(text.rstrip(" "))
    return "".join(
        "\\" + char if char in ESCAPED or not begin <= index < end else "\\00" if char == "\0" else char
        for index, char in enumerate(text)
    )


def _identifier(content: bytes) -> str:
    """A DER object identifier in dotted form."""
    if not content or content[-1] & 0x80:
        raise MalformedCertificate("an object identifier ends too early")
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    root = min(arcs[0] // 40, 2)
    return ".".join(str(each) for each in (root, arcs[0] - 40 * root, *arcs[1:]))


def _content(element: DerElement | None, tag: int) -> bytes:
    if element is None or element.tag != tag:
        raise MalformedCertificate(f"an element with the tag {tag:#x} is missing")
    return element.content


def _first(data: bytes) -> DerElement | None:
    return next(_elements(data), None)


def _elements(data: bytes) -> Iterator[DerElement]:
    position = 0
    while position < len(data):
        start, tag = position, data[position]
        if position + 1 >= len(data):
            raise MalformedCertificate("an element has no length")
        size, position = data[position + 1], position + 2
        if size & 0x80:
            digits = size & 0x7F
            size, position = int.from_bytes(data[position : position + digits], "big"), position + digits
            if not 1 <= digits <= 4:
                raise MalformedCertificate("a length is not one of DER")
        if position + size > len(data):
            raise MalformedCertificate("an element ends too early")
        yield DerElement(tag, data[position : position + size], data[start : position + size])
        position += size
