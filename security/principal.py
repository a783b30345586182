"""Kafka principals: a type and a name, written `User:alice`."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"
"""The only type that authentication gives. ACLs may name others."""
WILDCARD: Final = "User:*"
"""In an ACL: every principal of the type User."""


class Principal(NamedTuple):
    """What authentication found out about a client. Two principals are the same where type and name are: upper and
    lower case matter in both."""

    type: str
    name: str
    is_token_authenticated: bool = False
    """Whether a delegation token stands for the user: such a client may create no further token."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""A client that did not authenticate: behind PLAINTEXT, and behind SSL without a certificate."""


def parse_principal(text: str) -> Principal:
    """Read `type:name`; the name may contain colons. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)
