"""Reads data of a cluster for a command: its topics, the offsets of partitions, the records of the metadata topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.broker.cli.client_channels import address_of, client_channels
from moldau.broker.cli.invocation import CommandError
from moldau.broker.config.internal_topics import REMOTE_LOG_METADATA_TOPIC
from moldau.broker.tiering.asking import ask
from moldau.broker.tiering.metadata_reader import decode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition

PURPOSE: Final = "moldau tier"
TIMEOUT_MS: Final = 30_000
READ_SIZE: Final = 4 << 20
CONSUMER: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


class Place(NamedTuple):
    """A partition of a topic as the cluster's metadata describes it."""

    key: RemotePartition
    leader_id: int


class ClusterReader:
    """Reads from the brokers of one cluster. Raises CommandError where they do not respond, or refuse."""

    def __init__(self, bootstrap: str, command_config: str | None = None) -> None:
        self._bootstrap = address_of(bootstrap)
        self._channels = client_channels(PURPOSE, command_config)
        self._addresses: dict[int, tuple[str, int]] = {}
        self.cluster_id = ""
        self.places: list[Place] = []
        """All partitions, by topic and number."""

    def close(self) -> None:
        self._channels.close()

    async def refresh(self) -> None:
        """Request the metadata of the cluster and its topics."""
        response = await self._ask(self._bootstrap, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert isinstance(response, MetadataResponse)
        self.cluster_id = response.cluster_id or ""
        self._addresses = {each.node_id: (each.host, each.port) for each in response.brokers}
        self.places = [
            Place(RemotePartition(topic.name or "", bytes(topic.topic_id), each.partition_index), each.leader_id)
            for topic in sorted(response.topics, key=lambda each: each.name or "")
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]

    async def remote_logs(self) -> dict[RemotePartition, RemoteLog]:
        """The remote logs after a replay of all committed records of the metadata topic."""
        places = [each for each in self.places if each.key.topic == REMOTE_LOG_METADATA_TOPIC]
        if not places:
            raise CommandError(f"the cluster has no topic {REMOTE_LOG_METADATA_TOPIC}: nothing was ever tiered")
        found: dict[RemotePartition, RemoteLog] = {}
        for place in places:
            await self._replay(place, found)
        return found

    async def _replay(self, place: Place, found: dict[RemotePartition, RemoteLog]) -> None:
        name = f"{place.key.topic}-{place.key.partition}"
        start_offset = (await self.offsets([place], EARLIEST))[place.key]
        if start_offset != 0:
            raise CommandError(f"{name} begins at offset {start_offset}: what was before it is not known any more")
        end_offset = (await self.offsets([place], LATEST))[place.key]
        position = 0
        while position < end_offset:
            wanted = FetchPartition(partition=place.key.partition, fetch_offset=position, partition_max_bytes=READ_SIZE)
            request = FetchRequest(
                replica_id=CONSUMER,
                max_wait_ms=1000,
                min_bytes=1,
                max_bytes=READ_SIZE,
                topics=[FetchTopic(topic=place.key.topic, topic_id=place.key.topic_id, partitions=[wanted])],
            )
            response = await self._ask(self._leader(place), request)
            assert isinstance(response, FetchResponse)
            data = response.responses[0].partitions[0]
            self._refuse(data.error_code, f"{name} cannot be read at offset {position}")
            records = data.records
            assert records is None or isinstance(records, bytes | memoryview)
            if not records:
                raise CommandError(f"{name} gave nothing at offset {position}, before its end at {end_offset}")
            try:
                changes, position, unreadable = decode(records, position)
            except MalformedMessage as malformed:
                raise CommandError(f"{name} is damaged at offset {position}: {malformed}") from None
            for offset, reason in unreadable:
                raise CommandError(f"{name}: the record at offset {offset} cannot be read: {reason}")
            for change in changes:
                if change.partition is not None:
                    found.setdefault(change.partition, RemoteLog()).replay(change.change)

    async def offsets(self, places: Iterable[Place], timestamp: int) -> dict[RemotePartition, int]:
        """The offset of each partition for a timestamp, or for a special timestamp; -1 where there is none."""
        by_leader: dict[int, dict[str, list[Place]]] = {}
        for place in places:
            by_leader.setdefault(place.leader_id, {}).setdefault(place.key.topic, []).append(place)
        found: dict[RemotePartition, int] = {}
        for topics in by_leader.values():
            request = ListOffsetsRequest(
                replica_id=CONSUMER,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(partition_index=each.key.partition, timestamp=timestamp)
                            for each in members
                        ],
                    )
                    for name, members in topics.items()
                ],
                timeout_ms=TIMEOUT_MS,
            )
            some = next(iter(topics.values()))[0]
            response = await self._ask(self._leader(some), request)
            assert isinstance(response, ListOffsetsResponse)
            keys = {(each.key.topic, each.key.partition): each.key for members in topics.values() for each in members}
            for topic in response.topics:
                for data in topic.partitions:
                    self._refuse(data.error_code, f"{topic.name}-{data.partition_index}")
                    found[keys[topic.name, data.partition_index]] = data.offset
        return found

    def _leader(self, place: Place) -> tuple[str, int]:
        address = self._addresses.get(place.leader_id)
        if address is None:
            raise CommandError(f"{place.key.topic}-{place.key.partition} has no leader now")
        return address

    def _refuse(self, error_code: int, what: str) -> None:
        if error_code != ErrorCode.NONE:
            raise CommandError(f"{what}: {ErrorCode(error_code).name}")

    async def _ask(self, address: tuple[str, int], request: object) -> object:
        response = await ask(self._channels.to(PURPOSE, *address), request, TIMEOUT_MS)
        if response is None:
            raise CommandError(f"{address[0]}:{address[1]} does not answer")
        return response
