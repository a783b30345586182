"""A broker in the process that leads one partition, for the clients of `moldau.tables.client`: it answers Fetch
requests one after the other as a test says.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

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
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.client import cluster
from moldau.tables.client.settings import Address, ClientSettings

T = TypeVar("T")
TOPIC_ID = b"t" * 16
SETTINGS = ClientSettings((Address("broker", 1),), request_timeout_ms=2_000)
EARLIEST_LOCAL = -4


class ScriptedLeader:
    """The leader of orders-0, whose log ends at `end`. It is at once its cluster, its only connection and its clock: a
    wait of the client takes no time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, end: int, local_start: int = 0) -> None:
        self.answers: list[FetchResponse] = []
        """The answers to the next Fetch requests; the last one is repeated."""
        self.local_start = local_start
        self.list_offsets_version = 11
        self.fetched_offsets: list[int] = []
        self.connection_count = 0
        self.now_s = 0.0
        self._end = end
        monkeypatch.setattr(cluster, "BrokerConnection", self._connect)
        monkeypatch.setattr(cluster, "time", types.SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep))

    def part(self, records: bytes = b"", *, end: int | None = None) -> FetchResponse:
        """The answer to a Fetch with these batches, and `end` as high watermark and last stable offset."""
        end = self._end if end is None else end
        data = PartitionData(partition_index=0, high_watermark=end, last_stable_offset=end, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[data])])

    def ask(self, request: object, reply: type[T], version_max: int, *, wait_ms: int = 0) -> T:
        self.now_s += wait_ms / 1000
        answer = self._answer(request)
        assert isinstance(answer, reply)
        return answer

    def version_of(self, api_key: int, version_max: int) -> int:
        return min(version_max, self.list_offsets_version if api_key == 2 else version_max)

    def close(self) -> None: ...

    def _connect(self, *_: object) -> ScriptedLeader:
        self.connection_count += 1
        return self

    def _sleep(self, wait_s: float) -> None:
        self.now_s += wait_s

    def _answer(self, request: object) -> object:
        if isinstance(request, FetchRequest):
            self.fetched_offsets.append(request.topics[0].partitions[0].fetch_offset)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(request, ListOffsetsRequest):
            assert request.topics[0].partitions[0].timestamp == EARLIEST_LOCAL
            offsets = [ListOffsetsPartitionResponse(partition_index=0, offset=self.local_start)]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=offsets)])
        assert isinstance(request, MetadataRequest)
        partition = MetadataResponsePartition(partition_index=0, leader_id=1)
        topic = MetadataResponseTopic(name="orders", topic_id=TOPIC_ID, partitions=[partition])
        broker = MetadataResponseBroker(node_id=1, host="broker", port=1)
        return MetadataResponse(brokers=[broker], cluster_id="cluster", topics=[topic])


def batches(offsets: Iterable[int]) -> bytes:
    """Batches of one record each, at these offsets."""
    records: Sequence[Record] = [Record(b"k", b"v", 1)]
    return b"".join(build_batch(records, base_offset=offset) for offset in offsets)
