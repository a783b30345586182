"""The decision whether a principal may do an operation on at least one resource of a kind, which need not exist
(KIP-679).

Only ACLs decide. An allowed literal name counts unless the name or a prefix of it is denied. An allowed prefix counts
unless it or a shorter prefix of it is denied. A DENY of all resources wins, then an ALLOW of all. Implied operations
count only for `PROBE`, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.protocol.access import AclOperation
from moldau.security.acl.bindings import WILDCARD, AclBinding, PatternType, PermissionType

PROBE: Final = "hardcode"
"""The name of a resource that Apache Kafka checks first: a super user, or an ACL on this name, decides at once.

A client sees the difference where an ACL allows an operation on this name that implies the requested one.
"""


def allows_some(bindings: Iterable[AclBinding], operation: int) -> bool:
    """Decide by `bindings`: those of one kind that apply to the principal at its address."""
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
