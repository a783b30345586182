"""Brokers in the process, for the daily commands: each request is answered by a function of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import pytest

from moldau.broker.cli.command import main
from moldau.broker.cli.daily import client
from moldau.broker.cli.daily.client import EARLIEST, EARLIEST_LOCAL
from moldau.broker.cli.daily.settings import ClientProperties
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.tables.client.connection import Disconnected
from moldau.tables.client.settings import Address

T = TypeVar("T")
Answer = Callable[[int, Any], object]


class StagedBrokers:
    """A cluster of staged brokers with one topic. Broker n has the address `broker:n`. Metadata and the offsets of
    partitions, from `start` to `end` and locally from `local_start` on, are answered by the stage. All other requests
    are answered by `answers`: functions of the broker's node id and the request, by the type of the request. A function
    may raise `Disconnected`.
    """

    def __init__(
        self, answers: Mapping[type, Answer], *, topic: str = "t", leaders: Iterable[int] = (1,), end: int = 0
    ) -> None:
        self.start = self.local_start = 0
        self.topic = topic
        self.leaders = list(leaders)
        """The leader of each partition, which a test may change."""
        self.end = end
        self.nodes = {*self.leaders}
        self.down: set[int] = set()
        """The brokers that refuse connections and have lost those that there were."""
        self.asked: list[tuple[int, object]] = []
        self._answers = answers

    def connect(self, address: Address, _: object) -> StagedConnection:
        """The stage's `BrokerConnection`."""
        self.check(address)
        return StagedConnection(self, address)

    def check(self, address: Address) -> None:
        if address.port in self.down:
            raise Disconnected(f"{address}: Connection refused")

    def answer(self, node_id: int, request: Any) -> object:
        self.asked.append((node_id, request))
        if isinstance(request, MetadataRequest):
            return self._metadata()
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        return self._answers[type(request)](node_id, request)

    def of(self, kind: type[T]) -> list[tuple[int, T]]:
        """The requests of one type, with the brokers that were asked."""
        return [(node_id, request) for node_id, request in self.asked if isinstance(request, kind)]

    def run(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
        """Run a command against broker 1. Returns its exit status."""
        monkeypatch.setattr(client, "BrokerConnection", self.connect)
        return main([*words, "-b", "broker:1"])

    def client(self, monkeypatch: pytest.MonkeyPatch) -> client.Client:
        """A client that knows broker 1."""
        monkeypatch.setattr(client, "BrokerConnection", self.connect)
        return client.Client(ClientProperties((Address("broker", 1),), {}, 1, "the test"))

    def _metadata(self) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=sorted(self.nodes))
            for index, leader in enumerate(self.leaders)
        ]
        brokers = [MetadataResponseBroker(node_id=each, host="broker", port=each) for each in sorted(self.nodes)]
        topic = MetadataResponseTopic(name=self.topic, topic_id=b"t" * 16, partitions=partitions)
        return MetadataResponse(brokers=brokers, cluster_id="cluster", topics=[topic])

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        known = {EARLIEST: self.start, EARLIEST_LOCAL: self.local_start}
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=known.get(each.timestamp, self.end)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)


class StagedConnection:
    """A connection to a staged broker."""

    def __init__(self, stage: StagedBrokers, address: Address) -> None:
        self.address = address
        self._stage = stage

    def ask(self, request: object, reply: type[T], version_max: int, *, wait_ms: int = 0) -> T:
        self._stage.check(self.address)
        answer = self._stage.answer(self.address.port, request)
        assert isinstance(answer, reply)
        return answer

    def close(self) -> None:
        pass


def fetched(request: FetchRequest, end: int, data: bytes | None = None, error: int = 0) -> FetchResponse:
    """The answer to a Fetch of one topic: `data` in its first partition, and nothing in the others."""
    (topic,) = request.topics
    partitions = [
        PartitionData(
            partition_index=each.partition,
            error_code=error,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=-1 if error else 0,
            records=None if count else data,
        )
        for count, each in enumerate(topic.partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=partitions)])
