"""The decisions of Kafka's StandardAuthorizer, and the `Access` that remembers them for one client.

The first row that applies decides:

| row                                                                   | decision                              |
|-----------------------------------------------------------------------|---------------------------------------|
| the principal is a super user, from any address                       | allowed                               |
| the ACLs have not been loaded yet                                     | denied                                |
| a DENY matches                                                        | denied                                |
| an ALLOW matches, of the operation or of one that implies it          | allowed                               |
| no ACL of any principal concerns the resource                         | `allow.everyone.if.no.acl.found`      |
| otherwise                                                             | denied                                |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from protocol.access import AclOperation
from security.access import ResourceKind
from security.acl.any_resource import PROBE, allows_some
from security.acl.bindings import AclBinding
from security.acl.client_address import java_address
from security.acl.index import AclIndex
from security.principal import Principal, parse_principal

REMEMBERED_MAX: Final = 4_096
"""The most decisions that an `AclAccess` remembers; at the limit it forgets all of them."""
REMEMBERED_LENGTH_MAX: Final = 256
"""The longest name (characters) of a remembered decision: a client may ask for any text of 32 KiB. Names of topics have
at most 249."""


class AuthorizerSettings(NamedTuple):
    """The settings of the authorizer."""

    super_users: frozenset[str] = frozenset()
    """The super users, each as `User:alice`."""
    allows_without_acls: bool = False
    """The setting `allow.everyone.if.no.acl.found`."""
    audits_allowed: bool = False
    """Whether allowed requests go to the audit log too."""


class AuditLog(Protocol):
    """The log to which decisions are written."""

    def decided(
        self, access: AclAccess, operation: AclOperation, kind: ResourceKind, name: str | None, is_allowed: bool
    ) -> None:
        """Log a decision. `name` is None for a decision about any resource of the kind."""


def parse_super_users(text: str) -> frozenset[str]:
    """Parse `super.users`: principals separated by semicolons. Raises ValueError."""
    return frozenset(str(parse_principal(each.strip())) for each in text.split(";") if each.strip())


class Authorizer:
    """All ACLs of the cluster that this node knows. `changed` applies changes of the metadata."""

    def __init__(self, settings: AuthorizerSettings, audit: AuditLog) -> None:
        self.settings = settings
        self.audit = audit
        self.index = AclIndex()
        self.stamp = 1
        """A number that differs after every change. It is never 0, which stands for a node without an authorizer."""
        self.is_loaded = False

    def loaded(self) -> None:
        """Begin to decide by ACLs: the metadata has been read up to its end at the start of this node."""
        self.is_loaded = True
        self.stamp += 1

    def changed(self, entries: Mapping[bytes, AclBinding | None]) -> None:
        """Apply changed entries of the metadata by the id of their record; None for a removed entry."""
        for entry_id, binding in entries.items():
            if binding is None:
                self.index.remove(entry_id)
            else:
                self.index.put(entry_id, binding)
        self.stamp += 1

    def is_super_user(self, principal: str) -> bool:
        return principal in self.settings.super_users

    def decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
        """Whether a principal, written as `User:alice`, may do an operation from an address."""
        if principal in self.settings.super_users:
            return True
        if not self.is_loaded:
            return False
        decision = self.index.decide(principal, host, operation, kind, name)
        if decision is not None:
            return decision
        return self.settings.allows_without_acls and not self.index.concerns(kind, name)

    def decide_for_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether there is a resource of the kind on which the principal may do an operation from an address."""
        if self.decide(principal, host, operation, kind, PROBE):
            return True
        return self.is_loaded and allows_some(self.index.bindings_about(kind, principal, host), operation)

    def access(self, principal: Principal, host: str) -> AclAccess:
        """An `Access` by which this authorizer decides on the requests of a principal from an address."""
        return AclAccess(self, principal, java_address(host))


class AclAccess:
    """An `Access` that decides by ACLs."""

    __slots__ = ("_authorizer", "_decisions", "_name", "_stamp", "host", "principal")

    is_unrestricted: Final = False

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host
        self._authorizer = authorizer
        self._name = str(principal)
        self._stamp = authorizer.stamp
        self._decisions: dict[tuple[int, int, str | None], bool] = {}
        """The remembered decisions by operation, kind and name; valid under `_stamp`."""

    @property
    def stamp(self) -> int:
        return self._authorizer.stamp

    def allows(
        self,
        operation: AclOperation,
        kind: ResourceKind,
        name: str,
        *,
        logs_allowed: bool = True,
        logs_denied: bool = True,
    ) -> bool:
        authorizer = self._authorizer
        if self._stamp != authorizer.stamp:
            self._forget()
        key = (operation, kind, name)
        is_allowed = self._decisions.get(key)
        if is_allowed is None:
            is_allowed = authorizer.decide(self._name, self.host, operation, kind, name)
            self._remember(key, is_allowed)
        if (logs_allowed and authorizer.settings.audits_allowed) if is_allowed else logs_denied:
            authorizer.audit.decided(self, operation, kind, name, is_allowed)
        return is_allowed

    def allows_for_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        authorizer = self._authorizer
        if self._stamp != authorizer.stamp:
            self._forget()
        key = (operation, kind, None)
        is_allowed = self._decisions.get(key)
        if is_allowed is None:
            is_allowed = authorizer.decide_for_any(self._name, self.host, operation, kind)
            self._remember(key, is_allowed)
        if not is_allowed or authorizer.settings.audits_allowed:
            authorizer.audit.decided(self, operation, kind, None, is_allowed)
        return is_allowed

    def _remember(self, key: tuple[int, int, str | None], is_allowed: bool) -> None:
        if len(key[2] or "") > REMEMBERED_LENGTH_MAX:
            return
        if len(self._decisions) >= REMEMBERED_MAX:
            self._decisions.clear()
        self._decisions[key] = is_allowed

    def _forget(self) -> None:
        self._decisions.clear()
        self._stamp = self._authorizer.stamp
