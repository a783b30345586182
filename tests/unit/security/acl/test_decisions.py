"""The authorizer's decisions: against the reference, and the rules one by one."""

from __future__ import annotations

from random import Random

import pytest

from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.authorizer import (
    AUDITED_NAMES_MAX,
    REMEMBERED_MAX,
    AuditedDecisions,
    Authorizer,
    AuthorizerSettings,
    parse_super_users,
)
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.acl.explaining import explain_authorization
from moldau.security.principal import Principal
from tests.security.acl_decisions import Silent, differences
from tests.support.acl_draws import SUPER_USERS, draw_bindings, draw_question

ALICE = Principal("User", "alice")
HOST = "10.0.0.1"
TOPIC = ResourceKind.TOPIC
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def acl(
    name: str,
    operation: int = READ,
    permission: int = PermissionType.ALLOW,
    *,
    pattern: int = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> AclBinding:
    return AclBinding(TOPIC, name, pattern, principal, host, operation, permission)


def authorizer_of(*bindings: AclBinding, allows_without_acls: bool = False) -> Authorizer:
    made = Authorizer(AuthorizerSettings(frozenset({"User:root"}), allows_without_acls), Silent())
    made.apply_changes({bytes([number]): each for number, each in enumerate(bindings)})
    made.on_metadata_loaded()
    return made


@pytest.mark.parametrize("seed", range(4))
def test_the_reference_agrees(seed: int) -> None:
    assert differences(Random(seed), 5_000) == []


@pytest.mark.parametrize("seed", range(4))
def test_an_explanation_agrees_with_the_decision(seed: int) -> None:
    random = Random(seed)
    for _ in range(30):
        authorizer = Authorizer(AuthorizerSettings(SUPER_USERS, random.random() < 0.5), Silent())
        authorizer.apply_changes({random.randbytes(16): each for each in draw_bindings(random)})
        if random.random() < 0.9:
            authorizer.on_metadata_loaded()
        for _ in range(20):
            asked = draw_question(random, any_share=0)
            assert asked.name is not None
            arguments = (asked.principal, asked.host, asked.operation, asked.kind, asked.name)
            explanation = explain_authorization(authorizer, *arguments)
            assert explanation.is_allowed == authorizer.decide(*arguments)


def test_a_deny_wins_over_an_allow_beside_it() -> None:
    deny = acl("ord", permission=PermissionType.DENY, pattern=PatternType.PREFIXED, principal="User:*")
    access = authorizer_of(acl("orders"), acl("*"), deny).access(ALICE, HOST)
    assert not access.allows(READ, TOPIC, "orders")
    assert access.allows(READ, TOPIC, "payments")


def test_a_deny_implies_nothing() -> None:
    access = authorizer_of(acl("t", READ, PermissionType.DENY), acl("t", WRITE)).access(ALICE, HOST)
    assert not access.allows(READ, TOPIC, "t")
    assert access.allows(DESCRIBE, TOPIC, "t")


def test_super_users_come_first_also_before_the_acls_are_loaded() -> None:
    authorizer = Authorizer(AuthorizerSettings(frozenset({"User:root"})), Silent())
    authorizer.apply_changes(
        {b"1": acl("t"), b"2": acl("t", AclOperation.ALL, PermissionType.DENY, principal="User:*")}
    )
    root = authorizer.access(Principal("User", "root"), "anywhere")
    alice = authorizer.access(ALICE, HOST)
    assert root.allows(READ, TOPIC, "t")
    assert not alice.allows(READ, TOPIC, "t")
    authorizer.apply_changes({b"2": None})
    assert not alice.allows(READ, TOPIC, "t")
    authorizer.on_metadata_loaded()
    assert alice.allows(READ, TOPIC, "t")


def test_case_matters_in_names_and_principals() -> None:
    authorizer = authorizer_of(acl("Orders"))
    assert not authorizer.access(ALICE, HOST).allows(READ, TOPIC, "orders")
    assert not authorizer.access(Principal("User", "Alice"), HOST).allows(READ, TOPIC, "Orders")


def test_a_resource_without_acls_may_be_open() -> None:
    authorizer = authorizer_of(acl("t", principal="User:bob"), allows_without_acls=True)
    access = authorizer.access(ALICE, HOST)
    assert access.allows(WRITE, TOPIC, "u")
    assert not access.allows(WRITE, TOPIC, "t")


def test_one_removed_acl_among_several_takes_nothing_from_the_others() -> None:
    """CVE-2024-27309: after removals, the ACLs that are left on a resource still count."""
    authorizer = authorizer_of(acl("t"), acl("t", WRITE), acl("t", READ, PermissionType.DENY, principal="User:bob"))
    access = authorizer.access(ALICE, HOST)
    authorizer.apply_changes({bytes([1]): None})
    assert access.allows(READ, TOPIC, "t") and not access.allows(WRITE, TOPIC, "t")
    assert not authorizer.access(Principal("User", "bob"), HOST).allows(READ, TOPIC, "t")


def test_a_change_voids_what_an_access_remembers() -> None:
    authorizer = authorizer_of(acl("t"))
    access = authorizer.access(ALICE, HOST)
    before = access.stamp
    assert access.allows(READ, TOPIC, "t")
    authorizer.apply_changes({bytes([0]): None})
    assert access.stamp != before
    assert not access.allows(READ, TOPIC, "t")


class Audit:
    def __init__(self) -> None:
        self.lines: list[tuple[str | None, bool]] = []
        self.counts: list[int] = []

    def log_decisions(self, access: object, decisions: AuditedDecisions) -> None:
        self.lines.extend((name, decisions.is_allowed) for name in decisions.names)
        self.counts.append(decisions.count)


def test_each_denied_request_is_audited_and_allowed_ones_where_asked() -> None:
    audit = Audit()
    quiet = Authorizer(AuthorizerSettings(), audit)
    quiet.apply_changes({b"1": acl("t")})
    quiet.on_metadata_loaded()
    access = quiet.access(ALICE, HOST)
    for _ in range(2):
        assert access.allows(READ, TOPIC, "t")
        assert not access.allows(READ, TOPIC, "u")
        assert not access.allows(READ, TOPIC, "v", logs_denied=False)
    assert audit.lines == [("u", False), ("u", False)]
    telling = Authorizer(AuthorizerSettings(audits_allowed=True), audit)
    telling.apply_changes({b"1": acl("t")})
    telling.on_metadata_loaded()
    audit.lines.clear()
    assert telling.access(ALICE, HOST).allows(READ, TOPIC, "t")
    assert not telling.access(ALICE, HOST).allows_for_any(WRITE, TOPIC)
    assert audit.lines == [("t", True), (None, False)]


def test_the_decisions_about_a_request_are_one_entry_for_each_operation_and_outcome() -> None:
    audit = Audit()
    authorizer = Authorizer(AuthorizerSettings(), audit)
    authorizer.apply_changes({b"1": acl("t")})
    authorizer.on_metadata_loaded()
    access = authorizer.access(ALICE, HOST)
    assert access.begin_request()
    assert not access.begin_request(), "a call inside of it leaves the writing to the first one"
    for number in range(1000):
        assert not access.allows(READ, TOPIC, f"x{number}")
    assert not access.allows(WRITE, TOPIC, "t")
    assert not audit.counts, "nothing is written before the request has been handled"
    access.end_request()
    assert audit.counts == [1000, 1]
    assert audit.lines == [*((f"x{number}", False) for number in range(AUDITED_NAMES_MAX)), ("t", False)]
    assert not access.allows(WRITE, TOPIC, "t")
    assert audit.counts == [1000, 1, 1], "a decision between requests is written at once"


class Counted(Authorizer):
    """Counts the decisions about single names."""

    def __init__(self, settings: AuthorizerSettings) -> None:
        super().__init__(settings, Silent())
        self.named = 0

    def decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
        self.named += 1
        return super().decide(principal, host, operation, kind, name)


@pytest.mark.parametrize(
    ("bindings", "is_allowed"),
    [
        ([], False),
        ([acl("*")], True),
        ([acl("*"), acl("*", WRITE, PermissionType.DENY), acl("t", WRITE)], True),
        ([acl("t"), acl("*", permission=PermissionType.DENY)], False),
        ([acl("t", WRITE), acl("t", principal="User:bob")], False),
        ([acl("t", READ), acl("t", READ, PermissionType.DENY)], None),
        ([acl("*"), acl("t", READ, PermissionType.DENY, host=HOST)], None),
        ([acl("*"), acl("t", READ, PermissionType.DENY, host="192.0.2.1")], True),
    ],
)
def test_where_the_name_does_not_count_no_name_is_looked_up(
    bindings: list[AclBinding], is_allowed: bool | None
) -> None:
    authorizer = Counted(AuthorizerSettings())
    authorizer.apply_changes({bytes([number]): each for number, each in enumerate(bindings)})
    authorizer.on_metadata_loaded()
    access = authorizer.access(ALICE, HOST)
    names = [f"n{number}" for number in range(100)]
    decisions = [access.allows(READ, TOPIC, name) for name in names]
    assert access.decision_for_all(READ, TOPIC) is is_allowed
    assert authorizer.named == (100 if is_allowed is None else 0)
    assert decisions == [authorizer.decide(str(ALICE), HOST, READ, TOPIC, name) for name in names]


def test_an_allow_for_all_ends_with_the_acl() -> None:
    authorizer = authorizer_of(acl("*"), acl("t", permission=PermissionType.DENY))
    access = authorizer.access(ALICE, HOST)
    assert not access.allows(READ, TOPIC, "t")
    authorizer.apply_changes({bytes([1]): None})
    assert access.allows(READ, TOPIC, "t") and access.decision_for_all(READ, TOPIC)
    authorizer.apply_changes({bytes([0]): None})
    assert not access.allows(READ, TOPIC, "t")


def test_the_node_remembers_a_bounded_number_of_decisions_for_all_clients() -> None:
    authorizer = authorizer_of(acl("t"), acl("t", principal="User:*", host="10.0.0.2"))
    clients = [authorizer.access(ALICE, HOST), authorizer.access(Principal("User", "bob"), "10.0.0.2")]
    for number in range(REMEMBERED_MAX):
        for access in clients:
            assert not access.allows(READ, TOPIC, f"x{number}")
        assert authorizer.remembered_count <= REMEMBERED_MAX
    remembered = sum(map(len, authorizer.remembered.values()))
    assert 0 < remembered + len(authorizer.remembered) == authorizer.remembered_count
    assert clients[0].allows(READ, TOPIC, "t")
    before = authorizer.remembered_count
    assert authorizer.access(ALICE, HOST).allows(READ, TOPIC, "t")
    assert authorizer.remembered_count == before, "the connections of a client share what is remembered"


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c:d;") == {"User:a", "User:CN=b,O=c:d"}
    with pytest.raises(ValueError, match="principalType:principalName"):
        parse_super_users("alice")
