"""The byte rate of consumers: asked before records are read, so that a client above its quota gets none (KIP-219)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.protocol.compiler import encoder_of
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from moldau.protocol.primitives import Chunk
from moldau.replication.fetch_plan import PlannedRead

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.security.quotas.throttling import ClientThrottle

SIZE_SIZE = 4
"""Bytes of the size before a frame: they count."""


def fetch_size_max(quota: ClientThrottle, context: RequestContext, size_max: int) -> int:
    """The most bytes of records in one response: never more than the client's quota allows over all windows."""
    most = quota.value_max(context.principal.name, context.client_id or "")
    return size_max if most is None else min(size_max, int(most))


def fetch_throttle_ms(quota: ClientThrottle, context: RequestContext, reads: list[PlannedRead], now_ms: int) -> int:
    """How long the client has to wait, in ms. Where the result is 0, the bytes of the response are counted in
    its rate.
    """
    user, client_id = context.principal.name, context.client_id or ""
    size = response_size(reads, context.version)
    throttle_ms = quota.record(user, client_id, size, now_ms)
    if throttle_ms > 0:
        quota.take_back(user, client_id, size, now_ms)
    return throttle_ms


def response_size(reads: Iterable[PlannedRead], version: int) -> int:
    """The size in bytes of the response for these planned reads, whose records are not read yet."""
    topics: dict[object, FetchableTopicResponse] = {}
    records_size = 0
    for read in reads:
        topic, _ = read.key
        named = topics.get(topic)
        if named is None:
            named = topics[topic] = (
                FetchableTopicResponse(topic=topic)
                if isinstance(topic, str)
                else FetchableTopicResponse(topic_id=topic)
            )
        named.partitions.append(read.data)
        records_size += read.size
    pieces: list[Chunk] = []
    encoder_of(FetchResponse, version)(FetchResponse(responses=list(topics.values())), pieces)
    return SIZE_SIZE + sum(map(len, pieces)) + records_size
