"""The column of delegation tokens for the APIs whose handlers ask themselves: a token is its owner, and makes no token.

An API that is neither here nor in the table of rules fails.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from moldau.broker.apis.api import Api
from moldau.broker.apis.catalogue import LINES, route
from moldau.broker.network.route import ListenerRole
from moldau.protocol.errors import ErrorCode
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.acl.authorizer import Authorizer, AuthorizerSettings
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import Principal
from tests.support.apis import APIS
from tests.support.deciding import Deciding
from tests.unit.broker.apis.needs.test_matrix import (
    ALICE,
    ASKED_IN_HANDLERS,
    BROKER,
    CONTROLLER,
    FREE,
    HOST,
    ROLES,
    ROOT,
    TABLE,
    TOKEN,
    Audit,
    requests,
)

NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
REFUSED: Final = {
    *((f"{what}DelegationToken", role) for what in ("Create", "Renew", "Expire") for role in (BROKER, CONTROLLER)),
    ("DescribeDelegationToken", BROKER),
}
"""A token makes, changes and shows no token."""
AS_ITS_OWNER: Final = {
    ("Fetch", BROKER),
    ("Metadata", BROKER),
    ("AlterShareGroupOffsets", BROKER),
    ("DeleteShareGroupOffsets", BROKER),
    ("DescribeShareGroupOffsets", BROKER),
    ("ShareAcknowledge", BROKER),
    ("ShareFetch", BROKER),
    ("DescribeCluster", BROKER),
    ("DescribeTopicPartitions", BROKER),
    ("IncrementalAlterConfigs", BROKER),
}
"""The handlers ask the access of the client, which is that of the owner."""


def test_every_api_has_a_row_in_the_column() -> None:
    forwarded = {(api.name, role) for api, role in ROLES} - TABLE.keys() - FREE - ASKED_IN_HANDLERS
    assert {role for _, role in forwarded} == {BROKER}, "what is passed on is asked for where it arrives"
    assert all((name, CONTROLLER) in TABLE.keys() | ASKED_IN_HANDLERS for name, _ in forwarded)
    assert REFUSED | AS_ITS_OWNER == ASKED_IN_HANDLERS
    assert not REFUSED & AS_ITS_OWNER


@pytest.mark.parametrize(
    ("api", "role"),
    [pytest.param(api, role, id=f"{api.name}-{role.name}") for api, role in ROLES if (api.name, role) in REFUSED],
)
@pytest.mark.parametrize("owner", [ALICE, ROOT], ids=["user", "super-user"])
def test_a_token_does_nothing_with_tokens_in_any_version(api: Api[Any], role: ListenerRole, owner: Principal) -> None:
    """A broker refuses it before it asks the controller or the image: the services have neither."""
    authorizer = Authorizer(AuthorizerSettings(super_users=frozenset({str(ROOT)})), Audit())
    authorizer.on_metadata_loaded()
    principal = owner._replace(is_token_authenticated=True)
    row = route(LINES[api.name], BROKER, cast("Any", SimpleNamespace()), is_guarded=True)
    for version, request in requests(api):
        assert row.load(version) is not None
        if role is CONTROLLER:
            cluster = Deciding()
            assert cast("Any", cluster.ask(request, principal)).error_code == NOT_ALLOWED
            assert not cluster.image.tokens.by_id
            continue
        context = SimpleNamespace(
            access=authorizer.access(principal, HOST),
            principal=principal,
            version=version,
            is_long=False,
            route=SimpleNamespace(count_errors=list),
        )
        response = cast("Any", row.handle(cast("Any", context), request))
        assert response.error_code == NOT_ALLOWED


@pytest.mark.parametrize("kind", [each for each in ResourceKind if each > ResourceKind.ANY])
def test_the_access_of_a_token_is_that_of_its_owner(kind: ResourceKind) -> None:
    audit = Audit()
    authorizer = Authorizer(AuthorizerSettings(super_users=frozenset({str(ROOT)})), audit)
    authorizer.on_metadata_loaded()
    for number, (operation, permission) in enumerate(
        [(AclOperation.READ, PermissionType.ALLOW), (AclOperation.DESCRIBE, PermissionType.DENY)]
    ):
        binding = AclBinding(kind, "name", PatternType.LITERAL, str(ALICE), "*", operation, permission)
        authorizer.apply_changes({number.to_bytes(16, "big"): binding})
    by_token, owner = authorizer.access(TOKEN, HOST), authorizer.access(ALICE, HOST)
    allowed = []
    for operation in AclOperation:
        decisions = []
        for access in (by_token, owner):
            audit.denied.clear()
            decisions.append((access.allows(operation, kind, "name"), list(audit.denied)))
        assert decisions[0] == decisions[1]
        allowed.append(decisions[0][0])
        assert by_token.allows_for_any(operation, kind) == owner.allows_for_any(operation, kind)
    assert any(allowed) and not all(allowed)
    assert authorizer.access(ROOT._replace(is_token_authenticated=True), HOST).allows(AclOperation.ALTER, kind, "name")


def test_the_served_apis_are_all_looked_at() -> None:
    assert {api for api, _ in ROLES} == set(APIS)
