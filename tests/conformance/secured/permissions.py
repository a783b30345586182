"""What users may do, as ACLs that an administrator makes and every node knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.conformance.committed import REQUEST_S, administrator
from tests.conformance.outcome import Failed

KNOWN_S = 60.0
EVERY = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)


class Permission(NamedTuple):
    """A user's operations on the resources of a name, or of a prefix."""

    kind: ResourceType
    name: str
    operations: Sequence[AclOperation]
    is_prefix: bool = False

    def bindings(self, user: str) -> list[AclBinding]:
        pattern = ResourcePatternType.PREFIXED if self.is_prefix else ResourcePatternType.LITERAL
        allow = AclPermissionType.ALLOW
        return [
            AclBinding(self.kind, self.name, pattern, f"User:{user}", "*", operation, allow)
            for operation in self.operations
        ]


def topics(operations: Sequence[AclOperation], *names: str, is_prefix: bool = False) -> list[Permission]:
    return [Permission(ResourceType.TOPIC, name, operations, is_prefix) for name in names]


def grant(bootstrap: str, user: str, permissions: Iterable[Permission]) -> int:
    """Makes the ACLs, and waits until each of the nodes shows them. Their number. Raises `Failed`."""
    wanted = {binding for permission in permissions for binding in permission.bindings(user)}
    admin = administrator(bootstrap)
    _persist("make ACLs", partial(_made, admin, wanted))
    for node in bootstrap.split(","):
        _persist(f"see {len(wanted)} ACLs at {node}", partial(_is_known, administrator(node), wanted))
    return len(wanted)


def withdraw(bootstrap: str, user: str, permission: Permission) -> None:
    """Removes the ACLs. Raises `Failed` if not each of them was there."""
    bindings = permission.bindings(user)
    filters = [
        AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in bindings
    ]
    admin = administrator(bootstrap)  # its requests are given up when it is collected
    answers = admin.delete_acls(filters, request_timeout=REQUEST_S).values()
    removed = [acl for answer in answers for acl in answer.result()]
    if len(removed) != len(bindings):
        raise Failed(f"{len(removed)} ACLs were removed of {len(bindings)}")


def _made(admin: AdminClient, wanted: set[AclBinding]) -> bool:
    for answer in admin.create_acls(list(wanted), request_timeout=REQUEST_S).values():
        answer.result()
    return True


def _is_known(admin: AdminClient, wanted: set[AclBinding]) -> bool:
    every = AclBindingFilter(*EVERY)  # type: ignore[arg-type]
    return wanted <= set(admin.describe_acls(every, request_timeout=REQUEST_S).result())


def _persist(what: str, holds: Callable[[], bool]) -> None:
    """Until it holds: a connection of librdkafka's may go away while a node starts. Raises `Failed`."""
    deadline, error = time.monotonic() + KNOWN_S, ""
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except KafkaException as refused:
            error = str(refused)
        time.sleep(0.2)
    raise Failed(f"could not {what} within {KNOWN_S:.0f} s: {error}")
