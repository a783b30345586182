"""A request to another broker, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.metadata.cluster_view import ClusterView
from broker.network.peer_channel import NoResponse, PeerChannel, PeerChannels


def channel_to(
    broker_id: int, purpose: str, cluster: ClusterView, channels: PeerChannels, listener_name: str
) -> PeerChannel | None:
    """The channel to a broker for a purpose; None while its address is not known."""
    broker = cluster.image.cluster.brokers.get(broker_id)
    endpoint = broker.endpoints.get(listener_name) if broker is not None else None
    return None if endpoint is None else channels.to(purpose, endpoint.host, endpoint.port)


def nothing_to_keep(response: object) -> None:
    """A response without views into the receive buffer."""


async def ask(
    channel: PeerChannel, request: object, timeout_ms: int, keep: Callable[[object], None] = nothing_to_keep
) -> object | None:
    """The response; None where none came.

    The receive buffer of the channel is valid during its callback only, which is over when the caller goes on. `keep`
    is called in time, and copies what the response has in the buffer.
    """
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def take(response: object) -> None:
        if not answered.done():
            if not isinstance(response, NoResponse):
                keep(response)
            answered.set_result(response)

    channel.ask(request, take, timeout_ms)
    response = await answered
    return None if isinstance(response, NoResponse) else response
