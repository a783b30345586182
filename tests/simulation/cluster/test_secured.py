"""Each rule of the secured part of a swarm flags a planted violation, and a healthy cluster has none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

import pytest

from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.security.acls import AclsImage
from moldau.kraft.image.security.delegation_tokens import TokensImage
from moldau.protocol.messages.create_acls import CreateAclsRequest
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.delegation_token import DelegationToken
from moldau.security.principal import USER, Principal
from moldau.security.sasl.scram.credential import ScramMechanism
from moldau.security.sasl.scram.exchange import ScramLogin
from tests.simulation.cluster.plan import SECURITY_PROPERTIES
from tests.simulation.cluster.secured import credentials, password_of
from tests.simulation.invariants.decided_by_acls import DecidedByAcls
from tests.simulation.invariants.observation import Observation, Observer, Violation
from tests.support.cluster import Cluster
from tests.support.cluster_clients import Bootstrap
from tests.support.node import Client
from tests.support.security.acl_administrator import TOPIC, AclAdministrator, creation_of
from tests.support.security.acl_views import AclView, NodeView
from tests.support.security.logins import Doors, LoggedInUser, TokenBearer, UserLogins
from tests.support.security.restricted_client import OF_BROKERS, OF_CONTROLLERS, RestrictedClient
from tests.support.security.token_holder import HeldToken, TokenHolder
from tests.support.security_administrator import SecurityAdministrator

ALICE = Principal(USER, "alice")
MAY_ALL = AclBinding(Kind.TOPIC, TOPIC, PatternType.LITERAL, str(ALICE), "*", Op.ALL, PermissionType.ALLOW)
NODE = 1


class Brokers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.node_ids = [NODE]

    async def connect(self, node_id: int) -> Client:
        return await self._cluster.connect(node_id)


def secured(story: Callable[[Cluster, Bootstrap, Doors, list[str]], Awaitable[None]]) -> list[str]:
    """The complaints after a story of one node."""
    complaints: list[str] = []

    async def live(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create(TOPIC, 1, 1)
        bootstrap = Bootstrap(Brokers(cluster), Random(1))
        await story(cluster, bootstrap, Doors(cluster, bootstrap), complaints)

    properties: dict[str, Any] = {**SECURITY_PROPERTIES}
    with Cluster(1, nodes=1, credentials=credentials(), has_logins=True, **properties) as cluster:
        cluster.live(live)
    return complaints


def login_of_alice() -> ScramLogin:
    return ScramLogin(ScramMechanism.SCRAM_SHA_256, ALICE.name, password_of(ALICE.name))


async def try_all(cluster: Cluster, doors: Doors, complaints: list[str]) -> RestrictedClient:
    connect = partial(doors.opened, login=login_of_alice())
    client = RestrictedClient(ALICE, doors.bootstrap, cluster, connect, complaints)
    await client.try_all(NODE)
    return client


def change_index(cluster: Cluster, change: Callable[[Any], object]) -> None:
    """The ACLs of the node's authorizer, beside those of its metadata."""
    broker = cluster.nodes[NODE].broker
    assert broker is not None and broker.security.authorizer is not None
    change(broker.security.authorizer.index)
    broker.security.authorizer.stamp += 1


# Permissions


def test_decisions_that_follow_the_metadata_are_right() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        client = await try_all(cluster, doors, complaints)
        assert client.judged == {True: 0, False: len(set(OF_BROKERS))}
        await bootstrap.ask_any(CreateAclsRequest(creations=[creation_of(MAY_ALL)]), 3)
        client = await try_all(cluster, doors, complaints)
        assert client.judged == {True: 4, False: 3}, "the group, the cluster, and what only followers may do"

    assert secured(story) == []


def test_an_acl_that_is_not_in_the_metadata_is_flagged() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        change_index(cluster, lambda index: index.put(b"planted", MAY_ALL))
        await try_all(cluster, doors, complaints)

    complaints = secured(story)
    assert len(complaints) == 4
    assert sum("allowed CREATE of TOPIC" in each for each in complaints) == 1, "also if the controller decides"


def test_an_acl_that_a_node_has_forgotten_is_flagged() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        await bootstrap.ask_any(CreateAclsRequest(creations=[creation_of(MAY_ALL)]), 3)
        change_index(cluster, lambda index: [index.remove(each) for each in list(index.bindings)])
        await try_all(cluster, doors, complaints)

    assert ["denied" in each for each in secured(story)] == [True] * 4


def test_a_node_that_decides_and_does_not_lead_is_flagged() -> None:
    led, follows = NodeView(1, AclsImage(), leads=True), NodeView(1, AclsImage(), leads=False)
    before, after = AclView({1: led, 2: follows}, 5), AclView({1: follows, 2: follows}, 5)
    assert before.is_led_elsewhere(after, 2)
    assert not before.is_led_elsewhere(after, 1), "it led when it was asked"
    assert not before.is_led_elsewhere(after._replace(leader_epoch=6), 2), "it may have led meanwhile"
    assert not before.is_led_elsewhere(AclView({}, 5), 2)


def test_requests_for_the_controller_are_among_those_of_brokers() -> None:
    assert set(OF_CONTROLLERS) < set(OF_BROKERS)


def test_acls_that_were_acknowledged_and_are_lost_are_flagged() -> None:
    complaints: list[str] = []

    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, _: list[str]) -> None:
        administrator = AclAdministrator(bootstrap, complaints)
        working = asyncio.get_running_loop().create_task(
            administrator.work(lambda: administrator.acknowledged_count > 9)
        )
        await working
        broker = cluster.nodes[NODE].broker
        assert broker is not None
        image = broker.image
        administrator.verify(NODE, image)
        assert complaints == []
        administrator.verify(NODE, image._replace(acls=AclsImage()))
        assert complaints and all("has gone" in each for each in complaints)
        complaints.clear()
        for binding in administrator._promised:
            administrator._promised[binding] = False
        administrator.verify(NODE, image)
        assert complaints and all("was removed and is there" in each for each in complaints)

    secured(story)


# Logins


def test_a_credential_that_the_metadata_does_not_have_is_flagged() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        administrator = SecurityAdministrator(bootstrap, complaints)
        await administrator.work(lambda: len(administrator.logins) > 0)
        logins = UserLogins(doors, administrator, complaints)
        ((user, (iterations, login)),) = administrator.logins.items()
        await logins.try_one(user, NODE)
        assert (complaints, logins.judged) == ([], {True: 1, False: 0})
        administrator.logins[user] = iterations + 1, login
        await logins.try_one(user, NODE)

    (complaint,) = secured(story)
    assert "was let in" in complaint


def test_a_login_with_the_current_password_that_fails_is_flagged() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        administrator = SecurityAdministrator(bootstrap, complaints)
        await administrator.work(lambda: len(administrator.logins) > 0)
        ((user, (iterations, _)),) = administrator.logins.items()
        administrator.logins[user] = iterations, ScramLogin(ScramMechanism.SCRAM_SHA_256, user, "another")
        await UserLogins(doors, administrator, complaints).try_one(user, NODE)

    (complaint,) = secured(story)
    assert "was refused" in complaint


# Tokens


class Answers:
    """A controller that lets tokens live for too long."""

    async def ask_any(self, request: object, version: int) -> Any:
        kind = type(request).__name__
        if kind == "CreateDelegationTokenRequest":
            return CreateDelegationTokenResponse(
                principal_type=USER,
                principal_name="alice",
                issue_timestamp_ms=0,
                expiry_timestamp_ms=4000,
                max_timestamp_ms=4000,
                token_id="t",
                hmac=b"secret",
            )
        if kind == "RenewDelegationTokenRequest":
            return RenewDelegationTokenResponse(expiry_timestamp_ms=5000)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=4001)


class NoBrokers:
    def __init__(self) -> None:
        self.node_ids = [NODE]

    async def connect(self, node_id: int) -> Client:
        raise OSError


def holder_of(complaints: list[str]) -> TokenHolder:
    return TokenHolder(Answers(), Bootstrap(NoBrokers(), Random(1)), complaints)


@pytest.mark.parametrize(
    ("step", "what"),
    [(TokenHolder._renew, "outlive its maximum by 1000 ms"), (TokenHolder._expire, "outlive its maximum by 1 ms")],
)
def test_an_end_beyond_the_maximum_is_flagged(
    step: Callable[[TokenHolder, Random], Coroutine[None, None, None]], what: str
) -> None:
    complaints: list[str] = []
    holder = holder_of(complaints)
    login = ScramLogin(ScramMechanism.SCRAM_SHA_256, "t", "secret")
    holder.tokens = [HeldToken("t", b"secret", 4000, login)]

    async def steps() -> None:
        for seed in range(4):  # one of them ends the token at once
            await step(holder, Random(seed))

    asyncio.run(steps())
    assert complaints and all(what in each for each in complaints)


def test_a_maximum_beyond_the_wish_is_flagged() -> None:
    complaints: list[str] = []
    holder = holder_of(complaints)

    async def steps() -> None:
        for seed in range(9):
            await holder._create(Random(seed))

    asyncio.run(steps())
    assert any("may live for 4000 ms of 1500" in each for each in complaints)


def test_a_token_that_is_accepted_after_its_maximum_is_flagged() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        holder = TokenHolder(LoggedInUser(doors, login_of_alice()), bootstrap, complaints)
        await holder._create(Random(3))
        bearer = TokenBearer(doors, holder, complaints)
        await bearer._try_one(NODE)
        assert (complaints, bearer.judged) == ([], {True: 1, False: 0})
        (token,) = holder.tokens
        holder.tokens = [token._replace(max_at_ms=1)]
        await bearer._try_one(NODE)

    first, second = secured(story)
    assert "after its maximum" in first and "has a session of" in second


def test_a_session_that_goes_on_is_flagged() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        holder = TokenHolder(LoggedInUser(doors, login_of_alice()), bootstrap, complaints)
        bearer = TokenBearer(doors, holder, complaints)
        client = await doors.opened(NODE, login_of_alice())
        await bearer._outlive(client, "t", NODE, 0.1)

    (complaint,) = secured(story)
    assert "after the end of its session" in complaint


# What is looked at


def looked_at(change: Callable[[MetadataImage], MetadataImage]) -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        observer, invariant = Observer(cluster, flushes=False), DecidedByAcls()
        seen = observer.look(is_full=True)
        assert seen is not None
        invariant.check(seen)
        provenance = seen.image.provenance._replace(end_offset=seen.image.provenance.end_offset + 1)
        seen.image = change(seen.image)._replace(provenance=provenance)
        invariant.check(seen)

    secured(story)


def with_token(image: MetadataImage, expires_at_ms: int) -> MetadataImage:
    token = DelegationToken("t", ALICE, ALICE, (), 1, 10, expires_at_ms)
    return image._replace(tokens=TokensImage(image.tokens.by_id.with_changes({"t": token})))


def test_a_token_in_the_metadata_that_outlives_its_maximum_is_flagged() -> None:
    looked_at(lambda image: with_token(image, 10))
    with pytest.raises(Violation, match="outlive"):
        looked_at(lambda image: with_token(image, 11))


def test_an_authorizer_that_decides_by_other_acls_is_flagged() -> None:
    async def story(cluster: Cluster, bootstrap: Bootstrap, doors: Doors, complaints: list[str]) -> None:
        observer, invariant = Observer(cluster, flushes=False), DecidedByAcls()

        def look() -> Observation:
            seen = observer.look(is_full=True)
            assert seen is not None
            return seen

        invariant.check(look())
        await bootstrap.ask_any(CreateAclsRequest(creations=[creation_of(MAY_ALL)]), 3)
        invariant.check(look())
        change_index(cluster, lambda index: [index.remove(each) for each in list(index.bindings)])
        other = MAY_ALL._replace(principal="User:bob", kind=Kind.GROUP)
        with pytest.raises(Violation, match="decides"):
            for number in range(4):  # each change is followed by other questions
                await bootstrap.ask_any(CreateAclsRequest(creations=[creation_of(other._replace(name=f"{number}"))]), 3)
                invariant.check(look())

    secured(story)
