"""A broker without a process: it registers and sends heartbeats, so that the controller has a broker for partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.kraft.features import SUPPORTED_FEATURES
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tests.support.cluster import CLUSTER_ID
from tests.support.cluster_clients import Bootstrap, Told
from tests.support.node import PORT, Closed

BEAT_S: Final = 0.1
HOLDS_ALL: Final = 1 << 40
"""An offset of the metadata that no log reaches: what it would have to have read it has read."""
LEAVES: Final = 0.02
"""How often it is replaced by another incarnation of itself."""
PAUSES: Final = 0.03
"""How often it is silent for as long as a session."""
SILENCE_S: Final = 3.0
UNREGISTERED: Final = -1


class Blocks:
    """The producer ids that were handed out: no block twice, and none before that is committed."""

    def __init__(self, complaints: list[str], told: Told) -> None:
        self._complaints = complaints
        self._told = told
        self._given: set[int] = set()

    def add(self, first: int, size: int, bootstrap: Bootstrap) -> None:
        if first in self._given:
            self._complaints.append(f"the producer ids from {first} on were handed out twice")
        self._given.add(first)
        self._told(bootstrap, f"producer ids from {first} on", lambda image: image.next_producer_id >= first + size)


class Phantom:
    def __init__(self, broker_id: int, bootstrap: Bootstrap, blocks: Blocks, told: Told) -> None:
        self.id = broker_id
        self._told = told
        self._bootstrap = bootstrap
        self._blocks = blocks
        self._epoch = UNREGISTERED

    async def work(self, is_ended: Callable[[], bool]) -> None:
        random = self._bootstrap.random
        while not is_ended():
            try:
                if self._epoch == UNREGISTERED or random.random() < LEAVES:
                    await self._register()
                else:
                    await self._beat()
                    await self._allocate()
            except Closed:
                await self._bootstrap.back_off()
            await asyncio.sleep(SILENCE_S if random.random() < PAUSES else BEAT_S * random.random() * 2)

    async def _register(self) -> None:
        """While its former incarnation counts as alive it is refused."""
        random = self._bootstrap.random
        request = BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=random.randbytes(16),
            listeners=[Listener(name="PLAINTEXT", host=f"phantom-{self.id}", port=PORT, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in SUPPORTED_FEATURES.items()
                if last > 0
            ],
            log_dirs=[self.id.to_bytes(16, "big")],
            previous_broker_epoch=self._epoch,
        )
        reply = await self._bootstrap.ask_any(request, 4)
        if reply.error_code == ErrorCode.NONE:
            self._epoch = epoch = reply.broker_epoch
            self._told(
                self._bootstrap, f"epoch {epoch} of broker {self.id}", lambda image: self._is_known(image, epoch)
            )

    def _is_known(self, image: MetadataImage, epoch: int) -> bool:
        known = image.cluster.brokers.get(self.id)
        return known is not None and known.epoch >= epoch

    async def _beat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.id,
            broker_epoch=self._epoch,
            current_metadata_offset=HOLDS_ALL,
            want_fence=False,
            want_shut_down=False,
        )
        reply = await self._bootstrap.ask_any(request, 1)
        if reply.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self._epoch = UNREGISTERED

    async def _allocate(self) -> None:
        reply = await self._bootstrap.ask_any(
            AllocateProducerIdsRequest(broker_id=self.id, broker_epoch=self._epoch), 0
        )
        if reply.error_code == ErrorCode.NONE:
            self._blocks.add(reply.producer_id_start, reply.producer_id_len, self._bootstrap)
