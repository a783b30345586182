"""The decisions of Kafka's StandardAuthorizer, and the `Access` that caches them for one client.

The first row of this table whose condition holds decides:

| condition                                                             | decision                              |
|-----------------------------------------------------------------------|---------------------------------------|
| the principal is a super user, from any address                       | allowed                               |
| the ACLs have not been loaded yet                                     | denied                                |
| a DENY matches                                                        | denied                                |
| an ALLOW matches, of the operation or of one that implies it          | allowed                               |
| no ACL of any principal concerns the resource                         | `allow.everyone.if.no.acl.found`      |
| otherwise                                                             | denied                                |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import WILDCARD, AclBinding, PatternType, PermissionType
from moldau.security.acl.index import AclIndex, DecisionByResourceType
from moldau.security.principal import Principal, parse_principal

REMEMBERED_MAX: Final = 32_768
"""The maximum number of entries in a node's cache of decisions. An entry is a decision, or a client with cached
decisions. At the limit the whole cache is cleared. A decision takes about 500 bytes at most.
"""
REMEMBERED_LENGTH_MAX: Final = 256
"""The maximum length (characters) of a resource name whose decision is cached: a client may send any text of up to 32
KiB. Topic names have at most 249 characters.
"""


Client = tuple[str, str]
"""A client: its principal, written as `User:alice`, and its address."""
Remembered = dict[tuple[int, int, str | None], bool]
"""The cached decisions for a client, by operation, kind and resource name. An entry with the name None is the result of
`allows_for_any`.
"""


class AuthorizerSettings(NamedTuple):
    super_users: frozenset[str] = frozenset()
    """The super users, each as `User:alice`."""
    allows_without_acls: bool = False
    """The setting `allow.everyone.if.no.acl.found`."""
    audits_allowed: bool = False
    """Whether allowed requests go to the audit log too."""


AUDITED_NAMES_MAX: Final = 5
"""The maximum number of resource names in one entry of the audit log."""


class AuditedDecisions:
    """An entry of the audit log: the decisions about one request that have the same operation, kind of resource and
    outcome.
    """

    __slots__ = ("count", "is_allowed", "kind", "names", "operation")

    def __init__(self, operation: AclOperation, kind: ResourceKind, name: str | None, is_allowed: bool) -> None:
        self.operation = operation
        self.kind = kind
        self.is_allowed = is_allowed
        self.names = [name]
        """The names of the first resources. A name is None for a decision about any resource of the kind."""
        self.count = 1

    def add(self, name: str | None, count: int = 1) -> None:
        """Add `count` decisions to the entry. `name` is the resource of the first of them."""
        self.count += count
        if len(self.names) < AUDITED_NAMES_MAX:
            self.names.append(name)


class AuditLog(Protocol):
    """The log to which the authorizer writes its decisions."""

    def log_decisions(self, access: AclAccess, decisions: AuditedDecisions) -> None:
        """Log decisions about one request."""


def parse_super_users(text: str) -> frozenset[str]:
    """Parse `super.users`: principals separated by semicolons. Raises ValueError."""
    return frozenset(str(parse_principal(each.strip())) for each in text.split(";") if each.strip())


class Authorizer:
    """Decides by all ACLs that this node has read from the metadata. `apply_changes` is called with each later
    change."""

    def __init__(self, settings: AuthorizerSettings, audit: AuditLog) -> None:
        self.settings = settings
        self.audit = audit
        self.index = AclIndex()
        self.stamp = 1
        """A number that grows with every change of the ACLs. It is never 0, because 0 is the stamp of a node without an
        authorizer.
        """
        self.is_loaded = False
        self.remembered: dict[Client, Remembered] = {}
        """The cached decisions by client. When the cache is cleared, a new dictionary replaces this one."""
        self.remembered_count = 0

    def on_metadata_loaded(self) -> None:
        """Begin to decide by ACLs. The caller has read the metadata up to its end at the start of this node; until then
        only super users are allowed anything."""
        self.is_loaded = True
        self.stamp += 1
        self._forget()

    def apply_changes(self, entries: Mapping[bytes, AclBinding | None]) -> None:
        """Apply changed ACLs of the metadata, by the id of their record; None for an ACL that was removed."""
        for entry_id, binding in entries.items():
            if binding is None:
                self.index.remove(entry_id)
            else:
                self.index.put(entry_id, binding)
        self.stamp += 1
        self._forget()

    def remembered_of(self, client: Client) -> Remembered:
        """The cached decisions for a client, which all of its connections share. They become invalid when the
        authorizer replaces the dictionary `remembered`.
        """
        known = self.remembered.get(client)
        if known is None:
            known = self.remembered[client] = {}
            self.remembered_count += 1
        return known

    def make_room(self) -> bool:
        """Count a decision that the caller is about to cache. Returns False if the limit was reached: the cache is then
        cleared, and the caller must not cache the decision."""
        if self.remembered_count < REMEMBERED_MAX:
            self.remembered_count += 1
            return True
        self._forget()
        return False

    def _forget(self) -> None:
        for each in self.remembered.values():
            each.clear()  # An idle connection still refers to it.
        self.remembered = {}
        self.remembered_count = 0

    def is_super_user(self, principal: str) -> bool:
        return principal in self.settings.super_users

    def decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
        """Whether a principal, written as `User:alice`, may do an operation on the resource `name` from the address
        `host`.
        """
        if principal in self.settings.super_users:
            return True
        if not self.is_loaded:
            return False
        decision = self.index.decide(principal, host, operation, kind, name)
        if decision is not None:
            return decision
        return self.settings.allows_without_acls and not self.index.concerns(kind, name)

    def decide_for_all(self, principal: str, host: str, operation: int, kind: int) -> bool | None:
        """Return the decision on an operation if it is the same for every resource of the kind; None if it depends on
        the name."""
        if principal in self.settings.super_users:
            return True
        if not self.is_loaded:
            return False
        decision = self.index.decide_for_all(principal, host, operation, kind)
        if decision is not DecisionByResourceType.NONE:
            return None if decision is DecisionByResourceType.SOME else decision is DecisionByResourceType.ALLOWED
        if self.settings.allows_without_acls:
            return None if self.index.has_kind(kind) else True
        return False

    def decide_for_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether the principal may do the operation from the address on at least one possible resource of the kind."""
        if self.decide(principal, host, operation, kind, ANY_RESOURCE_PROBE_NAME):
            return True
        return self.is_loaded and allows_any_resource(self.index.bindings_about(kind, principal, host), operation)

    def access(self, principal: Principal, host: str) -> AclAccess:
        """An `Access` by which this authorizer decides on the requests of a principal from the address `host`."""
        return AclAccess(self, principal, java_address(host))


class AclAccess:
    """An `Access` that decides by ACLs."""

    __slots__ = ("_audited", "_authorizer", "_client", "_for_all", "_remembered", "_valid_under", "host", "principal")

    is_unrestricted: Final = False

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host
        self._authorizer = authorizer
        self._client = str(principal), host
        self._valid_under = authorizer.remembered
        """The dictionary `Authorizer.remembered` at the time when the decisions below were cached. They are valid as
        long as the authorizer has the same dictionary.
        """
        self._remembered: Remembered | None = None
        """The cached decisions for the client; None before the first one."""
        self._for_all: dict[tuple[int, int], bool | None] = {}
        """The cached results of `Authorizer.decide_for_all` by operation and kind."""
        self._audited: dict[tuple[int, int, bool], AuditedDecisions] | None = None
        """The decisions about the request that is being handled, by operation, kind and outcome; None between
        requests.
        """

    @property
    def stamp(self) -> int:
        return self._authorizer.stamp

    def begin_request(self) -> bool:
        """Begin to collect decisions for the audit log, until `end_request`. Returns False if a collection has begun
        already.
        """
        if self._audited is not None:
            return False
        self._audited = {}
        return True

    def end_request(self) -> None:
        """Write the decisions since `begin_request` to the audit log."""
        audited, self._audited = self._audited, None
        if audited:
            for decisions in audited.values():
                self._authorizer.audit.log_decisions(self, decisions)

    def decision_for_all(self, operation: AclOperation, kind: ResourceKind) -> bool | None:
        authorizer = self._authorizer
        if self._valid_under is not authorizer.remembered:
            self._forget()
        key = (operation, kind)
        if key not in self._for_all:
            self._for_all[key] = authorizer.decide_for_all(*self._client, operation, kind)
        return self._for_all[key]

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
        is_allowed = self.decision_for_all(operation, kind)
        if is_allowed is None:
            is_allowed = self._decided(operation, kind, name)
        if (logs_allowed and authorizer.settings.audits_allowed) if is_allowed else logs_denied:
            self._audit(operation, kind, name, is_allowed)
        return is_allowed

    def _decided(self, operation: AclOperation, kind: ResourceKind, name: str) -> bool:
        """The decision about one resource, from the cache or by the ACLs. `allows` calls this if the decision depends
        on the name."""
        key = (operation, kind, name)
        is_allowed = self._decision_before(key)
        if is_allowed is None:
            is_allowed = self._authorizer.decide(*self._client, operation, kind, name)
            if len(name) <= REMEMBERED_LENGTH_MAX:
                self._remember(key, is_allowed)
        return is_allowed

    def allows_for_any(self, operation: AclOperation, kind: ResourceKind) -> bool:
        authorizer = self._authorizer
        if self._valid_under is not authorizer.remembered:
            self._forget()
        key = (operation, kind, None)
        is_allowed = self._decision_before(key)
        if is_allowed is None:
            is_allowed = authorizer.decide_for_any(*self._client, operation, kind)
            self._remember(key, is_allowed)
        if not is_allowed or authorizer.settings.audits_allowed:
            self._audit(operation, kind, None, is_allowed)
        return is_allowed

    def _audit(self, operation: AclOperation, kind: ResourceKind, name: str | None, is_allowed: bool) -> None:
        audited = self._audited
        if audited is None:
            self._authorizer.audit.log_decisions(self, AuditedDecisions(operation, kind, name, is_allowed))
            return
        key = (operation, kind, is_allowed)
        decisions = audited.get(key)
        if decisions is None:
            audited[key] = AuditedDecisions(operation, kind, name, is_allowed)
        else:
            decisions.add(name)

    def _decision_before(self, key: tuple[int, int, str | None]) -> bool | None:
        remembered = self._remembered
        if remembered is None:
            remembered = self._remembered = self._authorizer.remembered_of(self._client)
        return remembered.get(key)

    def _remember(self, key: tuple[int, int, str | None], is_allowed: bool) -> None:
        assert self._remembered is not None
        if self._authorizer.make_room():
            self._remembered[key] = is_allowed

    def _forget(self) -> None:
        self._remembered = None
        self._for_all.clear()
        self._valid_under = self._authorizer.remembered


ANY_RESOURCE_PROBE_NAME: Final = "hardcode"
"""The resource name that Apache Kafka checks first to decide whether an operation is allowed on any resource of a kind.
If the operation is allowed on a resource of this name, the answer is yes.

The check makes a difference if an ACL that matches this name allows an operation that implies the requested one,
because `allows_any_resource` does not consider implied operations.
"""


def allows_any_resource(bindings: Iterable[AclBinding], operation: int) -> bool:
    """Whether ACLs allow the operation on some resource of a kind. `bindings` are the ACLs of the kind that apply to
    the principal at its address. Only ACLs of the operation itself, or of ALL, count: an ALLOW of READ does not imply
    DESCRIBE here."""
    denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
    allowed: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
    for binding in bindings:
        if binding.operation not in (operation, AclOperation.ALL):
            continue
        patterns = allowed if binding.permission == PermissionType.ALLOW else denied
        if binding.pattern_type in patterns:
            patterns[binding.pattern_type].add(binding.name)
    if WILDCARD in denied[PatternType.LITERAL]:
        return False
    if WILDCARD in allowed[PatternType.LITERAL]:
        return True
    prefixes = denied[PatternType.PREFIXED]
    literals = allowed[PatternType.LITERAL] - denied[PatternType.LITERAL]
    return any(
        not any(name[:length] in prefixes for length in range(1, len(name) + 1))
        for name in literals | allowed[PatternType.PREFIXED]
    )


def java_address(host: str) -> str:
    """Write a client's address as Java does, because ACLs are compared with Java's notation.

    Java writes all eight groups of an IPv6 address, and an IPv4 address that is mapped into IPv6 as IPv4. A host name
    is returned unchanged.
    """
    if ":" not in host:
        return host
    from ipaddress import AddressValueError, IPv6Address

    text, percent, scope = host.partition("%")
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(each, 16):x}" for each in address.exploded.split(":")) + percent + scope
