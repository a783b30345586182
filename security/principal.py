"""Kafka principals, which have a type and a name and are written `User:alice`; and the requester of a request to the
controller.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.late_tuple import NamedTuple

USER: Final = "User"
"""The only type of principal that authentication produces. ACLs may name other types."""
WILDCARD: Final = "User:*"
"""The principal of an ACL that stands for every principal of the type User."""


class Principal(NamedTuple):
    """The identity of a client.

    Two principals are the same if type and name are equal, including upper and lower case.
    """

    type: str
    name: str
    is_token_authenticated: bool = False
    """Whether a delegation token authenticated the client. Such a client may create no further token."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a client that did not authenticate: on a PLAINTEXT listener, and on SSL without a client
certificate.
"""


def parse_principal(text: str) -> Principal:
    """Parse a principal, written `type:name`; the name may contain colons. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(kind, name)


class Requester(NamedTuple):
    """The client or node on whose behalf a request is sent to the controller. The node that forwards the request has
    checked the client's permissions.
    """

    principal: Principal = ANONYMOUS
    """The principal. It owns a delegation token that the request creates, unless the request names another owner, and
    its quota of mutations limits the request.
    """
    client_id: str = ""
    is_strict: bool | None = None
    """Whether the version of the request has the error THROTTLING_QUOTA_EXCEEDED; None if no quota of mutations limits
    the request.
    """


NODE: Final = Requester()
"""The requester of requests that a node of the cluster sends on its own behalf."""
