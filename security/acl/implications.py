"""The operations to which an ACL applies: an ALLOW of some operations implies an operation to describe; a DENY implies
nothing.

Decisions are kept as bits: bit n says that the operation with the code n is allowed, bit n + `DENIED_FROM` that it is
denied.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.access import AclOperation
from moldau.security.acl.bindings import PermissionType

DENIED_FROM: Final = 32
"""The position of the first bit of denied operations; the codes of all operations are below it."""
EVERY_OPERATION: Final = (1 << DENIED_FROM) - 1
"""All bits of allowed operations, including operations that this version does not know."""

IMPLIED: Final[dict[int, int]] = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""The implied operation, by the operation that an ACL allows."""


def bits_of(operation: int, permission: int) -> int:
    """The bits of an entry. A permission that this version does not know denies."""
    if operation == AclOperation.ALL:
        bits = EVERY_OPERATION
    elif 0 <= operation < DENIED_FROM:
        bits = 1 << operation
    else:
        return 0
    if permission != PermissionType.ALLOW:
        return bits << DENIED_FROM
    return bits | 1 << IMPLIED[operation] if operation in IMPLIED else bits


def decision_of(bits: int, operation: int) -> bool | None:
    """Whether an operation is allowed: False where it is denied, None where the bits do not decide."""
    if bits >> (DENIED_FROM + operation) & 1:
        return False
    return True if bits >> operation & 1 else None
