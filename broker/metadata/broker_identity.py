"""The contents of a broker's registration, and its heartbeat interval."""

from __future__ import annotations

from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.metadata.quorum_start import SECURITY_PROTOCOL_IDS
from moldau.broker.metadata.registration import BrokerIdentity
from moldau.kraft.features import SUPPORTED_FEATURES
from moldau.protocol.messages import broker_registration

HEARTBEATS_PER_FENCE: Final = 10
"""The number of heartbeats in moldau.broker.silence.fence.ms, so that a shorter stall does not fence the broker."""


def heartbeat_ms(config: Config) -> int:
    """The interval between heartbeats."""
    interval_ms = config.integer("broker.heartbeat.interval.ms")
    fence_ms = config.integer("moldau.broker.silence.fence.ms")
    return min(interval_ms, max(1, fence_ms // HEARTBEATS_PER_FENCE)) if fence_ms else interval_ms


def broker_identity(
    config: Config, cluster_id: str, incarnation_id: bytes, directory_ids: list[bytes], previous_epoch: int
) -> BrokerIdentity:
    """The identity of this broker.

    `directory_ids`: the log directories that are online. `previous_epoch`: the broker epoch of the last process if that
    ended without a loss; -1 otherwise.
    """
    return BrokerIdentity(
        node_id=config.node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation_id,
        rack=config.text_or_none("broker.rack"),
        listeners=[
            broker_registration.Listener(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=SECURITY_PROTOCOL_IDS[each.security_protocol],
            )
            for each in config.advertised_listeners
        ],
        features=[
            broker_registration.Feature(name=name, min_supported_version=first, max_supported_version=last)
            for name, (first, last) in SUPPORTED_FEATURES.items()
            if last > 0
        ],
        directory_ids=directory_ids,
        previous_epoch=previous_epoch,
    )
