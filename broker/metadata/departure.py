"""Moves all replicas from a broker that leaves its cluster to other brokers, and then removes the broker from the
metadata.

    cordoned ──▶ moves replicas, some at a time ──none is left──▶ controlled shutdown ──▶ unregistered ──▶ the end

A replica is moved by a reassignment: the new replica fetches all records, and only then the old one is removed. A
broker that is stopped before it has left continues with the remaining replicas at its next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from moldau.broker.metadata.publisher import MetadataPublisher
from moldau.broker.metadata.registration import Registration, ask_controller
from moldau.broker.metadata.topic_creation import ControllerPort
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.place import EXIT_LEFT_CLUSTER
from moldau.broker.runtime.progress import PROGRESS_LOGGER
from moldau.kraft.features import CORDONED_LOG_DIRS_VERSION
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import PartitionRegistration
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

log = logging.getLogger("moldau.registration")
progress = logging.getLogger(PROGRESS_LOGGER)

MOVES_IN_PROGRESS_MAX: Final = 20
"""The largest number of partitions that move at a time, so that clients of the other partitions are served as
before.
"""
PAUSE_S: Final = 0.5
PROGRESS_MS: Final = 5_000
SLICE: Final = 1_000
"""The number of partitions after which a loop over all partitions yields to the event loop."""
EXIT_STILL_HAS_REPLICAS: Final = 4
"""The exit status of a broker that got another replica after it had moved all of them. The broker has to be started
again to move that replica too.
"""


@dataclass(slots=True)
class BrokerReplicas:
    """The replicas of one broker in an image, and the number of replicas of every broker."""

    to_move: list[tuple[str, int, PartitionRegistration]] = field(default_factory=list)
    """The topic, partition index and registration of each replica of the broker that is not being moved yet."""
    moving: int = 0
    replicas: Counter[int] = field(default_factory=Counter)
    """The number of replicas of each broker, including those that are being added."""

    @property
    def count(self) -> int:
        return len(self.to_move) + self.moving


def replicas_of_broker(image: MetadataImage, node_id: int) -> Iterator[BrokerReplicas]:
    """Collect the replicas of a broker. Yields the incomplete result after each slice of partitions, and the complete
    one at the end.
    """
    found = BrokerReplicas()
    for seen, (topic, index, partition) in enumerate(image.topics.partitions(), 1):
        if seen % SLICE == 0:
            yield found
        found.replicas.update(target_of(partition))
        if node_id in partition.replicas:
            if node_id in partition.removing_replicas:
                found.moving += 1
            else:
                found.to_move.append((topic.name, index, partition))
    yield found


def target_of(partition: PartitionRegistration) -> list[int]:
    """The replicas that a partition has once its reassignment is complete; its current ones if it has no
    reassignment.
    """
    return [replica for replica in partition.replicas if replica not in partition.removing_replicas]


def planned_moves(
    found: BrokerReplicas, node_id: int, heirs: Sequence[int], in_progress_max: int
) -> Iterator[tuple[str, int, list[int]]]:
    """Choose the next moves, so that at most `in_progress_max` partitions move at a time, with those that an operator
    moves. Yields topic, partition index and the new replicas of the partition.

    Broker `node_id` is replaced by an heir without a replica of the partition, the one with the fewest replicas in all.
    If every heir has a replica of it, the partition gets one replica fewer.
    """
    for topic, index, partition in found.to_move[: max(0, in_progress_max - found.moving)]:
        target = target_of(partition)
        free = [heir for heir in heirs if heir not in target]
        if free:
            heir = min(free, key=lambda each: (found.replicas[each], each))
            found.replicas[heir] += 1
            yield topic, index, [heir if replica == node_id else replica for replica in target]
        elif len(target) > 1:
            # Every heir has a replica already, as after a change of racks: the partition has one replica fewer.
            yield topic, index, [replica for replica in target if replica != node_id]


class Departure:
    """The departure of this broker from its cluster. `run` is called once the broker serves, `finish` after its
    controlled shutdown.
    """

    def __init__(
        self,
        node_id: int,
        heirs: Sequence[int],
        publisher: MetadataPublisher,
        controller: ControllerPort,
        registration: Registration,
        environment: Environment,
    ) -> None:
        """`heirs`: the ids of the brokers that take over the replicas."""
        self._node_id = node_id
        self._heirs = heirs
        self._publisher = publisher
        self._controller = controller
        self._registration = registration
        self._environment = environment
        self._holds_nothing = False
        self.exit_status = 0
        """The exit status of the process. It is 0 also if the process is stopped before the broker has left the
        cluster.
        """

    async def run(self, ended: Callable[[], None]) -> None:
        """Move all replicas to the heirs, and call `ended` when no replica is left on this broker."""
        log.info("this broker leaves the cluster: its replicas go to brokers %s", ", ".join(map(str, self._heirs)))
        if self._publisher.image.features.metadata_version >= CORDONED_LOG_DIRS_VERSION:
            await self._registration.cordon()
        first = told_ms = -1
        while True:
            found = await self._holdings()
            if not found.count:
                break
            first = max(first, found.count)
            now_ms = self._environment.monotonic_ms()
            if told_ms < 0 or now_ms - told_ms >= PROGRESS_MS:
                told_ms = now_ms
                progress.info("leaving: %d of %d replicas are left, %d on the move", found.count, first, found.moving)
                if not self._serving_heirs():
                    log.warning("none of the brokers serves that the replicas go to")
            await self._move(found)
            await asyncio.sleep(PAUSE_S)
        log.info("this broker holds no replica any more")
        self._holds_nothing = True
        ended()

    async def finish(self) -> None:
        """Unregister this broker, if it holds no replica."""
        if not self._holds_nothing:
            return
        error = await self._registration.unregister()
        if error is not ErrorCode.NONE:
            log.warning(
                "the controller keeps the registration of this broker: %s. Take it out by kafka-cluster.sh unregister"
                " --id %d",
                error.name,
                self._node_id,
            )
        found = await self._holdings()
        if found.count:
            log.warning("this broker was given %d replicas in its last moment", found.count)
        self.exit_status = EXIT_STILL_HAS_REPLICAS if found.count else EXIT_LEFT_CLUSTER

    async def _holdings(self) -> BrokerReplicas:
        found = BrokerReplicas()
        for found in replicas_of_broker(self._publisher.image, self._node_id):  # noqa: B007 the last one is whole
            await asyncio.sleep(0)
        return found

    def _serving_heirs(self) -> list[int]:
        cluster = self._publisher.image.cluster
        return [each for each in self._heirs if cluster.is_active(each)]

    async def _move(self, found: BrokerReplicas) -> None:
        """Begin the next moves, to heirs that are registered and not fenced, so that at most `MOVES_IN_PROGRESS_MAX`
        partitions move at a time.
        """
        heirs = self._serving_heirs()
        topics: dict[str, ReassignableTopic] = {}
        for name, index, target in planned_moves(found, self._node_id, heirs, MOVES_IN_PROGRESS_MAX):
            partition = ReassignablePartition(partition_index=index, replicas=target)
            topics.setdefault(name, ReassignableTopic(name=name)).partitions.append(partition)
        if not topics:
            return
        request = AlterPartitionReassignmentsRequest(topics=list(topics.values()))
        response = await ask_controller(self._controller, request, AlterPartitionReassignmentsResponse)
        for text in refusals_in(response):
            log.warning("a replica cannot be moved yet: %s", text)


def refusals_in(response: AlterPartitionReassignmentsResponse) -> list[str]:
    """The first refusals in a response, each as text."""
    if response.error_code:
        return [response.error_message or ErrorCode(response.error_code).name]
    return [
        f"{topic.name}-{each.partition_index}: {each.error_message or ErrorCode(each.error_code).name}"
        for topic in response.responses
        for each in topic.partitions
        if each.error_code
    ][:3]
