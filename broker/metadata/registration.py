"""Registers this broker with the controller: registration, heartbeats, unfencing, controlled shutdown.

A controller registers with the active controller, once after each start (KIP-919).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.broker.config.config import Config
from moldau.broker.metadata.quorum_start import SECURITY_PROTOCOL_IDS, controller_registration
from moldau.broker.metadata.topic_creation import ControllerPort
from moldau.kraft.features import SUPPORTED_FEATURES
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.messages import broker_registration
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.metadata.quorum import Quorum
    from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage

log = logging.getLogger("moldau.registration")

Response = TypeVar("Response")

UNREGISTERED: Final = -1
FENCED_PAUSE_FIRST_MS: Final = 25
"""The first pause (ms) between heartbeats of a fenced broker. It is short, because the broker may have caught up
already. Each further pause is twice as long, up to the heartbeat interval.
"""
SHUTDOWN_LEADERLESS_MS: Final = 3_000
"""The time (ms) without a response after which a shutdown stops waiting for the controller. An election takes less
time. The last nodes of a quorum that stops find no controller.
"""
REGISTRATION_RETRY_MS: Final = 100
RETRIABLE_ERRORS: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""The errors after which a registration is tried again: no controller has answered, the controller still counts a
killed incarnation of this broker as alive, or the controller's disk is full.
"""
SHUTDOWN_RETRY_MS: Final = 20
"""The pause (ms) between a heartbeat's response and the next heartbeat during a controlled shutdown."""
HEARTBEATS_PER_FENCE: Final = 10
"""The number of heartbeats within moldau.broker.silence.fence.ms. It is more than one, so that a stall shorter than
that time does not fence the broker.
"""
RETRY_S: Final = 0.5


class RegistrationRefused(Exception):
    """The controller refuses this broker, so the node cannot serve."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity that a broker registers with."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    rack: str | None
    listeners: Sequence[Listener]
    features: Sequence[Feature]
    directory_ids: Sequence[bytes]
    previous_epoch: int = UNREGISTERED


class Registration:
    """The registration of this broker in the cluster, from its start to its controlled shutdown.

    `metadata_offset` returns the last offset of the metadata log that this broker has applied.
    """

    def __init__(
        self,
        broker_id: int,
        identity: Callable[[], BrokerIdentity],
        controller: ControllerPort,
        heartbeat_ms: int,
        metadata_offset: Callable[[], int],
    ) -> None:
        self.epoch = UNREGISTERED
        """The broker epoch of this incarnation; -1 before the registration."""
        self.is_fenced = True
        self._broker_id = broker_id
        self._identity = identity
        self._controller = controller
        self._heartbeat_ms = heartbeat_ms
        self._metadata_offset = metadata_offset
        self._failed_directories: list[bytes] = []
        self._is_leaving = False
        self._cordoned: list[bytes] | None = None

    async def register(self, patience_ms: int) -> None:
        """Register this broker, and wait until the controller unfences it.

        After an error in `RETRIABLE_ERRORS` it tries again until `patience_ms` has passed. Raises `RegistrationRefused`
        for that error afterwards, and for any other error at once.
        """
        identity = self._identity()
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=list(identity.listeners),
            features=list(identity.features),
            rack=identity.rack,
            log_dirs=list(identity.directory_ids),
            previous_broker_epoch=identity.previous_epoch,
        )
        error, epoch = ErrorCode.REQUEST_TIMED_OUT, UNREGISTERED
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_ms / 1000):
                while error in RETRIABLE_ERRORS:
                    response = await ask_controller(self._controller, request, BrokerRegistrationResponse)
                    error, epoch = ErrorCode(response.error_code), response.broker_epoch
                    if error in RETRIABLE_ERRORS:
                        await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)
        if error is not ErrorCode.NONE:
            raise RegistrationRefused(f"the controller refused broker {identity.node_id}: {error.name}")
        self.epoch = epoch
        pause_ms = FENCED_PAUSE_FIRST_MS
        while self.is_fenced:
            await self._beat()
            if self.is_fenced:
                await asyncio.sleep(min(pause_ms, self._heartbeat_ms) / 1000)
                pause_ms *= 2

    async def keep_alive(self) -> None:
        """Send heartbeats until cancelled, or until a controlled shutdown begins, which sends heartbeats itself."""
        await asyncio.sleep(self._heartbeat_ms / 1000)
        while not self._is_leaving:
            await self._beat()
            await asyncio.sleep(self._heartbeat_ms / 1000)

    async def report_failed_directory(self, directory_id: bytes) -> None:
        """Report a failed log directory to the controller, at once and with every later heartbeat."""
        self._failed_directories.append(directory_id)
        if self.epoch != UNREGISTERED:
            await self._beat()

    async def cordon(self) -> None:
        """Report that the log directories are cordoned: they take no new replicas. This has no effect if the cluster's
        metadata.version does not support it.
        """
        self._cordoned = list(self._identity().directory_ids)
        await self._beat()

    async def unregister(self) -> ErrorCode:
        """Take this broker out of the cluster, after its controlled shutdown. Returns the controller's error."""
        response = await ask_controller(
            self._controller, UnregisterBrokerRequest(broker_id=self._broker_id), UnregisterBrokerResponse
        )
        return ErrorCode(response.error_code)

    async def shut_down(self, patience_ms: int) -> None:
        """Request a controlled shutdown, and wait until the controller has moved leadership to other brokers, for
        `patience_ms` at most.
        """
        self._is_leaving = True
        try:
            async with asyncio.timeout(patience_ms / 1000):
                await self._be_released()
        except TimeoutError:
            log.warning("the controller did not release this broker in %d ms; stopping all the same", patience_ms)

    async def _be_released(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SHUTDOWN_LEADERLESS_MS / 1000):
                    response = await self._beat()
            except TimeoutError:
                log.info("no controller answers: stopping without being released")
                return
            if response.should_shut_down or response.error_code != ErrorCode.NONE:
                return
            await asyncio.sleep(SHUTDOWN_RETRY_MS / 1000)

    async def _beat(self) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=False,
            want_shut_down=self._is_leaving,
            offline_log_dirs=list(self._failed_directories),
            cordoned_log_dirs=self._cordoned,
        )
        response = await ask_controller(self._controller, request, BrokerHeartbeatResponse)
        if response.error_code != ErrorCode.NONE:
            log.warning("a heartbeat was refused: %s", ErrorCode(response.error_code).name)
        else:
            self.is_fenced = response.is_fenced
        return response


async def ask_controller(controller: ControllerPort, request: object, kind: type[Response]) -> Response:
    """Send a request to the active controller, and wait for its response, which is of the class `kind`."""
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def answer(response: Response) -> None:
        if not future.done():
            future.set_result(response)

    controller.submit(request, answer)
    response = await future
    assert isinstance(response, kind)
    return response


def heartbeat_ms(config: Config) -> int:
    """The interval (ms) between heartbeats: broker.heartbeat.interval.ms, or less if moldau.broker.silence.fence.ms
    requires it.
    """
    interval_ms = config.integer("broker.heartbeat.interval.ms")
    fence_ms = config.integer("moldau.broker.silence.fence.ms")
    return min(interval_ms, max(1, fence_ms // HEARTBEATS_PER_FENCE)) if fence_ms else interval_ms


def broker_identity(
    config: Config, cluster_id: str, incarnation_id: bytes, directory_ids: list[bytes], previous_epoch: int
) -> BrokerIdentity:
    """The identity that this broker registers with. `directory_ids`: the ids of the online log directories.
    `previous_epoch`: the broker epoch of the previous process if that ended without losing records; -1 otherwise.
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


async def keep_registered(quorum: Quorum, config: Config) -> None:
    """Send ControllerRegistration requests until the committed metadata has this incarnation of the controller. If the
    registration is removed later, begin again. Runs until it is cancelled.

    An active controller writes its own registration itself.
    """
    was_removed = asyncio.Event()

    def follow(image: MetadataImage, delta: MetadataDelta) -> None:
        if config.node_id in delta.cluster.controllers and config.node_id not in image.cluster.controllers:
            was_removed.set()

    quorum.subscribe(follow)
    while True:
        known = quorum.image.cluster.controllers.get(config.node_id)
        if known is not None and known.incarnation_id == quorum.incarnation_id:
            await was_removed.wait()
            was_removed.clear()
            continue
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        quorum.submit(controller_registration(config, quorum.incarnation_id), answered.set_result)
        await answered
        await asyncio.sleep(RETRY_S)
