"""The bit fields of authorized operations in responses. Without an authorizer: all operations of the resource."""

from __future__ import annotations

from typing import Final

from moldau.protocol.access import AclOperation
from moldau.security.access import CLUSTER_NAME, Access, ResourceKind

NOT_ASKED: Final = -(1 << 31)


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)


def permitted(access: Access, operations: int, kind: ResourceKind, name: str) -> int:
    """The operations, out of the given ones, that the client may do on one resource. The decisions are not logged."""
    if access.is_unrestricted:
        return operations
    return _bits(
        *(
            operation
            for operation in AclOperation
            if operations >> operation & 1
            and access.allows(operation, kind, name, logs_allowed=False, logs_denied=False)
        )
    )


def permitted_on_cluster(access: Access) -> int:
    """The operations on the cluster; none for a client that may not describe it."""
    if not access.is_unrestricted and not access.allows(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return 0
    return permitted(access, CLUSTER_OPERATIONS, ResourceKind.CLUSTER, CLUSTER_NAME)
