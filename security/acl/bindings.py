"""ACL bindings, and the filters that select them (KIP-11, KIP-290).

A binding allows or denies a principal one operation on the resources that its pattern matches, from one address, one
network or any address.

| pattern type | in a binding: the resources it is about  | in a filter: the bindings it selects                    |
|--------------|------------------------------------------|---------------------------------------------------------|
| LITERAL      | the one of this name, or every one (*)   | literal bindings of exactly this name                   |
| PREFIXED     | the resources whose names begin with it  | prefixed bindings of exactly this name                  |
| MATCH        | never in a binding                       | bindings whose pattern matches a resource of this name  |
| ANY          | never in a binding                       | literal and prefixed bindings of exactly this name      |
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.security.access import AclOperation, ResourceKind

WILDCARD: Final = "*"
"""The name of a literal pattern that matches every resource of the kind, and the host that matches every address."""


class PatternType(IntEnum):
    """The type of a pattern, with its code in requests and records."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """The permission of a binding, with its code in requests and records."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """An ACL: a permission for a principal and an operation on the resources that a pattern matches. The codes are
    plain integers, because a record of a newer version may have codes that this version does not know.

    Two bindings are equal if all fields are equal.
    """

    kind: int
    """The code of a `ResourceKind`."""
    name: str
    pattern_type: int
    principal: str
    """The principal, written as `User:alice`, or `User:*` for every principal."""
    host: str
    operation: int
    permission: int

    def concerns(self, name: str) -> bool:
        """Whether the pattern matches a resource of this name."""
        # DIVERGES: in Apache Kafka the literal name * does not match a resource whose own longer name begins with *, so
        # that a group named *x escapes a DENY of all groups.
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.pattern_type == PatternType.LITERAL and self.name in (name, WILDCARD)


class AclFilter(NamedTuple):
    """A filter of bindings. A field that is None or has the code ANY matches every binding."""

    kind: int = ResourceKind.ANY
    name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = PermissionType.ANY

    @property
    def has_unknown_pattern(self) -> bool:
        return self.kind not in KNOWN_KINDS or self.pattern_type not in KNOWN_PATTERN_TYPES

    @property
    def has_unknown_entry(self) -> bool:
        return self.operation not in KNOWN_OPERATIONS or self.permission not in KNOWN_PERMISSIONS

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.kind in (ResourceKind.ANY, binding.kind)
            and self._matches_pattern(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (PermissionType.ANY, binding.permission)
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        if self.pattern_type == PatternType.MATCH:
            return self.name is None or binding.concerns(self.name)
        return self.pattern_type in (PatternType.ANY, binding.pattern_type) and self.name in (None, binding.name)


KNOWN_KINDS: Final = frozenset(ResourceKind) - {ResourceKind.UNKNOWN}
KNOWN_PATTERN_TYPES: Final = frozenset(PatternType) - {PatternType.UNKNOWN}
KNOWN_OPERATIONS: Final = frozenset(AclOperation)
KNOWN_PERMISSIONS: Final = frozenset(PermissionType) - {PermissionType.UNKNOWN}
