"""A request to another broker, as an awaitable."""

from __future__ import annotations

import asyncio

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.network.peer_channel import NoResponse, PeerChannel, PeerChannels
from moldau.protocol.messages.fetch import FetchResponse


def channel_to(
    broker_id: int, purpose: str, cluster: ClusterView, channels: PeerChannels, listener_name: str
) -> PeerChannel | None:
    """The channel to a broker for a purpose; None while its address is not known."""
    broker = cluster.image.cluster.brokers.get(broker_id)
    endpoint = broker.endpoints.get(listener_name) if broker is not None else None
    return None if endpoint is None else channels.to(purpose, endpoint.host, endpoint.port)


async def ask(channel: PeerChannel, request: object, timeout_ms: int) -> object | None:
    """Send a request and await its response; None where no response came.

    Records in the response are copied, because the channel reuses their memory.
    """
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def take(response: object) -> None:
        if not answered.done():
            _keep_records(response)
            answered.set_result(response)

    channel.ask(request, take, timeout_ms)
    response = await answered
    return None if isinstance(response, NoResponse) else response


def _keep_records(response: object) -> None:
    if isinstance(response, FetchResponse):
        for topic in response.responses:
            for data in topic.partitions:
                if isinstance(data.records, memoryview):
                    data.records = bytes(data.records)
