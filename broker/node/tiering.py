"""The composition of tiered storage in a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.node.node import Node
    from moldau.broker.tiering.tiering import Tiering


def compose_tiering(node: Node) -> Tiering | None:
    """Compose tiered storage.

    None where remote.log.storage.system.enable is off, and on a node that is a controller alone. Raises
    `RemoteStorageRefused`.
    """
    config = node.config
    if not config.is_broker or not config.flag("remote.log.storage.system.enable"):
        return None
    from moldau.broker.tiering.metadata_reader import MetadataPorts
    from moldau.broker.tiering.tiering import Tiering, TieringPorts

    metadata = MetadataPorts(
        node.node_id,
        node.environment,
        node.tasks.spawn,
        node.cluster,
        node.channels,
        node.replicas,
        config.inter_broker_listener_name,
    )
    tiering = Tiering(TieringPorts(metadata, node.settings, node.flusher, node.topics))
    node.cleaner.remote = tiering.cleaner
    node.fetchers.remote_state = tiering.follower_state
    return tiering
