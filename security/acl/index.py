"""The index of all ACLs by kind of resource, principal and host: a decision reads only those that may apply.

kind ──▶ (principal or User:*, host or *) ──▶ Permissions ──▶ what is allowed and denied, as bits
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final

from moldau.security.acl.bindings import WILDCARD, AclBinding, PatternType
from moldau.security.acl.implications import decision_of
from moldau.security.acl.permissions import Permissions
from moldau.security.principal import WILDCARD as EVERY_PRINCIPAL


class Unnamed(Enum):
    """What the ACLs say about an operation, whatever the name of the resource."""

    DENIED = auto()
    """A DENY of all resources applies."""
    ALLOWED = auto()
    """An ALLOW of all resources applies, and no DENY of any."""
    NONE = auto()
    """No ACL of the principal is about this operation."""
    SOME = auto()
    """The name counts."""


KindIndex = dict[tuple[str, str], Permissions]
"""The ACLs of one kind of resource by principal and host."""
_NO_ACLS: Final[Mapping[tuple[str, str], Permissions]] = {}


class AclIndex:
    """The index. It is updated by entries of the metadata, each with the id of its record."""

    __slots__ = ("_bindings", "_kinds")

    def __init__(self) -> None:
        self._bindings: dict[bytes, AclBinding] = {}
        self._kinds: dict[int, KindIndex] = {}

    @property
    def bindings(self) -> Mapping[bytes, AclBinding]:
        return self._bindings

    def decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool | None:
        """Whether the ACLs allow the operation: False where one denies it, None where no ACL applies."""
        find = self._kinds.get(kind, _NO_ACLS).get
        bits = 0
        for key in _keys(principal, host):
            permissions = find(key)
            if permissions is not None:
                bits |= permissions.of(name)
        return decision_of(bits, operation)

    def decide_for_all(self, principal: str, host: str, operation: int, kind: int) -> Unnamed:
        """What the ACLs say about the operation on every resource of the kind."""
        find = self._kinds.get(kind, _NO_ACLS).get
        of_all = of_some = 0
        for key in _keys(principal, host):
            permissions = find(key)
            if permissions is not None:
                of_all |= permissions.of_every_name
                of_some |= permissions.of_any_name
        if decision_of(of_all, operation) is False:
            return Unnamed.DENIED
        decision = decision_of(of_some, operation)
        if decision is None:
            return Unnamed.NONE
        return Unnamed.ALLOWED if decision and decision_of(of_all, operation) else Unnamed.SOME

    def has_kind(self, kind: int) -> bool:
        """Whether there is an ACL of any principal on resources of the kind."""
        return bool(self._kinds.get(kind))

    def concerns(self, kind: int, name: str) -> bool:
        """Whether an ACL of any principal applies to the resource. It examines each principal that has ACLs."""
        return any(permissions.concerns(name) for permissions in self._kinds.get(kind, _NO_ACLS).values())

    def bindings_about(self, kind: int, principal: str, host: str) -> Iterator[AclBinding]:
        """The ACLs of a kind that apply to the principal at an address."""
        of_kind = self._kinds.get(kind, _NO_ACLS)
        for key in set(_keys(principal, host)):
            if key in of_kind:
                yield from of_kind[key].bindings.values()

    def put(self, entry_id: bytes, binding: AclBinding) -> None:
        """Set the binding of an entry. A binding with an unknown pattern type applies to no resource."""
        self.remove(entry_id)
        self._bindings[entry_id] = binding
        if binding.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            of_kind = self._kinds.setdefault(binding.kind, {})
            of_kind.setdefault((binding.principal, binding.host), Permissions()).put(entry_id, binding)

    def remove(self, entry_id: bytes) -> None:
        """Remove the entry, if it exists."""
        binding = self._bindings.pop(entry_id, None)
        if binding is None or binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return
        of_kind = self._kinds[binding.kind]
        permissions = of_kind[binding.principal, binding.host]
        permissions.remove(entry_id)
        if not permissions.bindings:
            del of_kind[binding.principal, binding.host]


def _keys(principal: str, host: str) -> tuple[tuple[str, str], ...]:
    """The principals and hosts of the ACLs that apply to a principal at an address."""
    return (principal, WILDCARD), (EVERY_PRINCIPAL, WILDCARD), (principal, host), (EVERY_PRINCIPAL, host)
