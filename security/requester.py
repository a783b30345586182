"""The requester: the client, or the node of the cluster, for which the controller decides on a request."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.security.principal import ANONYMOUS, Principal


class Requester(NamedTuple):
    """The client or node that makes a request to the controller. Its permissions have been checked before."""

    principal: Principal = ANONYMOUS
    """Delegation tokens belong to it."""
    client_id: str = ""
    is_strict: bool | None = None
    """Whether the version of the request knows THROTTLING_QUOTA_EXCEEDED; None where no quota of mutations bounds the
    request.
    """


NODE: Final = Requester()
"""A node of the cluster, with a request of its own."""
