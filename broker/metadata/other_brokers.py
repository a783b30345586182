"""Sends requests to the other brokers of the cluster, by broker id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.network.peer_channel import NoResponseReason, PeerChannel, PeerChannels, ResponseCallback

T = TypeVar("T")


class OtherBrokers:
    """Sends requests to the inter-broker listeners of brokers, by broker id. The broker may also be this one."""

    def __init__(self, cluster: ClusterView, channels: PeerChannels, listener_name: str, timeout_ms: int) -> None:
        """`timeout_ms`: the timeout of a request for which the caller gives none."""
        self._cluster = cluster
        self._channels = channels
        self._listener_name = listener_name
        self._timeout_ms = timeout_ms

    def channel(self, broker_id: int, purpose: str) -> PeerChannel | None:
        """The channel to a broker for one purpose (each purpose has its own connection); None while the metadata has no
        address of the broker.
        """
        broker = self._cluster.image.cluster.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoints.get(self._listener_name)
        return None if endpoint is None else self._channels.to(purpose, endpoint.host, endpoint.port)

    def ask(
        self,
        broker_id: int,
        purpose: str,
        request: object,
        reply: ResponseCallback,
        timeout_ms: int | None = None,
        version: int | None = None,
    ) -> None:
        """Send a request, in the newest version unless one is named. `reply` is called later, never within this call,
        with the response or a `NoResponseReason`.
        """
        channel = self.channel(broker_id, purpose)
        if channel is None:
            self._channels.loop.call_soon(reply, NoResponseReason.NO_ADDRESS)
        else:
            channel.ask(request, reply, self._timeout_ms if timeout_ms is None else timeout_ms, version)

    async def read(self, broker_id: int, purpose: str, request: object, reading: Callable[[object], T]) -> T:
        """Send a request, wait for the response, and return what `reading` makes of it. `reading` gets the response, or
        a `NoResponseReason`, and has to copy the bytes that it keeps.
        """
        read: asyncio.Future[T] = self._channels.loop.create_future()

        def reply(response: object) -> None:
            if not read.done():
                read.set_result(reading(response))

        self.ask(broker_id, purpose, request, reply)
        return await read
