"""CreateAcls and DeleteAcls; results were observed on Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from moldau.security.acl.bindings import AclBinding
from tests.support.deciding import Deciding

TOO_OLD = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
NO_COLON = " (no colon is present separating the principal type from the principal name)"


def creation(
    name: str = "t",
    kind: int = 2,
    pattern: int = 3,
    principal: str = "User:a",
    host: str = "*",
    operation: int = 3,
    permission: int = 3,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def create(cluster: Deciding, *creations: AclCreation) -> list[tuple[int, str | None]]:
    reply = cluster.ask(CreateAclsRequest(creations=list(creations)))
    assert isinstance(reply, CreateAclsResponse)
    return [(each.error_code, each.error_message) for each in reply.results]


def wanted(name: str | None = None, kind: int = 1, pattern: int = 1, operation: int = 1) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=operation,
        permission_type=1,
    )


def delete(cluster: Deciding, *filters: DeleteAclsFilter) -> list[tuple[int, str | None, list[str]]]:
    reply = cluster.ask(DeleteAclsRequest(filters=list(filters)))
    assert isinstance(reply, DeleteAclsResponse)
    return [
        (each.error_code, each.error_message, sorted(acl.resource_name for acl in each.matching_acls))
        for each in reply.filter_results
    ]


def test_an_acl_is_made_once() -> None:
    cluster = Deciding()
    assert create(cluster, creation(), creation()) == [(0, ""), (0, "")]
    assert list(cluster.image.acls.by_id.values()) == [AclBinding(2, "t", 3, "User:a", "*", 3, 3)]
    assert create(cluster, creation()) == [(0, "")] and not cluster.written
    assert cluster.replayed_snapshot() == cluster.image


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (creation(kind=77), "Invalid resourceType UNKNOWN"),
        (creation(kind=1), "Invalid resourceType ANY"),
        (creation(pattern=2), "Invalid patternType MATCH"),
        (creation(operation=1), "Invalid operation ANY"),
        (creation(permission=0), "Invalid permissionType UNKNOWN"),
        (creation(name=""), "Invalid empty resource name"),
        (creation(name="", kind=4), "Invalid empty resource name"),
        (creation(name="*", kind=4), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (creation(principal="alice"), "Could not parse principal from `alice`" + NO_COLON),
        (creation(principal=""), "Could not parse principal from ``" + NO_COLON),
    ],
)
def test_an_acl_that_cannot_be_is_refused_and_others_are_made(refused: AclCreation, message: str) -> None:
    cluster = Deciding()
    outcome = (ErrorCode.INVALID_REQUEST, message)
    assert create(cluster, creation("x"), refused, creation("y")) == [(0, ""), outcome, (0, "")]
    assert len(cluster.image.acls.by_id) == 2


@pytest.mark.parametrize(
    ("host", "below", "from_then_on"),
    [
        ("10.0.0.0/8", (ErrorCode.UNSUPPORTED_VERSION, TOO_OLD), (0, "")),
        ("2001:db8::/32", (ErrorCode.UNSUPPORTED_VERSION, TOO_OLD), (0, "")),
        (
            "10.0.0.0/33",
            (ErrorCode.UNSUPPORTED_VERSION, TOO_OLD),
            (
                ErrorCode.INVALID_REQUEST,
                "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]",
            ),
        ),
        ("", (0, ""), (ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")),
    ],
)
def test_a_host_may_be_a_network_from_metadata_version_4_4_iv1_on(
    host: str, below: tuple[int, str], from_then_on: tuple[int, str]
) -> None:
    cluster = Deciding()
    assert create(cluster, creation(host=host)) == [below]
    cluster.finalize("metadata.version", 32)
    assert create(cluster, creation(host=host)) == [from_then_on]


@pytest.mark.parametrize(
    "taken",
    [
        creation(host=""),
        creation(host="localhost"),
        creation(principal=":a"),
        creation(principal="User:"),
        creation(name="kafka-cluster", kind=4, pattern=4),
        creation(operation=9),
        creation(name="tx", kind=5, operation=15),
    ],
)
def test_acls_that_never_match_are_made_all_the_same(taken: AclCreation) -> None:
    assert create(Deciding(), taken) == [(0, "")]


def test_a_request_makes_at_most_ten_thousand() -> None:
    cluster = Deciding()
    outcomes = create(cluster, *(creation(f"t{number}") for number in range(10_001)))
    message = "Unable to perform excessively large batch operation."
    assert set(outcomes) == {(ErrorCode.POLICY_VIOLATION, message)} and len(outcomes) == 10_001
    assert not cluster.image.acls.by_id


def test_each_filter_tells_what_it_matches_and_each_acl_is_removed_once() -> None:
    cluster = Deciding()
    create(cluster, creation("t"), creation("tt", pattern=4), creation("*"), creation("u"))
    assert delete(cluster, wanted("t", pattern=3), wanted("ttt", pattern=2), wanted("t", pattern=2), wanted("x")) == [
        (0, None, ["t"]),
        (0, None, ["*", "tt"]),
        (0, None, ["*", "t"]),
        (0, None, []),
    ]
    assert len(cluster.written) == 3
    assert [binding.name for binding in cluster.image.acls.by_id.values()] == ["u"]
    assert delete(cluster, wanted(kind=0), wanted(operation=99), wanted(kind=3)) == [
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.", []),
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.", []),
        (0, None, []),
    ]
    assert delete(cluster, wanted()) == [(0, None, ["u"])]
    assert not cluster.image.acls.by_id


def test_without_an_authorizer_nothing_is_changed() -> None:
    cluster = Deciding(has_authorizer=False)
    refused = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    assert create(cluster, creation()) == [refused]
    assert delete(cluster, wanted()) == [(*refused, [])]
    assert not cluster.written
