"""A group without members that commits one offset of topic `t`, and its coordinator."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support import coordinators
from tests.support.cluster import Cluster
from tests.support.node import Closed

GROUP = "g"
LOST = (OSError, Closed, TimeoutError)


async def ask(cluster: Cluster, node_id: int, request: object, version: int) -> Any:
    client = await cluster.connect(node_id)
    try:
        return await asyncio.wait_for(client.ask(request, version), 2)
    finally:
        client.close()


async def coordinator(
    cluster: Cluster, asked: int | None = None, key: str = GROUP, key_type: int = coordinators.GROUP
) -> int:
    """The coordinator's node id, by one node or by the first that knows it; -1 if no node does."""
    for node in cluster.nodes.values():
        if node.is_up and asked in (None, node.id):
            with suppress(*LOST):
                found = await coordinators.coordinator_of(partial(ask, cluster, node.id), key, key_type)
                if found >= 0:
                    return found
    return -1


def commit_request(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def offset_request() -> OffsetFetchRequest:
    return OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])


async def commit(cluster: Cluster, offset: int) -> None:
    """Commit until it is acknowledged."""
    request = commit_request(offset)
    while True:
        node_id = await coordinator(cluster)
        if node_id > 0:
            try:
                reply = await ask(cluster, node_id, request, 8)
                if reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    return
            except LOST:
                pass
        await asyncio.sleep(0.05)


async def committed(cluster: Cluster) -> int:
    """The committed offset, once a coordinator responds."""
    request = offset_request()
    while True:
        node_id = await coordinator(cluster)
        if node_id > 0:
            try:
                reply = await ask(cluster, node_id, request, 7)
                if reply.error_code == ErrorCode.NONE:
                    offset: int = reply.topics[0].partitions[0].committed_offset
                    return offset
            except LOST:
                pass
        await asyncio.sleep(0.05)
