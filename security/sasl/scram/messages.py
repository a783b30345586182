"""The messages of SCRAM (RFC 5802, section 7): read strictly, because they arrive before authentication.

client first    gs2 header, then n=user,r=nonce and extensions       n,,n=alice,r=abc,tokenauth=true
server first    r=nonces,s=salt,i=iterations                         r=abcdef,s=c2FsdA==,i=4096
client final    c=gs2 header,r=nonces,p=proof                        c=biws,r=abcdef,p=...
server final    v=signature, or e=error
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

TOKEN_EXTENSION: Final = "tokenauth"
"""The extension `tokenauth=true`: the user name is the id of a delegation token (KIP-48)."""
MESSAGE_SIZE_MAX: Final = 8_192
"""The most bytes of a message; regular messages have some hundred."""


class MalformedScram(ValueError):
    """The message is not one of SCRAM. The text says what is wrong, without the message's contents."""


class ClientFirst(NamedTuple):
    gs2_header: str
    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]
    bare: str
    """The message without the header, which both sides sign."""


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse the client's first message. Raises `MalformedScram`.

    A client that requires channel binding is refused, because no mechanism here supports it.
    """
    text = _text(message)
    flag, comma, rest = text.partition(",")
    authorization, second_comma, bare = rest.partition(",")
    if not (comma and second_comma):
        raise MalformedScram("the first message has no header")
    if flag.startswith("p="):
        raise MalformedScram("the client requires channel binding")
    if flag not in ("n", "y"):
        raise MalformedScram("the first message does not say whether it uses channel binding")
    if authorization and not authorization.startswith("a="):
        raise MalformedScram("the header is neither empty nor an authorization id")
    fields = _fields(bare)
    if fields[0][0] == "m":
        raise MalformedScram("the client requires an extension that is not known")
    if len(fields) < 2 or fields[0][0] != "n" or fields[1][0] != "r":
        raise MalformedScram("the first message has no user and nonce")
    user, nonce = unescaped(fields[0][1]), fields[1][1]
    if not user:
        raise MalformedScram("the user is empty")
    return ClientFirst(
        f"{flag},{authorization},",
        unescaped(authorization[2:]),
        user,
        _nonce(nonce),
        dict(fields[2:]),
        bare,
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Parse the server's first message. Raises `MalformedScram`."""
    fields = _fields(_text(message))
    if [name for name, _ in fields[:3]] != ["r", "s", "i"]:
        raise MalformedScram("the server's first message lacks nonce, salt or iterations")
    iterations = fields[2][1]
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 9):
        raise MalformedScram("the iterations are not a number")
    return ServerFirst(_nonce(fields[0][1]), _bytes(fields[1][1]), int(iterations))


def parse_client_final(message: bytes) -> ClientFinal:
    """Parse the client's final message. Raises `MalformedScram`."""
    text = _text(message)
    without_proof, separator, proof = text.rpartition(",p=")
    if not separator:
        raise MalformedScram("the final message has no proof")
    fields = _fields(without_proof)
    if len(fields) < 2 or fields[0][0] != "c" or fields[1][0] != "r":
        raise MalformedScram("the final message lacks channel binding or nonce")
    return ClientFinal(_bytes(fields[0][1]), _nonce(fields[1][1]), _bytes(proof), without_proof)


def parse_server_final(message: bytes) -> bytes:
    """The server's signature in its final message.

    Raises `MalformedScram`, also for an error that the server sends instead.
    """
    name, value = _fields(_text(message))[0]
    if name == "e":
        raise MalformedScram(f"the server says {value[:100]!r}")
    if name != "v":
        raise MalformedScram("the server's final message has no signature")
    return _bytes(value)


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def escaped(name: str) -> str:
    """A user name as messages hold it: `=` and `,` are written =3D and =2C."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """Decode a user name. Raises `MalformedScram` for a `=` that begins neither =3D nor =2C."""
    parts = name.split("=")
    if any(part[:2] not in ("2C", "3D") for part in parts[1:]):
        raise MalformedScram("a name holds = which is not escaped")
    return parts[0] + "".join({"2C": ",", "3D": "="}[part[:2]] + part[2:] for part in parts[1:])


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_SIZE_MAX:
        raise MalformedScram("the message is too large")
    try:
        text = bytes(message).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedScram("the message is not valid UTF-8") from None
    if "\0" in text:
        raise MalformedScram("the message holds a NUL")
    return text


def _fields(text: str) -> list[tuple[str, str]]:
    """The fields of a message: `name=value`, separated by commas; no name twice."""
    fields = []
    for each in text.split(","):
        name, equals, value = each.partition("=")
        if not (name.isascii() and name.isalpha() and equals):
            raise MalformedScram("a field has no name")
        fields.append((name, value))
    if len({name for name, _ in fields}) < len(fields):
        raise MalformedScram("a field is there twice")
    return fields


def _nonce(text: str) -> str:
    if not text or not all("!" <= char <= "~" for char in text):
        raise MalformedScram("the nonce is empty or not printable")
    return text


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedScram("a field is not base64") from None
