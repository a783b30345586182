"""What a user is told under ACLs: raw requests of every API in every version, compared field by field.

The user has no ACL at first, then some, then wide ones with a DENY beside them, then those to describe the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from moldau.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from moldau.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from moldau.protocol.messages.alter_partition import TopicData as AlteredTopic
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from moldau.security.access import AclOperation as Operation
from moldau.security.access import ResourceKind as Kind
from moldau.security.acl.bindings import PatternType, PermissionType
from tests.conformance.acl_requests import of_cluster, of_groups, of_records
from tests.conformance.acl_requests.asked import CREATED, GROUP, TRANSACTION, UNKNOWN_ID, Asked, Ids, comparable, made
from tests.conformance.outcome import Failed
from tests.conformance.raw_connection import Connection
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import PATIENCE_S, expect

USER, PASSWORD = "alice", "pw"
QUOTAS: Final = {
    (("user", "u"),): ("request_percentage", "controller_mutation_rate", "producer_byte_rate", "consumer_byte_rate"),
    (("user", "u"), ("client-id", "c")): ("consumer_byte_rate", "producer_byte_rate"),
    (("client-id", None),): ("producer_byte_rate", "request_percentage", "consumer_byte_rate"),
    (("user", None), ("client-id", None)): ("controller_mutation_rate", "consumer_byte_rate"),
    (("user", "v"),): ("controller_mutation_rate", "request_percentage"),
    (("user", "w"),): ("producer_byte_rate", "controller_mutation_rate"),
    (("ip", "192.0.2.1"),): ("connection_creation_rate",),
}
"""The keys of each entity, in the order in which they are set."""
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
REQUESTS_MIN: Final = 250
"""Of one phase."""
UNSEEN: Final = ("drop.unseen",)
"""Topics that exist, which the user may delete but not describe."""
BROKER_EPOCH_MAX: Final = 1_000
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
        Rule(Operation.DESCRIBE, Kind.TOPIC, "see", PREFIXED),
        Rule(Operation.DELETE, Kind.TOPIC, "drop", PREFIXED),
        Rule(Operation.DESCRIBE, Kind.TOPIC, "drop.unseen", PREFIXED, DENY),
        # An invalid name that the user may describe but not create.
        Rule(Operation.DESCRIBE, Kind.TOPIC, "bad", PREFIXED),
    ),
    "with wide ones and a DENY": (
        Rule(Operation.ALL, Kind.TOPIC, "*"),
        Rule(Operation.ALL, Kind.GROUP, "*"),
        Rule(Operation.ALL, Kind.TRANSACTIONAL_ID, "*"),
        Rule(Operation.WRITE, Kind.TOPIC, "hid", PREFIXED, DENY),
        Rule(Operation.READ, Kind.TOPIC, "hidden", LITERAL, DENY),
        # The topics stay as they are: Metadata of old versions would create the one that is not there.
        Rule(Operation.CREATE, Kind.TOPIC, "none", LITERAL, DENY),
        *(Rule(Operation.DELETE, Kind.TOPIC, name, LITERAL, DENY) for name in CREATED if name not in UNSEEN),
    ),
    "with those of the cluster": (
        Rule(Operation.DESCRIBE, Kind.CLUSTER, "kafka-cluster"),
        Rule(Operation.DESCRIBE_CONFIGS, Kind.CLUSTER, "kafka-cluster"),
    ),
    "with all of the cluster": (
        Rule(Operation.ALL, Kind.CLUSTER, "kafka-cluster"),
        # The topics stay as they are, and so do the ACLs.
        Rule(Operation.CREATE, Kind.CLUSTER, "kafka-cluster", LITERAL, DENY),
        Rule(Operation.DELETE, Kind.CLUSTER, "kafka-cluster", LITERAL, DENY),
    ),
}
"""The ACLs of each phase join those of the phases before."""


def broker_settings(port: int, secured: int) -> dict[str, str]:
    """A listener more, if users log in; on the plain one everybody is a super user."""
    own, more = f"PLAINTEXT://127.0.0.1:{port}", f"USERS://127.0.0.1:{secured}"
    return {
        "listeners": f"{own},CONTROLLER://127.0.0.1:{port + 1},{more}",
        "advertised.listeners": f"{own},{more}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.retention.ms": "-1",  # The records are old: on a slow machine retention would delete them meanwhile.
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
        self._set_quotas()
        return Ids({str(topic.name): topic.topic_id for topic in everything.topics})

    def _set_quotas(self) -> None:
        """Some quotas of several entities, set in an order that is not that of their names."""
        for entity, keys in QUOTAS.items():
            parts = [made(EntityData, entity_type=kind, entity_name=name) for kind, name in entity]
            ops = [made(OpData, key=key, value=1e6 + number, remove=False) for number, key in enumerate(keys)]
            entry = made(RequestEntryData, entity=parts, ops=ops)
            answer = self._connection.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
            assert isinstance(answer, AlterClientQuotasResponse)
            expect(not answer.entries[0].error_code, f"a quota is refused: {answer.entries}")

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


def epoch_of_broker(port: int) -> int:
    """The epoch in which broker 1 is registered: no request tells it, so each is tried that there can be by now."""
    connection = Connection(port, "controller")
    try:
        for epoch in range(BROKER_EPOCH_MAX):
            topics = [AlteredTopic(topic_id=UNKNOWN_ID)]
            answer = connection.ask(AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=topics), 2)
            assert isinstance(answer, AlterPartitionResponse)
            if not answer.error_code:
                return epoch
    finally:
        connection.close()
    raise Failed(f"broker 1 has no epoch below {BROKER_EPOCH_MAX}")


def told(port: int, ids: Ids, questions: Iterable[Asked], *, logs_in: bool = True) -> dict[str, object]:
    """What the user is told, request by request; `closed` if the broker closes the connection instead."""
    found: dict[str, object] = {}
    connection: Connection | None = None
    for number, asked in enumerate(questions):
        if connection is None:
            connection = Connection(port, "client")
            if logs_in:
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
                work.facts[phase] = answers = told(secured, ids, requests(ids))
                expect(len(answers) >= REQUESTS_MIN, f"only {len(answers)} requests were asked")
            controller = broker.port + 1
            questions = of_cluster.of_brokers(ids, epoch_of_broker(controller))
            work.facts["of the controller"] = told(controller, ids, questions, logs_in=False)
        del work.facts[f"{broker.name} ended with status"]  # Java ends with that of the signal

    return story


DEMANDS = "a user without ACLs, with some, and with wide ones and a DENY is told what Apache Kafka tells it"
ACL_SCENARIOS = tuple(DirectoryScenario("acls", DEMANDS, on(side), side) for side in ("moldau", "apache"))
