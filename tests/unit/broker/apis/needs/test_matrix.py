"""Every API in every version against every kind of permission: what is refused, and that no handler sees it.

The table says what Apache Kafka 4.3.1 asks of its authorizer for each API. An API without a row fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import pytest

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import guarded_handler
from moldau.broker.network.route import ListenerRole, RequestContext, Route, RouteBinding
from moldau.protocol.compiler import decode, encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from moldau.protocol.schema import ZERO_UUID, default_struct, response_class_of
from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from moldau.security.acl.authorizer import AclAccess, AuditedDecisions, Authorizer, AuthorizerSettings
from moldau.security.acl.bindings import AclBinding, PatternType, PermissionType
from moldau.security.principal import ANONYMOUS, Principal
from tests.support.apis import APIS
from tests.support.short_answers import short_answers
from tests.unit.protocol.facts.sampling import sample

HOST: Final = "192.0.2.7"
ALICE: Final = Principal("User", "alice")
TOKEN: Final = ALICE._replace(is_token_authenticated=True)
"""A client that logged in with a delegation token of alice: it may do what alice may."""
ROOT: Final = Principal("User", "root")
BROKER, CONTROLLER = ListenerRole.BROKER, ListenerRole.CONTROLLER

Needed = tuple[Op, Kind, str]
CLUSTER_NAME: Final = "kafka-cluster"
GROUP_FAILED, TOPIC_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
AUTHORIZATION_ERRORS: Final = frozenset(code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED"))


class Row(NamedTuple):
    """What a client needs, all of it, and the error without any of it."""

    needs: Callable[[Any], Iterable[Needed]]
    refusal: ErrorCode
    others: frozenset[ErrorCode] = frozenset()
    """Errors of requests that name resources of several kinds."""
    is_listing: bool = False
    """The response leaves out what is not allowed, instead of refusing it."""


def on_cluster(operation: Op) -> Row:
    return Row(lambda r: [(operation, Kind.CLUSTER, CLUSTER_NAME)], ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def on_topics(operation: Op, name: str = "name") -> Row:
    return Row(
        lambda r: [(operation, Kind.TOPIC, getattr(each, name)) for each in r.topics],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def on_group(operation: Op) -> Row:
    return Row(lambda r: [(operation, Kind.GROUP, r.group_id)], ErrorCode.GROUP_AUTHORIZATION_FAILED)


def name_of(element: Any) -> str:
    """Names of topics that are asked for by id are made of it."""
    return element.name or f"t{element.topic_id.hex()}"


def settings(operation: Op) -> Row:
    return Row(
        lambda r: [
            (operation, Kind.TOPIC, each.resource_name)
            if each.resource_type == 2
            else (operation, Kind.GROUP, each.resource_name)
            if each.resource_type == 32
            else (operation, Kind.CLUSTER, CLUSTER_NAME)
            for each in r.resources
        ],
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        frozenset({TOPIC_FAILED, GROUP_FAILED}),
    )


def transactional(*others: Callable[[Any], Iterable[Needed]]) -> Row:
    def needs(r: Any) -> Iterator[Needed]:
        yield (Op.WRITE, Kind.TRANSACTIONAL_ID, r.transactional_id)
        for other in others:
            yield from other(r)

    return Row(needs, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def reads_group(r: Any) -> Iterable[Needed]:
    return [(Op.READ, Kind.GROUP, r.group_id)]


def offset_fetch(r: Any) -> Iterator[Needed]:
    for group in r.groups or ([r] if r.group_id else []):
        yield (Op.DESCRIBE, Kind.GROUP, group.group_id)
        for topic in group.topics or ():
            yield (Op.DESCRIBE, Kind.TOPIC, name_of(topic))


def added_partitions(r: Any) -> Iterator[Needed]:
    if r.transactions or not r.v3_and_below_transactional_id:
        yield (Op.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME)
        return
    yield (Op.WRITE, Kind.TRANSACTIONAL_ID, r.v3_and_below_transactional_id)
    for topic in r.v3_and_below_topics:
        yield (Op.WRITE, Kind.TOPIC, topic.name)


def coordinated(r: Any) -> Iterator[Needed]:
    for key in r.coordinator_keys or ([r.key] if r.key else []):
        if r.key_type == 0:
            yield (Op.DESCRIBE, Kind.GROUP, key)
        elif r.key_type == 1:
            yield (Op.DESCRIBE, Kind.TRANSACTIONAL_ID, key)
        elif r.key_type == 2 and r.coordinator_keys:
            yield (Op.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME)


def deleted_topics(r: Any) -> Iterator[Needed]:
    """A topic that is named twice, or by name and id, is refused to every client."""
    names = [*r.topic_names, *(each.name for each in r.topics if each.name is not None and each.topic_id == ZERO_UUID)]
    for name in (name for name in names if names.count(name) == 1):
        yield (Op.DESCRIBE, Kind.TOPIC, name)
        yield (Op.DELETE, Kind.TOPIC, name)
    for topic in r.topics:
        if topic.name is None:
            yield (Op.DELETE, Kind.TOPIC, name_of(topic))


CLUSTER_ACTION: Final = on_cluster(Op.CLUSTER_ACTION)

TABLE: Final[dict[tuple[str, ListenerRole], Row]] = {
    ("AddOffsetsToTxn", BROKER): transactional(reads_group),
    ("AddPartitionsToTxn", BROKER): Row(added_partitions, ErrorCode.NONE),
    ("AddRaftVoter", CONTROLLER): on_cluster(Op.ALTER),
    ("AllocateProducerIds", CONTROLLER): CLUSTER_ACTION,
    ("AlterClientQuotas", CONTROLLER): on_cluster(Op.ALTER_CONFIGS),
    ("AlterConfigs", CONTROLLER): settings(Op.ALTER_CONFIGS),
    ("AlterPartition", CONTROLLER): CLUSTER_ACTION,
    ("AlterPartitionReassignments", CONTROLLER): on_cluster(Op.ALTER),
    ("AlterReplicaLogDirs", BROKER): on_cluster(Op.ALTER),
    ("AlterUserScramCredentials", CONTROLLER): on_cluster(Op.ALTER),
    ("AssignReplicasToDirs", CONTROLLER): CLUSTER_ACTION,
    ("BeginQuorumEpoch", CONTROLLER): CLUSTER_ACTION,
    ("BrokerHeartbeat", CONTROLLER): CLUSTER_ACTION,
    ("BrokerRegistration", CONTROLLER): CLUSTER_ACTION,
    ("ConsumerGroupDescribe", BROKER): Row(
        lambda r: [(Op.DESCRIBE, Kind.GROUP, each) for each in r.group_ids], GROUP_FAILED
    ),
    ("ConsumerGroupHeartbeat", BROKER): Row(
        lambda r: [
            (Op.READ, Kind.GROUP, r.group_id),
            *((Op.DESCRIBE, Kind.TOPIC, each) for each in r.subscribed_topic_names or ()),
        ],
        GROUP_FAILED,
    ),
    ("ControllerRegistration", CONTROLLER): CLUSTER_ACTION,
    ("CreateAcls", CONTROLLER): on_cluster(Op.ALTER),
    ("CreatePartitions", CONTROLLER): on_topics(Op.ALTER),
    ("CreateTopics", CONTROLLER): on_topics(Op.CREATE),
    ("DeleteAcls", CONTROLLER): on_cluster(Op.ALTER),
    ("DeleteGroups", BROKER): Row(lambda r: [(Op.DELETE, Kind.GROUP, each) for each in r.groups_names], GROUP_FAILED),
    ("DeleteRecords", BROKER): on_topics(Op.DELETE),
    ("DeleteTopics", CONTROLLER): Row(deleted_topics, TOPIC_FAILED),
    ("DescribeAcls", BROKER): on_cluster(Op.DESCRIBE),
    ("DescribeAcls", CONTROLLER): on_cluster(Op.DESCRIBE),
    ("DescribeClientQuotas", BROKER): on_cluster(Op.DESCRIBE_CONFIGS),
    ("DescribeCluster", CONTROLLER): on_cluster(Op.ALTER),
    ("DescribeConfigs", BROKER): settings(Op.DESCRIBE_CONFIGS),
    ("DescribeConfigs", CONTROLLER): settings(Op.DESCRIBE_CONFIGS),
    ("DescribeGroups", BROKER): Row(lambda r: [(Op.DESCRIBE, Kind.GROUP, each) for each in r.groups], GROUP_FAILED),
    ("DescribeLogDirs", BROKER): on_cluster(Op.DESCRIBE),
    ("DescribeProducers", BROKER): on_topics(Op.READ),
    ("DescribeQuorum", CONTROLLER): on_cluster(Op.DESCRIBE),
    ("DescribeTransactions", BROKER): Row(
        lambda r: [(Op.DESCRIBE, Kind.TRANSACTIONAL_ID, each) for each in r.transactional_ids],
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    ("DescribeUserScramCredentials", BROKER): on_cluster(Op.DESCRIBE),
    ("ElectLeaders", CONTROLLER): on_cluster(Op.ALTER),
    ("EndQuorumEpoch", CONTROLLER): CLUSTER_ACTION,
    ("EndTxn", BROKER): transactional(),
    ("Fetch", CONTROLLER): CLUSTER_ACTION,
    ("FetchSnapshot", CONTROLLER): CLUSTER_ACTION,
    ("FindCoordinator", BROKER): Row(coordinated, ErrorCode.NONE),
    ("Heartbeat", BROKER): on_group(Op.READ),
    ("IncrementalAlterConfigs", CONTROLLER): settings(Op.ALTER_CONFIGS),
    ("InitProducerId", BROKER): Row(
        lambda r: [
            (Op.IDEMPOTENT_WRITE, Kind.CLUSTER, CLUSTER_NAME)
            if r.transactional_id is None
            else (Op.WRITE, Kind.TRANSACTIONAL_ID, r.transactional_id)
        ],
        ErrorCode.NONE,
    ),
    ("JoinGroup", BROKER): on_group(Op.READ),
    ("LeaveGroup", BROKER): on_group(Op.READ),
    ("ListConfigResources", BROKER): on_cluster(Op.DESCRIBE_CONFIGS),
    ("ListGroups", BROKER): on_cluster(Op.DESCRIBE)._replace(is_listing=True),
    ("ListOffsets", BROKER): on_topics(Op.DESCRIBE),
    ("ListPartitionReassignments", CONTROLLER): on_cluster(Op.DESCRIBE),
    ("ListTransactions", BROKER): Row(lambda r: [], ErrorCode.NONE, is_listing=True),
    ("OffsetCommit", BROKER): Row(
        lambda r: [*reads_group(r), *((Op.READ, Kind.TOPIC, name_of(each)) for each in r.topics)], GROUP_FAILED
    ),
    ("OffsetDelete", BROKER): Row(
        lambda r: [
            (Op.DELETE, Kind.GROUP, r.group_id),
            *((Op.READ, Kind.TOPIC, each.name) for each in r.topics),
        ],
        GROUP_FAILED,
    ),
    ("OffsetFetch", BROKER): Row(offset_fetch, GROUP_FAILED),
    ("OffsetForLeaderEpoch", BROKER): on_topics(Op.DESCRIBE, "topic"),
    ("Produce", BROKER): Row(
        lambda r: [(Op.WRITE, Kind.TOPIC, name_of(each)) for each in r.topic_data], ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ),
    ("RemoveRaftVoter", CONTROLLER): on_cluster(Op.ALTER),
    ("ShareGroupDescribe", BROKER): Row(
        lambda r: [(Op.DESCRIBE, Kind.GROUP, each) for each in r.group_ids], GROUP_FAILED
    ),
    ("ShareGroupHeartbeat", BROKER): Row(
        lambda r: [
            (Op.READ, Kind.GROUP, r.group_id),
            *((Op.DESCRIBE, Kind.TOPIC, each) for each in r.subscribed_topic_names or ()),
        ],
        GROUP_FAILED,
    ),
    ("StreamsGroupDescribe", BROKER): Row(
        lambda r: [(Op.DESCRIBE, Kind.GROUP, each) for each in r.group_ids], GROUP_FAILED
    ),
    ("StreamsGroupHeartbeat", BROKER): on_group(Op.READ),
    ("StreamsGroupTopologyDescriptionUpdate", BROKER): on_group(Op.READ),
    ("SyncGroup", BROKER): on_group(Op.READ),
    ("TxnOffsetCommit", BROKER): transactional(
        reads_group, lambda r: [(Op.READ, Kind.TOPIC, name_of(each)) for each in r.topics]
    ),
    ("UnregisterBroker", CONTROLLER): on_cluster(Op.ALTER),
    ("UnregisterController", CONTROLLER): on_cluster(Op.ALTER),
    ("UpdateFeatures", CONTROLLER): on_cluster(Op.ALTER),
    ("UpdateRaftVoter", CONTROLLER): CLUSTER_ACTION,
    ("Envelope", CONTROLLER): CLUSTER_ACTION,
    ("Vote", CONTROLLER): CLUSTER_ACTION,
    ("WriteTxnMarkers", BROKER): CLUSTER_ACTION,
    ("InitializeShareGroupState", BROKER): CLUSTER_ACTION,
    ("ReadShareGroupState", BROKER): CLUSTER_ACTION,
    ("WriteShareGroupState", BROKER): CLUSTER_ACTION,
    ("DeleteShareGroupState", BROKER): CLUSTER_ACTION,
    ("ReadShareGroupStateSummary", BROKER): CLUSTER_ACTION,
}
FREE: Final = {
    *((name, role) for name in ("ApiVersions", "SaslAuthenticate", "SaslHandshake") for role in (BROKER, CONTROLLER)),
    ("GetTelemetrySubscriptions", BROKER),
    ("PushTelemetry", BROKER),
}
"""No permission is needed."""
ASKED_IN_HANDLERS: Final = {
    ("Fetch", BROKER),
    ("Metadata", BROKER),
    ("DescribeCluster", BROKER),
    ("DescribeDelegationToken", BROKER),
    ("DescribeTopicPartitions", BROKER),
    ("IncrementalAlterConfigs", BROKER),
    ("AlterShareGroupOffsets", BROKER),
    ("DeleteShareGroupOffsets", BROKER),
    ("DescribeShareGroupOffsets", BROKER),
    ("ShareAcknowledge", BROKER),
    ("ShareFetch", BROKER),
    *((f"{what}DelegationToken", role) for what in ("Create", "Renew", "Expire") for role in (BROKER, CONTROLLER)),
}
"""Their tests are those of the handlers, and stories with whole nodes."""


class Audit:
    def __init__(self) -> None:
        self.denied: list[tuple[Op, Kind, str | None]] = []
        self.lines: list[tuple[Op, Kind]] = []

    def log_decisions(self, access: AclAccess, decisions: AuditedDecisions) -> None:
        if not decisions.is_allowed:
            self.lines.append((decisions.operation, decisions.kind))
            self.denied.extend((decisions.operation, decisions.kind, name) for name in decisions.names)


class AnyTopics:
    """An image in which each topic id has a name."""

    ids: Final[dict[str, bytes]] = {}

    @property
    def by_id(self) -> AnyTopics:
        return self

    def get(self, topic_id: bytes) -> object:
        return SimpleNamespace(name=f"t{topic_id.hex()}")

    def by_name(self, name: str) -> object:
        return SimpleNamespace(name=name)

    def partition(self, name: str, index: int) -> object:
        return None


def not_bound() -> RouteBinding:
    raise AssertionError("the handler is that of the stage")


class Stage:
    """One API behind one kind of listener, with a handler that only notes what reaches it."""

    def __init__(self, api: Api[Any], role: ListenerRole) -> None:
        self.api = api
        self.audit = Audit()
        self.authorizer = Authorizer(AuthorizerSettings(super_users=frozenset({str(ROOT)})), self.audit)
        self.authorizer.on_metadata_loaded()
        self.reached: list[object] = []
        self.closed: list[str] = []
        self.services = SimpleNamespace(
            config=SimpleNamespace(flag=lambda name: True),
            cluster=SimpleNamespace(image=SimpleNamespace(topics=AnyTopics())),
            quorum=SimpleNamespace(active_controller=object()),
            long_requests=short_answers(),
        )
        self.handle = guarded_handler(api.rule_of(role), role, cast("Any", self.services), self.answer)

    def answer(self, context: object, request: object) -> object:
        self.reached.append(request)
        response = default_struct(response_class_of(self.api.request))
        groups = getattr(request, "groups", None)
        if self.api.name == "OffsetFetch" and groups:
            cast("Any", response).groups = [
                SimpleNamespace(group_id=each.group_id, topics=[], error_code=0) for each in groups
            ]
        return response

    def permit(self, needs: Iterable[Needed], pattern: str, permission: PermissionType = PermissionType.ALLOW) -> None:
        entries: dict[bytes, AclBinding | None] = {}
        for operation, kind, name in needs:
            how = PatternType.PREFIXED if pattern == "prefixed" else PatternType.LITERAL
            if pattern == "wildcard":
                name = "*"
            elif pattern == "prefixed":
                name = name[: max(1, len(name) - 1)]
            number = len(self.authorizer.index.bindings) + len(entries)
            entries[number.to_bytes(16, "big")] = AclBinding(kind, name, how, str(ALICE), "*", operation, permission)
        self.authorizer.apply_changes(entries)

    def context(self, principal: Principal, version: int) -> RequestContext:
        """The context of a request of this client; compiled rules take no other object in its place."""
        api, access = self.api, self.authorizer.access(principal, HOST)
        route = Route(api.key, api.name, api.first, api.last, not_bound)
        connection = SimpleNamespace(access=access, close=self.closed.append)
        return RequestContext(cast("Any", connection), route, version, 1, "c")

    def ask(self, principal: Principal, request: object, version: int) -> object:
        context = self.context(principal, version)
        self.reached.clear()
        self.audit.denied.clear()
        self.audit.lines.clear()
        return self.handle(context, request)


def codes(message: object) -> set[int]:
    """All error codes in a response, but NONE."""
    found: set[int] = set()
    if isinstance(message, list):
        for each in message:
            found |= codes(each)
    else:
        for name in getattr(message, "__slots__", ()):
            value = getattr(message, name)
            if name.endswith("error_code") and value:
                found.add(value)
            elif not isinstance(value, (str, bytes, int)):
                found |= codes(value)
    return found


def requests(api: Api[Any]) -> Iterator[tuple[int, object]]:
    for version in range(api.first, api.last + 1):
        for start in range(4):
            request = sample(api.request, version, start * 13)
            if api.name == "SyncGroup":  # without them the request is refused before
                cast("Any", request).protocol_type = cast("Any", request).protocol_name = "p"
            if api.name == "FindCoordinator":
                cast("Any", request).key_type = start % 2
            yield version, request


ROLES: Final = [(api, role) for api in APIS for role in (BROKER, CONTROLLER) if api.listeners.role & role]


def test_every_api_has_a_row_here() -> None:
    forwarded = {
        (api.name, role) for api, role in ROLES if getattr(api.rule_of(role), "__name__", "") == "controller_asks"
    }
    assert TABLE.keys() | FREE | ASKED_IN_HANDLERS | forwarded == {(api.name, role) for api, role in ROLES}
    assert all((name, CONTROLLER) in TABLE.keys() | ASKED_IN_HANDLERS for name, _ in forwarded)


CASES: Final = [
    pytest.param(api, role, id=f"{api.name}-{role.name}") for api, role in ROLES if (api.name, role) in TABLE
]


@pytest.mark.parametrize(("api", "role"), CASES)
@pytest.mark.parametrize("principal", [ANONYMOUS, ALICE, TOKEN], ids=["anonymous", "no-acl", "token"])
def test_without_a_permission_nothing_happens(api: Api[Any], role: ListenerRole, principal: Principal) -> None:
    row = TABLE[api.name, role]
    told: set[int] = set()
    for version, request in requests(api):
        stage = Stage(api, role)
        needs = list(row.needs(request))
        before = encode(request, version)
        response = stage.ask(principal, request, version)
        assert encode(request, version) == before, "the client's request is compared by hooks"
        if row.is_listing or not needs:
            continue
        if response is None:
            assert stage.closed
            continue
        assert all(not list(row.needs(each)) for each in stage.reached), "a handler sees what is denied"
        told |= codes(response)
        assert stage.audit.denied, "a denied request leaves a line in the audit log"
        assert len(set(stage.audit.lines)) == len(stage.audit.lines), "one line for an operation and a kind"
        decode(type(response), encode(response, version), version)
    allowed = AUTHORIZATION_ERRORS if row.refusal is ErrorCode.NONE else {row.refusal, *row.others}
    assert row.is_listing or (told and told <= allowed), [ErrorCode(each).name for each in told]


@pytest.mark.parametrize(("api", "role"), CASES)
@pytest.mark.parametrize("pattern", ["exact", "prefixed", "wildcard", "super-user", "token", "super-user's token"])
def test_with_its_permissions_the_handler_gets_the_request(api: Api[Any], role: ListenerRole, pattern: str) -> None:
    row = TABLE[api.name, role]
    for version, request in requests(api):
        stage = Stage(api, role)
        before = encode(request, version)
        principal = ROOT if "super-user" in pattern else ALICE
        if principal is ALICE:
            stage.permit(row.needs(request), pattern)
        is_token = pattern.endswith("token")
        response = stage.ask(principal._replace(is_token_authenticated=is_token), request, version)
        assert [encode(each, version) for each in stage.reached] == [before]
        assert not codes(response)
        if not row.is_listing:
            assert not stage.audit.denied


@pytest.mark.parametrize(("api", "role"), CASES)
@pytest.mark.parametrize("pattern", ["exact", "prefixed", "wildcard", "token"])
def test_a_deny_beside_them_wins(api: Api[Any], role: ListenerRole, pattern: str) -> None:
    row = TABLE[api.name, role]
    told: set[int] = set()
    for version, request in requests(api):
        needs = list(row.needs(request))
        if not needs or row.is_listing:
            continue
        stage = Stage(api, role)
        stage.permit(needs, "prefixed")
        stage.permit(needs, "exact")
        stage.permit(needs, pattern, PermissionType.DENY)
        response = stage.ask(TOKEN if pattern == "token" else ALICE, request, version)
        assert all(not list(row.needs(each)) for each in stage.reached)
        told |= codes(response)
    assert row.is_listing or told & AUTHORIZATION_ERRORS


def test_the_loggers_of_a_broker_need_alter_configs_on_the_cluster() -> None:
    (api,) = (each for each in APIS if each.request is IncrementalAlterConfigsRequest)
    stage = Stage(api, BROKER)
    logger, topic = (AlterConfigsResource(resource_type=kind, resource_name="1") for kind in (8, 2))
    request = IncrementalAlterConfigsRequest(resources=[logger, topic], validate_only=False)
    response = stage.ask(ALICE, request, 1)
    assert [cast("Any", each).resources for each in stage.reached] == [[topic]]
    assert codes(response) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_a_controller_that_does_not_lead_decides_nothing() -> None:
    """Its metadata may be old."""
    for api, role in ROLES:
        if (
            role is CONTROLLER
            and (api.name, role) in TABLE
            and api.name in ("CreateTopics", "CreateAcls", "DeleteTopics")
        ):
            stage = Stage(api, role)
            services = SimpleNamespace(quorum=SimpleNamespace(active_controller=None))
            stage.handle = guarded_handler(api.rule_of(role), role, cast("Any", services), stage.answer)
            for version, request in requests(api):
                assert codes(stage.ask(ALICE, request, version)) <= {ErrorCode.NOT_CONTROLLER}
                assert not stage.reached and not stage.audit.denied
