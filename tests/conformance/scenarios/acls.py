"""What a user is told under ACLs: raw requests of every API in every version, compared field by field.

The user has no ACL at first, then some, then wide ones with a DENY beside them, then those to describe the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from protocol.access import AclOperation as Operation
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from security.access import ResourceKind as Kind
from security.acl.bindings import PatternType, PermissionType
from tests.conformance.acl_requests import of_cluster, of_groups, of_records
from tests.conformance.acl_requests.asked import CREATED, GROUP, TRANSACTION, Asked, Ids, comparable, made
from tests.conformance.outcome import Failed
from tests.conformance.raw_connection import Connection
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import PATIENCE_S, expect

USER, PASSWORD = "alice", "pw"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
REQUESTS_MIN: Final = 250
"""Of one phase."""
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY


class Rule(NamedTuple):
    """An ACL of the user, from every host."""

    operation: Operation
    kind: Kind
    name: str
    pattern_type: PatternType = LITERAL
    permission: PermissionType = ALLOW


PHASES: Final[dict[str, tuple[Rule, ...]]] = {
    "without an ACL": (),
    "with some": (
        Rule(Operation.READ, Kind.TOPIC, "ord", PREFIXED),
        Rule(Operation.WRITE, Kind.TOPIC, "orders"),
        Rule(Operation.READ, Kind.GROUP, GROUP),
        Rule(Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, TRANSACTION),
    ),
    "with wide ones and a DENY": (
        Rule(Operation.ALL, Kind.TOPIC, "*"),
        Rule(Operation.ALL, Kind.GROUP, "*"),
        Rule(Operation.ALL, Kind.TRANSACTIONAL_ID, "*"),
        Rule(Operation.WRITE, Kind.TOPIC, "hid", PREFIXED, DENY),
        Rule(Operation.READ, Kind.TOPIC, "hidden", LITERAL, DENY),
        # The topics stay as they are: Metadata of old versions would create the one that is not there.
        Rule(Operation.CREATE, Kind.TOPIC, "none", LITERAL, DENY),
        *(Rule(Operation.DELETE, Kind.TOPIC, name, LITERAL, DENY) for name in CREATED),
    ),
    "with those of the cluster": (
        Rule(Operation.DESCRIBE, Kind.CLUSTER, "kafka-cluster"),
        Rule(Operation.DESCRIBE_CONFIGS, Kind.CLUSTER, "kafka-cluster"),
    ),
}
"""The ACLs of each phase join those of the phases before."""


def broker_settings(port: int, secured: int) -> dict[str, str]:
    """A listener more, where users log in; on the plain one everybody is a super user."""
    own, more = f"PLAINTEXT://127.0.0.1:{port}", f"USERS://127.0.0.1:{secured}"
    return {
        "listeners": f"{own},CONTROLLER://127.0.0.1:{port + 1},{more}",
        "advertised.listeners": f"{own},{more}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


class Administrator:
    """The super user: makes what is asked for, and waits until the broker knows of it."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port, "administrator")
        self._acls = 0

    def topics(self) -> Ids:
        """The topics, and coordinators that have loaded: what follows must not depend on how fast they are."""
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in CREATED]
        self._connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        until("the topics have leaders", self._has_leaders)
        until("the coordinator of the group has loaded", self._has_group_coordinator)
        until("the coordinator of the transaction has loaded", self._has_transaction_coordinator)
        everything = self._connection.ask(MetadataRequest(topics=None), 12)
        assert isinstance(everything, MetadataResponse)
        return Ids({str(topic.name): topic.topic_id for topic in everything.topics})

    def allow(self, rules: tuple[Rule, ...]) -> None:
        creations = [
            AclCreation(
                resource_type=each.kind,
                resource_name=each.name,
                resource_pattern_type=each.pattern_type,
                principal=f"User:{USER}",
                host="*",
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in rules
        ]
        answer = self._connection.ask(CreateAclsRequest(creations=creations), 3)
        assert isinstance(answer, CreateAclsResponse)
        expect(not any(each.error_code for each in answer.results), f"an ACL is refused: {answer.results}")
        self._acls += len(rules)
        until(f"{self._acls} ACLs are in force", lambda: self._acls_known() == self._acls)

    def _metadata(self) -> MetadataResponse:
        answer = self._connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in CREATED]), 12)
        assert isinstance(answer, MetadataResponse)
        return answer

    def _has_leaders(self) -> bool:
        topics = self._metadata().topics
        return all(len(topic.partitions) == 2 and not topic.error_code for topic in topics) and not any(
            partition.error_code for topic in topics for partition in topic.partitions
        )

    def _has_group_coordinator(self) -> bool:
        self._find(0, GROUP)
        answer = self._connection.ask(OffsetFetchRequest(group_id=GROUP, topics=None), 7)
        assert isinstance(answer, OffsetFetchResponse)
        return not answer.error_code

    def _has_transaction_coordinator(self) -> bool:
        self._find(1, TRANSACTION)
        request = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=1000)
        answer = self._connection.ask(request, 4)
        assert isinstance(answer, InitProducerIdResponse)
        return not answer.error_code

    def _find(self, kind: int, key: str) -> None:
        answer = self._connection.ask(made(FindCoordinatorRequest, key=key, key_type=kind), 3)
        assert isinstance(answer, FindCoordinatorResponse)

    def _acls_known(self) -> int:
        everything = made(
            DescribeAclsRequest,
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        answer = self._connection.ask(everything, 3)
        assert isinstance(answer, DescribeAclsResponse)
        return sum(len(resource.acls) for resource in answer.resources)


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.1)


def requests(ids: Ids) -> Iterator[Asked]:
    """All that the user asks in one phase."""
    return chain(of_records.requests(ids), of_groups.requests(ids), of_cluster.requests(ids))


def told(port: int, ids: Ids) -> dict[str, object]:
    """What the user is told, request by request; `closed` where the broker closes the connection instead."""
    found: dict[str, object] = {}
    connection: Connection | None = None
    for number, asked in enumerate(requests(ids)):
        if connection is None:
            connection = Connection(port, "client")
            connection.log_in(USER, PASSWORD)
        answer: object
        try:
            answer = comparable(connection.ask(asked.request, asked.version), ids)
        except OSError:
            connection.close()
            connection, answer = None, "closed"
        found[f"{number:03} {asked.name}"] = answer
    if connection is not None:
        connection.close()
    return found


def on(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        broker = work.moldau() if side == "moldau" else work.apache()
        secured = work.ports.pair()
        broker.set(broker_settings(broker.port, secured))
        broker.format()
        with work.running(broker):
            administrator = Administrator(broker.port)
            ids = administrator.topics()
            for phase, rules in PHASES.items():
                if rules:
                    administrator.allow(rules)
                work.facts[phase] = answers = told(secured, ids)
                expect(len(answers) >= REQUESTS_MIN, f"only {len(answers)} requests were asked")
        del work.facts[f"{broker.name} ended with status"]  # Java ends with that of the signal

    return story


DEMANDS = "a user without ACLs, with some, and with wide ones and a DENY is told what Apache Kafka tells it"
ACL_SCENARIOS = tuple(DirectoryScenario("acls", DEMANDS, on(side), side) for side in ("moldau", "apache"))
