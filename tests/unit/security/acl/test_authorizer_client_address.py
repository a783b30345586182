"""ACLs name the addresses of clients as Java writes them."""

from __future__ import annotations

import pytest

from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.authorizer import (
    REMEMBERED_LENGTH_MAX,
    AclAccess,
    Authorizer,
    AuthorizerSettings,
    java_address,
)
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import Principal

ALICE = Principal("User", "alice")


class NoAudit:
    def log_decisions(self, access: AclAccess, decisions: object) -> None:
        pass


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("node:1", "node:1"),
    ],
)
def test_the_notation_of_java(host: str, written: str) -> None:
    assert java_address(host) == written


def authorizer(*bindings: AclBinding) -> Authorizer:
    made = Authorizer(AuthorizerSettings(), NoAudit())
    made.apply_changes({number.to_bytes(16, "big"): each for number, each in enumerate(bindings)})
    made.on_metadata_loaded()
    return made


def binding(host: str, permission: PermissionType) -> AclBinding:
    return AclBinding(ResourceKind.TOPIC, "*", PatternType.LITERAL, str(ALICE), host, AclOperation.READ, permission)


@pytest.mark.parametrize("host", ["::1", "0:0:0:0:0:0:0:1"])
def test_a_deny_of_an_ipv6_address_is_not_overlooked(host: str) -> None:
    acls = authorizer(binding("*", PermissionType.ALLOW), binding("0:0:0:0:0:0:0:1", PermissionType.DENY))
    assert not acls.access(ALICE, host).allows(AclOperation.READ, ResourceKind.TOPIC, "t")
    assert acls.access(ALICE, "::2").allows(AclOperation.READ, ResourceKind.TOPIC, "t")


def test_a_client_cannot_fill_the_memory_with_long_names() -> None:
    acls = authorizer(binding("*", PermissionType.ALLOW), binding("*", PermissionType.DENY)._replace(name="denied"))
    access = acls.access(ALICE, "192.0.2.1")
    for length in (REMEMBERED_LENGTH_MAX, REMEMBERED_LENGTH_MAX + 1, 32_767):
        assert access.allows(AclOperation.READ, ResourceKind.TOPIC, "x" * length)
    (remembered,) = acls.remembered.values()
    assert [len(name or "") for _, _, name in remembered] == [REMEMBERED_LENGTH_MAX]
