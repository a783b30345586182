"""The messages of OAUTHBEARER (RFC 7628, section 3).

client      n,a=authzid,^Aauth=Bearer token^Akey=value^A^A      ^A is the byte 1
server      nothing, or {"status":"invalid_token"}; then the client sends ^A, and the exchange has failed
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

SEPARATOR: Final = "\x01"
_FIRST: Final = re.compile(r"[ny],(a=[^,\x00\x01]*)?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01")
_SCHEME: Final = "bearer "
EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class MalformedBearer(ValueError):
    """The message is not one of OAUTHBEARER."""


class BearerMessage(NamedTuple):
    authorization_id: str
    token: str
    extensions: dict[str, str]


def parse_bearer(message: bytes) -> BearerMessage:
    """Parse the client's message. Raises `MalformedBearer`."""
    try:
        match = _FIRST.fullmatch(bytes(message).decode("utf-8"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise MalformedBearer("the message has another form")
    pairs = [each.partition("=")[::2] for each in match.group(2).split(SEPARATOR) if each]
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise MalformedBearer("a field is there twice")
    scheme = fields.pop("auth", "")
    if not scheme.lower().startswith(_SCHEME):
        raise MalformedBearer("the message brings no bearer token")
    return BearerMessage((match.group(1) or "a=")[2:], scheme[len(_SCHEME) :].strip(), fields)


def bearer_message(token: str, extensions: dict[str, str]) -> bytes:
    """Build the client's message. Raises ValueError where an extension cannot be written."""
    for name, value in extensions.items():
        if name == "auth" or not EXTENSION_NAME.fullmatch(name) or not EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"{name} is not the name of an extension, or its value cannot be sent")
    parts = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
    return ("n,,\x01" + SEPARATOR.join(parts) + "\x01\x01").encode()


def refusal_message(status: str) -> bytes:
    return json.dumps({"status": status}, separators=(",", ":")).encode()
