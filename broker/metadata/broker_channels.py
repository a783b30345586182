"""Channels to the other brokers of the cluster, by the ids that the metadata names."""

from __future__ import annotations

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.network.peer_channel import PeerChannel, PeerChannels


def channel_to(
    broker_id: int, purpose: str, cluster: ClusterView, channels: PeerChannels, listener_name: str
) -> PeerChannel | None:
    """The channel to a broker for a purpose; None while its address at the listener is not known."""
    broker = cluster.image.cluster.brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoints.get(listener_name)
    return None if endpoint is None else channels.to(purpose, endpoint.host, endpoint.port)
