"""Networks as hosts of ACLs; refusals and ranges were observed on the classes of Apache Kafka 4.4.0."""

from __future__ import annotations

import pytest

from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.authorizer import Authorizer, AuthorizerSettings
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.acl.explaining import explain_authorization
from moldau.security.acl.networks import InvalidNetwork, is_in_network, network_of
from tests.security.acl_decisions import Silent

READ, TOPIC = AclOperation.READ, ResourceKind.TOPIC
ALICE = "User:alice"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("10.0.0.0/", "Could not parse [10.0.0.0/]"),
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        ("256.0.0.0/8", "Value [256] not in range [0,255]"),
        ("10.0.0.0/008", "Could not parse [10.0.0.0/008]"),
        ("10.0.0.0/8/8", "Could not parse [10.0.0.0/8/8]"),
        ("*/8", "Could not parse [*/8]"),
        ("2001:db8::/129", "Could not parse [2001:db8::/129] - prefix length must be between 0 and 128"),
        ("::/-1", "Could not parse [::/-1] - prefix length must be between 0 and 128"),
        ("::1/", "Could not parse [::1/] - invalid prefix length"),
        ("2001:db8::zz/12", "Could not parse [2001:db8::zz]"),
        ("::ffff:10.0.0.0/104", "Could not parse [::ffff:10.0.0.0] - not an IPv6 address"),
    ],
)
def test_a_text_that_is_no_network_is_refused_as_apache_kafka_does(text: str, refusal: str) -> None:
    with pytest.raises(InvalidNetwork) as raised:
        network_of(text)
    assert str(raised.value) == refusal
    assert not is_in_network("10.0.0.1", text)


@pytest.mark.parametrize(
    ("host", "network", "is_within"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.0.0.0", "10.0.0.0/8", True),
        ("10.255.255.255", "10.9.9.9/8", True),
        ("11.0.0.0", "10.0.0.0/8", False),
        ("10.1.2.3", "010.0.0.0/08", True),
        ("127.0.0.0", "127.0.0.1/31", True),
        ("127.0.0.1", "127.0.0.1/32", True),
        ("255.255.255.255", "0.0.0.0/0", True),
        ("0:0:0:0:0:0:0:1", "::1/128", True),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::/64", True),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::/032", True),
        ("10.0.0.1", "::/0", False),
        ("0:0:0:0:0:0:0:1", "0.0.0.0/0", False),
        ("localhost", "127.0.0.0/8", False),
        ("10.0.0.1", "10.0.0.1", False),
    ],
)
def test_a_network_holds_the_addresses_of_its_prefix(host: str, network: str, is_within: bool) -> None:
    assert is_in_network(host, network) is is_within


def acl(host: str, permission: int = PermissionType.ALLOW, principal: str = ALICE) -> AclBinding:
    return AclBinding(TOPIC, "t", PatternType.LITERAL, principal, host, READ, permission)


def authorizer_of(*bindings: AclBinding) -> Authorizer:
    made = Authorizer(AuthorizerSettings(), Silent())
    made.apply_changes({bytes([number]): each for number, each in enumerate(bindings)})
    made.on_metadata_loaded()
    return made


def may_read(authorizer: Authorizer, host: str) -> bool:
    decision = authorizer.decide(ALICE, host, READ, TOPIC, "t")
    assert explain_authorization(authorizer, ALICE, host, READ, TOPIC, "t").is_allowed is decision
    return decision


def test_an_allow_and_a_deny_of_a_network_count_beside_one_another() -> None:
    denied = acl("10.1.0.0/16", PermissionType.DENY, "User:*")
    authorizer = authorizer_of(acl("10.0.0.0/8"), denied, acl("2001:db8::/32"))
    assert may_read(authorizer, "10.2.0.1")
    assert not may_read(authorizer, "10.1.0.1")
    assert not may_read(authorizer, "192.168.0.1")
    assert may_read(authorizer, "2001:db8:0:0:0:0:0:9")
    assert not may_read(authorizer, "2001:db9:0:0:0:0:0:9")


def test_a_network_ends_with_its_last_acl() -> None:
    authorizer = authorizer_of(acl("10.0.0.0/8"), acl("10.0.0.0/8", principal="User:*"))
    authorizer.apply_changes({bytes([0]): None})
    assert may_read(authorizer, "10.2.0.1")
    authorizer.apply_changes({bytes([1]): None})
    assert not may_read(authorizer, "10.2.0.1")


def test_a_host_that_only_looks_like_a_network_matches_no_address() -> None:
    authorizer = authorizer_of(acl("10.0.0.0/99"), acl("10.0.0.1"))
    assert may_read(authorizer, "10.0.0.1")
    assert not may_read(authorizer, "10.0.0.2")
    authorizer.apply_changes({bytes([0]): None})
    assert may_read(authorizer, "10.0.0.1")
