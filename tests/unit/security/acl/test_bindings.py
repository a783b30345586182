"""Filters select bindings as Kafka's do."""

from __future__ import annotations

import pytest

from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import AclBinding, AclFilter, PatternType, PermissionType

LITERAL, PREFIXED, MATCH, ANY = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH, PatternType.ANY


def topic(name: str, pattern_type: int) -> AclBinding:
    return AclBinding(ResourceKind.TOPIC, name, pattern_type, "User:a", "*", AclOperation.READ, PermissionType.ALLOW)


BINDINGS = {
    "orders": topic("orders", LITERAL),
    "*": topic("*", LITERAL),
    "ord+": topic("ord", PREFIXED),
    "orders+": topic("orders", PREFIXED),
    "other": topic("other", LITERAL),
}


@pytest.mark.parametrize(
    ("pattern_type", "name", "selected"),
    [
        (LITERAL, "orders", {"orders"}),
        (LITERAL, "*", {"*"}),
        (LITERAL, None, {"orders", "*", "other"}),
        (PREFIXED, "orders", {"orders+"}),
        (PREFIXED, None, {"ord+", "orders+"}),
        (ANY, "orders", {"orders", "orders+"}),
        (ANY, None, set(BINDINGS)),
        (MATCH, "orders", {"orders", "*", "ord+", "orders+"}),
        (MATCH, "ordinal", {"*", "ord+"}),
        (MATCH, None, set(BINDINGS)),
    ],
)
def test_patterns(pattern_type: int, name: str | None, selected: set[str]) -> None:
    wanted = AclFilter(name=name, pattern_type=pattern_type)
    assert {key for key, binding in BINDINGS.items() if wanted.matches(binding)} == selected


@pytest.mark.parametrize(
    ("wanted", "is_match"),
    [
        (AclFilter(), True),
        (AclFilter(kind=ResourceKind.GROUP), False),
        (AclFilter(principal="User:a", host="*"), True),
        (AclFilter(principal="User:A"), False),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=AclOperation.READ, permission=PermissionType.ALLOW), True),
        (AclFilter(operation=AclOperation.ALL), False),
        (AclFilter(permission=PermissionType.DENY), False),
    ],
)
def test_entries(wanted: AclFilter, is_match: bool) -> None:
    assert wanted.matches(BINDINGS["orders"]) is is_match


def test_unknown_codes_are_known_as_such() -> None:
    assert not AclFilter().has_unknown_pattern and not AclFilter().has_unknown_entry
    assert AclFilter(kind=0).has_unknown_pattern and AclFilter(pattern_type=77).has_unknown_pattern
    assert AclFilter(operation=0).has_unknown_entry and AclFilter(permission=-1).has_unknown_entry
