"""A controller makes itself known to the active one, once in its life."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from broker.quorum_start import controller_registration
from protocol.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener

if TYPE_CHECKING:
    from broker.config.config import Config
    from broker.quorum import Quorum

RETRY_S: Final = 0.5


async def keep_registered(quorum: Quorum, config: Config) -> None:
    """Until the committed metadata shows this incarnation; a controller that leads has written it down itself."""
    while True:
        known = quorum.image.cluster.controllers.get(config.node_id)
        if known is not None and known.incarnation_id == quorum.incarnation_id:
            return
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        quorum.submit(registration_request(config, quorum.incarnation_id), answered.set_result)
        await answered
        await asyncio.sleep(RETRY_S)


def registration_request(config: Config, incarnation_id: bytes) -> ControllerRegistrationRequest:
    """What a leader would write of itself."""
    record = controller_registration(config, incarnation_id)
    return ControllerRegistrationRequest(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        zk_migration_ready=record.zk_migration_ready,
        listeners=[
            Listener(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in record.end_points
        ],
        features=[
            Feature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in record.features
        ],
    )
