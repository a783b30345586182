"""What one client may do: the port through which request handlers ask for a decision.

    authenticated connection ──▶ Access(principal, host) ──▶ allows(operation, kind, name)

The access belongs to a connection and is replaced where the client authenticates again. A request in an Envelope has
the access of the principal and of the address that the envelope names.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

from protocol.access import AclOperation
from security.principal import ANONYMOUS, Principal

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the kind CLUSTER."""


class ResourceKind(IntEnum):
    """The kinds of resources in ACLs, with their codes in requests and records."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Access(Protocol):
    """What a principal may do from an address."""

    @property
    def principal(self) -> Principal: ...

    @property
    def stamp(self) -> int:
        """Another number after every change that may change a decision: while it is the same, so are all decisions.
        What is remembered of earlier requests of a connection is valid for one stamp."""

    @property
    def is_unrestricted(self) -> bool:
        """Whether everything is allowed and nothing is logged: there is no authorizer. Handlers of the hot path ask
        nothing then."""

    def allows(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        """Whether the operation on one resource is allowed. The decision goes to the audit log, unless the caller only
        filters what it lists."""

    def allows_for_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        """Whether the operation is allowed on at least one resource of a kind, which need not exist."""


class Unrestricted:
    """The access of every client where no authorizer is configured."""

    __slots__ = ("principal",)

    stamp: Final = 0
    is_unrestricted: Final = True

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal

    def allows(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        return True

    def allows_for_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        return True
