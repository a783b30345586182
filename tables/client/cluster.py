"""A client's view of a cluster: metadata, offsets by time, and requests that are repeated while leaders move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final, NamedTuple, TypeVar

from moldau.protocol.errors import ErrorCode, error_name
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.protocol.schema import ZERO_UUID
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.client.connection import BrokerConnection, Disconnected
from moldau.tables.client.settings import Address, ConnectionSettings
from moldau.tables.refusals import DataLost, Refused, warn

T = TypeVar("T")
EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
"""The timestamp in a ListOffsets request that asks for the end of a log; `EARLIEST_TIMESTAMP` asks for its start."""
BACKOFF_S: Final = 0.1
RETRY_WARNING_DELAY_S: Final = 5.0
"""The time (seconds) for which a request is repeated before the client prints a warning."""
RETRIABLE_ERRORS: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""The error codes after which the client refreshes its metadata and repeats the request."""


class RefusedByBroker(Refused):
    """A broker answered a request with an error code that the client does not retry."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {error_name(code)}")
        self.code = code
        self.what = what


class BrokersUnavailable(Refused):
    """No broker could carry out the request before the timeout."""


class TransientError(Exception):
    """An error that may pass. The client refreshes its metadata and repeats the request."""

    refusal: ClassVar[type[Refused]] = BrokersUnavailable
    """What is raised if the error does not pass before the timeout."""


class LogEndsEarlier(TransientError):
    """The high watermark or the last stable offset is below an offset that was listed as an end before. A new leader
    reaches that offset soon, unless the log was truncated."""

    refusal = DataLost


class RecordsPending(TransientError):
    """The leader has not read the requested records from remote storage yet. It answers a repeated request on the same
    connection once it has them."""


class Throttled(Exception):
    """The broker answered with no more than the time (s) for which it delays a client that exceeds its quota."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"the broker throttles this client for {wait_s:g} s")
        self.wait_s = wait_s


class TopicDescription(NamedTuple):
    """The id of a topic and the leaders of its partitions, from the metadata of the cluster."""

    topic_id: bytes | None
    leaders: Mapping[int, int]
    """The node id of the leader of each partition; -1 if the partition has no leader."""


class Cluster:
    """A client of a cluster, with one connection for each broker. Only one thread may use it."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.cluster_id: str | None = None
        self._addresses: dict[int, Address] = {}
        self._connections: dict[Address, BrokerConnection] = {}
        self._topics: dict[str, TopicDescription] = {}

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicDescription]:
        """Request the ids and the partition leaders of topics. `names`: the topics; None requests all. Topics that do
        not exist are left out. Raises `Refused` if no broker answers."""
        return self.retry("metadata", lambda: self._ask_topics(names))

    def leader_of(self, key: TopicPartition) -> BrokerConnection:
        """The connection to the leader of a partition. Raises `TransientError` if the partition has no leader now,
        and `Disconnected`.
        """
        known = self._topics.get(key[0])
        if known is None:
            known = self._ask_topics([key[0]]).get(key[0])
        leader = -1 if known is None else known.leaders.get(key[1], -1)
        if leader not in self._addresses:
            raise TransientError(f"{key[0]}-{key[1]} has no leader")
        return self.connection(self._addresses[leader])

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic in the metadata that were requested last; None if the topic is not among them."""
        known = self._topics.get(topic)
        return known.topic_id if known else None

    def connection(self, address: Address) -> BrokerConnection:
        """The connection to the broker at an address, which is opened at the first call. Raises `Disconnected`."""
        connection = self._connections.get(address)
        if connection is None:
            try:
                connection = self._connections[address] = BrokerConnection(address, self.settings)
            except Disconnected as problem:
                if address in self.settings.bootstrap:
                    raise
                raise Disconnected(f"{problem}, which is advertised.listeners of a broker") from None
        return connection

    def any_connection(self) -> BrokerConnection:
        """A connection to any broker: the first one that can be reached. Raises `Disconnected`."""
        problem = Disconnected("there is no address")
        for address in [*self._connections, *self._addresses.values(), *self.settings.bootstrap]:
            try:
                return self.connection(address)
            except Disconnected as failed:
                problem = failed
        raise problem

    def retry(self, what: str, attempt: Callable[[], T], timeout_s: float | None = None) -> T:
        """Call `attempt` until it raises none of `TransientError`, `Disconnected` and `Throttled`, and return its
        result. Before each repetition the connections are closed and the metadata are dropped, except after
        `RecordsPending` and `Throttled`.

        `what`: the name of the operation in messages. After `RETRY_WARNING_DELAY_S` a warning is printed. `timeout_s`:
        the time (seconds) for all repetitions, without that for which a broker throttles the client; None uses the
        request timeout of the settings. After it the `refusal` of the last problem is raised: `BrokersUnavailable`, or
        `DataLost` after `LogEndsEarlier`.
        """
        wait_s = timeout_s or self.settings.request_timeout_ms / 1000
        began = time.monotonic()
        deadline = began + wait_s
        while True:
            try:
                return attempt()
            except Throttled as problem:
                if problem.wait_s >= RETRY_WARNING_DELAY_S:
                    warn(f"{what}: a quota of this client is exceeded, and the broker delays its responses")
                time.sleep(problem.wait_s)
                began, deadline = began + problem.wait_s, deadline + problem.wait_s
            except (TransientError, Disconnected) as problem:
                if not isinstance(problem, RecordsPending):
                    self.forget()
                if time.monotonic() + BACKOFF_S > deadline:
                    refusal = problem.refusal if isinstance(problem, TransientError) else BrokersUnavailable
                    raise refusal(f"{what}: {problem}") from None
                if time.monotonic() > began + RETRY_WARNING_DELAY_S:
                    warn(f"{what}: {problem}; it is tried again for up to {wait_s:g} s")
                time.sleep(BACKOFF_S)

    def forget(self) -> None:
        """Close all connections and drop the metadata. The next request fetches them again."""
        self._topics.clear()
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def offsets_at(
        self, keys: Iterable[TopicPartition], timestamp: int, *, is_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Request the offset of each partition for a timestamp (ms): the offset of the first record at or after it, or
        -1 if there is no such record.

        For `EARLIEST_TIMESTAMP` it is the log start offset. For `LATEST_TIMESTAMP` it is the high watermark, or the
        last stable offset if `is_committed`. Raises `Refused`.
        """
        wanted = list(keys)
        return self.retry("offsets", lambda: self._ask_offsets(wanted, timestamp, is_committed))

    def _ask_offsets(
        self, keys: Iterable[TopicPartition], timestamp: int, is_committed: bool
    ) -> dict[TopicPartition, int]:
        by_leader: dict[BrokerConnection, dict[str, list[ListOffsetsPartition]]] = {}
        for topic, partition in keys:
            topics = by_leader.setdefault(self.leader_of((topic, partition)), {})
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            topics.setdefault(topic, []).append(asked)
        found: dict[TopicPartition, int] = {}
        for leader, topics in by_leader.items():
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(is_committed),
                topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            reply = leader.ask(request, ListOffsetsResponse, 7)
            for topic_reply in reply.topics:
                for each in topic_reply.partitions:
                    check_error(each.error_code, f"{topic_reply.name}-{each.partition_index}")
                    found[topic_reply.name, each.partition_index] = each.offset
        return found

    def _ask_topics(self, names: Iterable[str] | None) -> dict[str, TopicDescription]:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        reply = self.any_connection().ask(request, MetadataResponse, 12)
        if self.cluster_id not in (None, reply.cluster_id):
            raise Refused(
                f"kafka.bootstrap.servers: a broker of cluster {reply.cluster_id} answers, not of {self.cluster_id}"
            )
        self.cluster_id = reply.cluster_id
        self._addresses = {each.node_id: Address(each.host, each.port) for each in reply.brokers}
        found = {}
        for each in reply.topics:
            if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or each.name is None:
                continue
            check_error(each.error_code, each.name)
            found[each.name] = TopicDescription(
                None if each.topic_id == ZERO_UUID else bytes(each.topic_id),
                {partition.partition_index: partition.leader_id for partition in each.partitions},
            )
        self._topics.update(found)
        return found


def check_error(code: int, what: str) -> None:
    """Raise `TransientError` or `Refused` if the error code of a response is not 0. `what`: the topic, partition or
    other object that the message names."""
    if code in RETRIABLE_ERRORS:
        raise TransientError(f"{what}: {error_name(code)}")
    if code:
        raise RefusedByBroker(code, what)
