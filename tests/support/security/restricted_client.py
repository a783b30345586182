"""A client with few permissions in a simulated cluster: each answer is what the ACLs of the deciding node say.

It keeps its connections while ACLs change, so that what a node remembers of earlier decisions counts too. Some requests
are decided by the broker that is asked, others by the active controller. An answer that follows from no ACLs that the
deciding node had between request and response is a complaint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_acls import CreateAclsRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.security.access import CLUSTER_NAME
from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from moldau.security.principal import Principal
from tests.support.cluster import Cluster
from tests.support.cluster_clients import Bootstrap, within
from tests.support.node import Closed, batch, fetch_request, produce_request
from tests.support.security.acl_administrator import GROUP, POOL, TOPIC, creation_of
from tests.support.security.acl_views import AclView, Wanted, decisions_of_broker, decisions_of_controller

REFUSALS: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
UNDECIDED: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The errors that say nothing about permissions."""
NAMES: Final = (TOPIC, f"{TOPIC}-2", "other")
"""Topics, of which the first one exists."""
LEADER_SHARE: Final = 0.6
"""The share of connections to the leader of the topic."""
REPEATED_MAX: Final = 4
"""Requests of one kind, one after the other."""
PRODUCED_SHARE: Final = 0.25
"""The share of series in which the client produces."""
PRODUCED: Final = 20
"""The requests of such a series: brokers shorten the way of a produce that comes again."""
PAUSE_S: Final = 0.3


class Attempt(NamedTuple):
    """One request and the permission that it needs."""

    wanted: Wanted
    request: object
    version: int
    error_of: Callable[[Any], int]
    is_decided_by_controller: bool = False


class Connection(Protocol):
    """A connection whose client has authenticated."""

    async def ask(self, request: object, version: int) -> Any:
        """Raises `Closed`."""

    def close(self) -> None: ...


Opener = Callable[[int], Awaitable[Connection]]
"""Connects to a node as the client. Raises `Closed`."""


def produced(name: str) -> Attempt:
    wanted = Wanted(Op.WRITE, Kind.TOPIC, name)
    request = produce_request(name, batch("guarded"), acks=1)
    return Attempt(wanted, request, 9, lambda reply: reply.responses[0].partition_responses[0].error_code)


def fetched(name: str) -> Attempt:
    return Attempt(Wanted(Op.READ, Kind.TOPIC, name), fetch_request([(name, 0, 0)], max_bytes=200), 11, _fetch_error)


def fetched_as_follower(name: str) -> Attempt:
    request = fetch_request([(name, 0, 0)], max_bytes=200)
    request.replica_id = 1
    return Attempt(Wanted(Op.CLUSTER_ACTION, Kind.CLUSTER, CLUSTER_NAME), request, 11, _fetch_error)


def _fetch_error(reply: Any) -> int:
    error: int = reply.responses[0].partitions[0].error_code
    return error


def found_end(name: str) -> Attempt:
    topic = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
    return Attempt(
        Wanted(Op.DESCRIBE, Kind.TOPIC, name), request, 5, lambda reply: reply.topics[0].partitions[0].error_code
    )


def found_coordinator(name: str) -> Attempt:
    wanted = Wanted(Op.DESCRIBE, Kind.GROUP, GROUP)
    return Attempt(wanted, FindCoordinatorRequest(key=GROUP, key_type=0), 3, lambda reply: reply.error_code)


def created_topic(name: str) -> Attempt:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=2000, validate_only=True)
    wanted = Wanted(Op.CREATE, Kind.TOPIC, name)
    return Attempt(wanted, request, 7, lambda reply: reply.topics[0].error_code, is_decided_by_controller=True)


def created_acl(name: str) -> Attempt:
    """No ACL of simulations allows it."""
    request = CreateAclsRequest(creations=[creation_of(POOL[0])])
    wanted = Wanted(Op.ALTER, Kind.CLUSTER, CLUSTER_NAME)
    return Attempt(wanted, request, 3, lambda reply: reply.results[0].error_code, is_decided_by_controller=True)


Making = Callable[[str], Attempt]
OF_CONTROLLERS: Final[Sequence[Making]] = (created_topic, created_topic, created_acl)
OF_BROKERS: Final[Sequence[Making]] = (
    *(produced, fetched, fetched_as_follower, found_end, found_coordinator),
    *OF_CONTROLLERS,
)


class RestrictedClient:
    def __init__(
        self,
        principal: Principal,
        bootstrap: Bootstrap,
        cluster: Cluster,
        connect: Opener,
        complaints: list[str],
        makings: Sequence[Making] = OF_BROKERS,
        *,
        is_enveloped: bool = False,
    ) -> None:
        """`is_enveloped`: it asks controllers, in Envelopes, so that the node that answers is the one that decides."""
        self.principal = principal
        self._bootstrap = bootstrap
        self._cluster = cluster
        self._connect = connect
        self._complaints = complaints
        self._makings = makings
        self._is_enveloped = is_enveloped
        self.judged = {True: 0, False: 0}
        """The number of answers that were judged, by the decision."""

    @property
    def node_ids(self) -> list[int]:
        """The nodes that it asks."""
        return self._bootstrap.node_ids

    async def work(self, is_ended: Callable[[], bool], pause_s: float = PAUSE_S) -> None:
        """`pause_s`: at most, between two requests."""
        while not is_ended():
            try:
                node_id = await self._next_node()
                connection = await self._connect(node_id)
                try:
                    await self._converse(connection, node_id, is_ended, pause_s)
                finally:
                    connection.close()
            except Closed:
                await self._bootstrap.back_off()

    async def _next_node(self) -> int:
        random = self._bootstrap.random
        node_id = random.choice(self.node_ids)
        if produced in self._makings and random.random() < LEADER_SHARE:
            leader_id, _ = await self._bootstrap.replicas((TOPIC, 0))
            node_id = leader_id if leader_id > 0 else node_id
        return node_id

    async def _converse(
        self, connection: Connection, node_id: int, is_ended: Callable[[], bool], pause_s: float
    ) -> None:
        random = self._bootstrap.random
        for _ in range(random.randint(1, 5)):
            attempt, count = random.choice(self._makings)(random.choice(NAMES)), random.randint(1, REPEATED_MAX)
            if produced in self._makings and random.random() < PRODUCED_SHARE:
                attempt, count = produced(TOPIC), PRODUCED
            for _ in range(count):
                await self._attempt(connection, node_id, attempt)
                if is_ended():
                    return
                await asyncio.sleep(random.random() * pause_s)

    async def try_all(self, node_id: int) -> None:
        """Each request once, of one node. Raises `Closed`."""
        connection = await self._connect(node_id)
        try:
            for making in dict.fromkeys(self._makings):
                await self._attempt(connection, node_id, making(NAMES[0]))
        finally:
            connection.close()

    async def _attempt(self, connection: Connection, node_id: int, attempt: Attempt) -> None:
        before = AclView.of(self._cluster)
        try:
            reply = await within(connection.ask(attempt.request, attempt.version))
        except TimeoutError as error:
            raise Closed from error
        code = ErrorCode(attempt.error_of(reply))
        if code in UNDECIDED:
            return
        after, is_allowed = AclView.of(self._cluster), code not in REFUSALS
        if self._is_enveloped and before.is_led_elsewhere(after, node_id):
            self._complaints.append(f"node {node_id} decided for {self.principal} ({code.name}), and does not lead")
        if attempt.is_decided_by_controller:
            right = decisions_of_controller(before, after, self.principal, attempt.wanted)
        else:
            right = decisions_of_broker(before, after, node_id, self.principal, attempt.wanted)
        if right is None:
            return
        self.judged[is_allowed] += 1
        if is_allowed not in right:
            wanted = attempt.wanted
            self._complaints.append(
                f"{self.principal} was {'allowed' if is_allowed else 'denied'} {wanted.operation.name} of"
                f" {wanted.kind.name} {wanted.name} by node {node_id} ({code.name}): its ACLs say otherwise"
            )
