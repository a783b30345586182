"""A controller registers with the active controller, once after each start (KIP-919)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from moldau.broker.metadata.quorum_start import controller_registration

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.metadata.quorum import Quorum

RETRY_S: Final = 0.5


async def keep_registered(quorum: Quorum, config: Config) -> None:
    """Send ControllerRegistration until the committed metadata has this incarnation.

    An active controller writes its own registration itself.
    """
    while True:
        known = quorum.image.cluster.controllers.get(config.node_id)
        if known is not None and known.incarnation_id == quorum.incarnation_id:
            return
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        quorum.submit(controller_registration(config, quorum.incarnation_id), answered.set_result)
        await answered
        await asyncio.sleep(RETRY_S)
