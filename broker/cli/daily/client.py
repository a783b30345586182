"""A client of one cluster for one command. It sends requests to any broker, to a given broker, to leaders and to
coordinators.

    Cluster ──▶ BrokerConnection (tables/client/): one for each broker, one request after the other

A request that fails because a leader or coordinator is moving, or because a broker that this client has reached before
is away, is repeated until the timeout. Any other failure raises `Failure` at once.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, TypeVar

from moldau.broker.cli.daily.failures import (
    EXIT_DENIED,
    EXIT_UNREACHABLE,
    Failure,
    WrongArguments,
    no_partition,
    raise_if_error,
    status_of,
    unknown_failure,
)
from moldau.broker.cli.daily.settings import ClientProperties
from moldau.protocol.errors import ErrorCode, error_name
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.schema import spec_of
from moldau.tables.client.cluster import BACKOFF_S, RETRIABLE_ERRORS, TransientError
from moldau.tables.client.connection import (
    CONNECTION_CLOSED_TEXT,
    BrokerConnection,
    BrokerNotTrusted,
    Disconnected,
    HandshakeFailed,
)
from moldau.tables.client.settings import Address
from moldau.tables.refusals import Refused

T = TypeVar("T")
Partition = tuple[str, int]
EARLIEST: Final = -2
LATEST: Final = -1
EARLIEST_LOCAL: Final = -4
GROUP: Final = 0
"""The key type in FindCoordinator for groups."""
SETTLING: Final = RETRIABLE_ERRORS - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
"""Errors after which a request is repeated, because leaders or coordinators are moving. The error for an unknown topic
is not one of them.
"""
CLOSED_MAX: Final = 3
"""The number of connections in a row that the broker closes at their first request, after which the command fails. A
broker that restarts does not close so many.
"""
HOST_MISMATCHES: Final = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""


class BrokerAway(Failure):
    """A broker that was reached before cannot be reached. It may restart, or the cluster may give its partitions to
    other brokers.
    """


class Client:
    """A client of a cluster for one command. Its calls block."""

    def __init__(self, settings: ClientProperties) -> None:
        self.settings = settings
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self._connections: dict[Address, BrokerConnection] = {}
        self._reached: set[Address] = set()
        """The brokers to which this client has had a connection."""
        self._answered: set[BrokerConnection] = set()
        """The connections on which a request was answered."""
        self._closed_at_once = 0
        """The number of connections, one after the other, that the broker closed at their first request."""
        self._leaders: dict[Partition, int] = {}
        self._topic_ids: dict[str, bytes] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forget()

    def forget(self) -> None:
        """Close the connections and drop the metadata. The next request connects again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._answered.clear()
        self._leaders.clear()

    def ask(self, request: object, reply: type[T], *, version: int | None = None, wait_ms: int = 0) -> T:
        """Send a request to any broker, and return the reply. The version is the newest that both sides know, but at
        most `version`. `wait_ms` is the time for which the broker may hold the request. Raises `Failure`, and
        `Disconnected` if the connection is lost.
        """
        return self._on(self._any(), request, reply, version, wait_ms)

    def ask_broker(
        self, node_id: int, request: object, reply: type[T], *, version: int | None = None, wait_ms: int = 0
    ) -> T:
        """Send a request to the broker `node_id`, and return the reply, as `ask` does."""
        if node_id not in self.brokers:
            self.topics([])
        address = self.brokers.get(node_id)
        if address is None:
            raise unknown_failure("broker", str(node_id), map(str, self.brokers))
        return self._on(self._to(address), request, reply, version, wait_ms)

    def retry(self, what: str, attempt: Callable[[], T]) -> T:
        """Call `attempt` and return its result. It is called again, until the timeout, while it raises `TransientError`
        or `BrokerAway`, or loses the connection. So it must look the leader or coordinator up each time. Raises
        `Failure`; `what` names the subject in its message.
        """
        deadline = time.monotonic() + self.settings.timeout_s
        while True:
            try:
                return attempt()
            except (TransientError, Disconnected, BrokerAway) as problem:
                self.forget()
                if time.monotonic() + BACKOFF_S > deadline:
                    if isinstance(problem, BrokerAway):
                        raise
                    raise Failure(
                        f"{what}: {problem}, for {self.settings.timeout_s:g} s", status=EXIT_UNREACHABLE
                    ) from None
                time.sleep(BACKOFF_S)

    # Topics

    def topics(self, names: Iterable[str] | None) -> dict[str, MetadataResponseTopic]:
        """Return the metadata of topics by name; of all topics if `names` is None. A topic that does not exist comes
        with its error code.
        """
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        reply = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse, version=12)
        self.cluster_id, self.controller_id = reply.cluster_id, reply.controller_id
        self.brokers = {each.node_id: Address(each.host, each.port) for each in reply.brokers}
        self.racks = {each.node_id: each.rack for each in reply.brokers}
        found = {each.name: each for each in reply.topics if each.name is not None}
        for name, topic in found.items():
            self._topic_ids[name] = bytes(topic.topic_id)
            self._leaders |= {(name, each.partition_index): each.leader_id for each in topic.partitions}
        return found

    def known_topics(self, names: Iterable[str], otherwise: str = "") -> dict[str, MetadataResponseTopic]:
        """Return the metadata of topics that must exist. Raises `Failure` for one that does not: its message has the
        most similar name of a topic, or the text `otherwise` if no name is similar.
        """
        wanted = list(dict.fromkeys(names))
        found = self.retry("the topics", lambda: self._settled(wanted))
        for name in wanted:
            code = found[name].error_code if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise unknown_failure("topic", name, self.topics(None), otherwise)
            raise_if_error(code, None, f"topic {name}")
        return {name: found[name] for name in wanted}

    def _settled(self, names: list[str]) -> dict[str, MetadataResponseTopic]:
        found = self.topics(names)
        for name, topic in found.items():
            raise_if_transient(topic.error_code, f"topic {name}")
        return found

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic in the metadata that was received last. Raises KeyError if no metadata had the topic."""
        return self._topic_ids[topic]

    def leader_of(self, key: Partition) -> int:
        """The node id of a partition's leader. Raises `TransientError` if the partition has none at present, and
        `Failure` if the topic has no such partition.
        """
        if key not in self._leaders:
            topic = self.topics([key[0]]).get(key[0])
            if topic is not None and topic.partitions and key not in self._leaders:
                raise no_partition(*key, len(topic.partitions))
        leader = self._leaders.get(key, -1)
        if leader not in self.brokers:
            raise TransientError(f"{key[0]}-{key[1]} has no leader")
        return leader

    def grouped_by_leader(self, keys: Iterable[Partition]) -> dict[int, list[Partition]]:
        """Group partitions by the node ids of their leaders. Raises `TransientError` if a partition has no leader at
        present.
        """
        found: dict[int, list[Partition]] = {}
        for key in keys:
            found.setdefault(self.leader_of(key), []).append(key)
        return found

    def offsets(self, wanted: Mapping[Partition, int], *, is_committed: bool = False) -> dict[Partition, int]:
        """For each partition, return the offset of the first record at or after a timestamp (ms), or -1 if there is
        none. The timestamp `EARLIEST` gives the log start offset, `EARLIEST_LOCAL` the first offset that is not in
        remote storage alone, and `LATEST` the high watermark, or the last stable offset if `is_committed`. Raises
        `Failure`.
        """
        from moldau.broker.cli.daily.offsets import ask_offsets

        return self.retry("the offsets", lambda: ask_offsets(self, wanted, is_committed))

    # Groups

    def coordinator_of(self, group: str) -> int:
        """The node id of a group's coordinator. Raises `TransientError` while there is no coordinator, and `Failure`
        for other errors.
        """
        from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        request = FindCoordinatorRequest(key=group, key_type=GROUP, coordinator_keys=[group])
        reply = self.ask(request, FindCoordinatorResponse)
        (found,) = reply.coordinators or (reply,)
        self.check(found.error_code, found.error_message, f"group {group}")
        if found.node_id not in self.brokers:
            self.topics([])
        return found.node_id

    def ask_coordinator(self, group: str, request: object, reply: type[T], *, version: int | None = None) -> T:
        """Send a request to the coordinator of a group. Raises `TransientError` while there is no coordinator, and
        `Failure` for other errors.
        """
        return self.ask_broker(self.coordinator_of(group), request, reply, version=version)

    def check(self, code: int, said: str | None, what: str) -> None:
        """Raise an error if `code` in a response is not 0: `TransientError` for an error that ends once leaders and
        coordinators have moved, `Failure` for any other. `said` is the broker's message; `what` names the subject of
        the request.
        """
        raise_if_transient(code, what)
        raise_if_error(code, said, what)

    # Connections

    def _any(self) -> BrokerConnection:
        problem: Failure | None = None
        for address in dict.fromkeys([*self._connections, *self.brokers.values(), *self.settings.bootstrap]):
            try:
                return self._to(address)
            except Failure as failed:
                if failed.status != EXIT_UNREACHABLE:
                    raise
                if problem is None or isinstance(failed, BrokerAway):
                    problem = failed
        assert problem is not None
        raise problem

    def _to(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self._connect(address)
            self._reached.add(address)
        return connection

    def _connect(self, address: Address) -> BrokerConnection:
        try:
            return BrokerConnection(address, self.settings)
        except BrokerNotTrusted as refusal:
            remedy = "ssl.truststore.location names the authorities that are"
            if refusal.problem.verify_code in HOST_MISMATCHES:
                remedy = "--bootstrap-server has to have a name that is in it"
            raise Failure(f"{refusal}; {remedy}", status=EXIT_DENIED) from None
        except HandshakeFailed as problem:
            raise Failure(
                f"{address}: the TLS handshake failed ({problem.reason}): {self._fits}",
                status=EXIT_UNREACHABLE,
            ) from None
        except Refused as problem:
            raise Failure(str(problem), status=EXIT_DENIED) from None
        except (OSError, MalformedMessage) as problem:
            raise self._unreachable(address, problem) from None

    def _unreachable(self, address: Address, problem: Exception) -> Failure:
        said = str(problem).removeprefix(f"{address}: ")
        said = said.partition("] ")[2] or said
        if "timed out" in said:
            said = f"timed out after {self.settings.timeout_s:g} s"
        if "closed" in said or "reset" in said or isinstance(problem, MalformedMessage) or "bytes" in said:
            remedy = self._fits
        elif address not in self.settings.bootstrap:
            remedy = "it is advertised.listeners of a broker: does that run, and does this machine reach it?"
        elif "refused" in said:
            remedy = "is a node running there, and is --bootstrap-server right?"
        else:
            remedy = "is --bootstrap-server right?"
        kind = BrokerAway if address in self._reached else Failure
        return kind(f"no broker answers at {address} ({said}): {remedy}", status=EXIT_UNREACHABLE)

    @property
    def _fits(self) -> str:
        return f"does security.protocol={self.settings.protocol} fit this listener?"

    def explain_problem(self, problem: Exception) -> str:
        """Describe a lost connection or a transient error for the user. If the broker closed the connection at its
        first request, the text suggests setting security.protocol, because a listener with SASL closes the connection
        of a client that does not log in.
        """
        return f"{problem}: {self._fits}" if self._closed_at_once else str(problem)

    def _on(
        self, connection: BrokerConnection, request: object, reply: type[T], version: int | None, wait_ms: int
    ) -> T:
        spec = spec_of(type(request))
        is_first = connection not in self._answered
        try:
            answer = connection.ask(request, reply, spec.versions.last if version is None else version, wait_ms=wait_ms)
            self._answered.add(connection)
            self._closed_at_once = 0
            return answer
        except Refused:
            name = type(request).__name__.removesuffix("Request")
            raise Failure(
                f"{connection.address} has no version of {name} that is spoken here: is it a listener of brokers?",
                status=status_of(ErrorCode.UNSUPPORTED_VERSION),
            ) from None
        except struct.error:
            name = type(request).__name__.removesuffix("Request")
            raise WrongArguments(f"a number is too large: {name} has no room for it") from None
        except MalformedMessage as problem:
            raise Failure(f"{connection.address}: an answer that cannot be read: {problem}") from None
        except Disconnected as problem:
            self._connections.pop(connection.address, None)
            if is_first and CONNECTION_CLOSED_TEXT in str(problem):
                self._closed_at_once += 1
            if self._closed_at_once >= CLOSED_MAX:
                raise Failure(self.explain_problem(problem), status=EXIT_UNREACHABLE) from None
            raise


def raise_if_transient(code: int, what: str) -> None:
    """Raise `TransientError` for an error code that ends once leaders and coordinators have moved."""
    if code in SETTLING:
        raise TransientError(f"{what}: {error_name(code)}")
