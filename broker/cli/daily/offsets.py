"""Asks the leaders of partitions for offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from moldau.broker.cli.daily.client import Client, Partition


def ask_offsets(client: Client, wanted: Mapping[Partition, int], is_committed: bool) -> dict[Partition, int]:
    """Ask the leaders once for the offsets of `Client.offsets`. Raises `TransientError` if leaders move, and
    `Failure`.
    """
    found: dict[Partition, int] = {}
    for leader, keys in client.grouped_by_leader(wanted).items():
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, partition in keys:
            asked = ListOffsetsPartition(partition_index=partition, timestamp=wanted[topic, partition])
            topics.setdefault(topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(is_committed),
            topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
            timeout_ms=client.settings.request_timeout_ms,
        )
        reply = client.ask_broker(leader, request, ListOffsetsResponse, version=10)
        for answer in reply.topics:
            for each in answer.partitions:
                client.check(each.error_code, None, f"{answer.name}-{each.partition_index}")
                found[answer.name, each.partition_index] = each.offset
    return found
