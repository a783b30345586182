"""The interface through which request handlers ask for authorization decisions about one client, and the operations and
resources of ACLs with their codes in requests and responses.

    authenticated connection ──▶ Access(principal, host) ──▶ allows(operation, kind, name)

An `Access` belongs to a connection and is replaced if the client authenticates again. A request in an Envelope has the
`Access` of the principal and of the address that the envelope names.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

from moldau.security.principal import ANONYMOUS, Principal

CLUSTER_NAME: Final = "kafka-cluster"
"""The resource name of the cluster, which is the only resource of the kind CLUSTER."""


class AclOperation(IntEnum):
    """An operation of a principal on a resource, with its code in requests and records."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


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
    """Decides which operations a principal at an address may do on which resources."""

    @property
    def principal(self) -> Principal: ...

    @property
    def stamp(self) -> int:
        """A number that changes with every change of the ACLs.

        Decisions that a connection has cached are valid as long as the number stays the same.
        """

    @property
    def is_unrestricted(self) -> bool:
        """Whether there is no authorizer, so that everything is allowed and nothing is logged.

        Handlers of the hot path then skip the check.
        """

    def begin_request(self) -> bool:
        """Begin to collect the decisions about one request for the audit log. Returns whether the caller has to call
        `end_request`: False if a collection has begun already, or if there is no audit log.
        """

    def end_request(self) -> None:
        """Write the collected decisions to the audit log: one line for all decisions with the same operation, kind of
        resource and outcome.
        """

    def decision_for_all(self, operation: AclOperation, kind: ResourceKind) -> bool | None:
        """Return the decision on an operation if it is the same for all resources of the kind; None if it depends on
        the name.

        The decision is not written to the audit log.
        """

    def allows(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        """Whether the operation on the resource `name` is allowed.

        The audit log gets an allowed operation only with `logs_allowed`, a denied one only with `logs_denied`: a caller
        that filters a list sets `logs_denied` to False.
        """

    def allows_for_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        """Whether the operation is allowed on at least one possible resource of the kind; the resource need not
        exist.
        """


class Unrestricted:
    """The `Access` of every client if no authorizer is configured: it allows everything."""

    __slots__ = ("principal",)

    stamp: Final = 0
    is_unrestricted: Final = True

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal

    def begin_request(self) -> bool:
        return False

    def end_request(self) -> None:
        """Do nothing: there is no audit log."""

    def decision_for_all(self, operation: AclOperation, kind: ResourceKind) -> bool | None:
        return True

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
