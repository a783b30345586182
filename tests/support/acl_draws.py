"""Random sets of ACLs and questions about them, and the reference: the rules read one by one over all ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType

KINDS: Final = (
    ResourceKind.TOPIC,
    ResourceKind.GROUP,
    ResourceKind.CLUSTER,
    ResourceKind.TRANSACTIONAL_ID,
    ResourceKind.DELEGATION_TOKEN,
    ResourceKind.USER,
)
OPERATIONS: Final = tuple(each for each in AclOperation if each > AclOperation.ALL)
PRINCIPALS: Final = ("User:alice", "User:bob", "User:Alice", "User:CN=x, O=y", "Group:alice", "User:root")
SUPER_USERS: Final = frozenset({"User:root"})
HOSTS: Final = ("10.0.0.1", "10.0.0.2", "192.168.7.9")
NAMES: Final = (
    *("a", "ab", "abc", "abd", "b", "hardcode", "orders", "orders-eu", "orders-eu-1", "Orders"),
    *("kafka-cluster", "*", "*a", "ä", "z"),
)
"""A few names with common prefixes, so that several ACLs apply to the same resources."""


class Question(NamedTuple):
    """Whether a principal may do an operation from an address; `name` is None for any resource of the kind."""

    principal: str
    host: str
    operation: int
    kind: int
    name: str | None


def draw_binding(random: Random) -> AclBinding:
    return AclBinding(
        kind=random.choice(KINDS[:2] if random.random() < 0.8 else KINDS),
        name=random.choice(NAMES),
        pattern_type=random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        principal=random.choice((*PRINCIPALS, "User:*")),
        host=random.choice((*HOSTS, "*", "*")),
        operation=random.choice((*OPERATIONS, AclOperation.ALL)),
        permission=random.choice((PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY)),
    )


def draw_bindings(random: Random, count_max: int = 60) -> list[AclBinding]:
    """Random bindings, each at most once, because the controller never creates a binding twice."""
    return list(dict.fromkeys(draw_binding(random) for _ in range(random.randrange(count_max + 1))))


def draw_question(random: Random, any_share: float = 0.1) -> Question:
    return Question(
        random.choice(PRINCIPALS),
        random.choice(HOSTS),
        random.choice(OPERATIONS),
        random.choice(KINDS[:2] if random.random() < 0.8 else KINDS),
        None if random.random() < any_share else random.choice(NAMES),
    )


def reference(bindings: Sequence[AclBinding], question: Question, allows_without_acls: bool) -> bool:
    """The decision by the rules of the documentation, over all ACLs."""
    if question.name is None:
        return reference_for_any(bindings, question, allows_without_acls)
    if question.principal in SUPER_USERS:
        return True
    about = [each for each in bindings if each.kind == question.kind and is_about(each, question.name)]
    if not about:
        return allows_without_acls
    mine = [each for each in about if concerns_client(each, question)]
    if any(each.permission == PermissionType.DENY and says(each, question.operation) for each in mine):
        return False
    return any(each.permission == PermissionType.ALLOW and implies(each, question.operation) for each in mine)


def reference_for_any(bindings: Sequence[AclBinding], question: Question, allows_without_acls: bool) -> bool:
    """Super users and ACLs on one name decide first; then an allowed pattern counts that no DENY dominates."""
    if reference(bindings, question._replace(name="hardcode"), allows_without_acls):
        return True
    mine = [each for each in bindings if each.kind == question.kind and concerns_client(each, question)]
    mine = [each for each in mine if says(each, question.operation)]
    denies = [each for each in mine if each.permission == PermissionType.DENY]
    if any(each.pattern_type == PatternType.LITERAL and each.name == "*" for each in denies):
        return False
    return any(
        each.permission == PermissionType.ALLOW and not any(dominates(deny, each) for deny in denies) for each in mine
    )


def is_about(binding: AclBinding, name: str) -> bool:
    if binding.pattern_type == PatternType.LITERAL:
        return binding.name == name or binding.name == "*"
    return name[: len(binding.name)] == binding.name


def concerns_client(binding: AclBinding, question: Question) -> bool:
    is_principal = binding.principal == question.principal or binding.principal == "User:*"
    return is_principal and (binding.host == question.host or binding.host == "*")


def says(binding: AclBinding, operation: int) -> bool:
    return binding.operation == operation or binding.operation == AclOperation.ALL


def implies(binding: AclBinding, operation: int) -> bool:
    if says(binding, operation):
        return True
    if operation == AclOperation.DESCRIBE:
        return AclOperation(binding.operation).name in ("READ", "WRITE", "DELETE", "ALTER")
    return operation == AclOperation.DESCRIBE_CONFIGS and binding.operation == AclOperation.ALTER_CONFIGS


def dominates(deny: AclBinding, allow: AclBinding) -> bool:
    """Whether every resource that the pattern of `allow` names is denied. An ALLOW of all resources gives way to a
    DENY of all alone."""
    if allow.pattern_type == PatternType.LITERAL and allow.name == "*":
        return False
    if deny.pattern_type == PatternType.PREFIXED:
        return allow.name.startswith(deny.name)
    return allow.pattern_type == PatternType.LITERAL and allow.name == deny.name
