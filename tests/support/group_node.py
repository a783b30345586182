"""The services of group handlers over real logs on a simulated disk."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

from moldau.broker.apis.catalogue import LINES
from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC, InternalTopic
from moldau.broker.coordinators.groups import Groups
from moldau.broker.coordinators.image import CurrentImage
from moldau.broker.coordinators.registry import CoordinatorRegistry
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.pending import Pending
from moldau.coordinator.group.config import GroupConfig
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage, Provenance
from moldau.protocol.compiler import decode, encode
from moldau.protocol.records.metadata import FeatureLevelRecord, PartitionRecord, TopicRecord
from moldau.replication.partition import Partition
from moldau.security.access import Access, Unrestricted
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.world import SimulatedEnvironment
from tests.support.short_answers import short_answers

NODE_ID = 1
CLIENT_ID = "cli"


class GroupNode:
    """`start` opens the logs of all partitions of `__consumer_offsets` and takes up their groups."""

    def __init__(self, environment: SimulatedEnvironment, config: GroupConfig, image: MetadataImage) -> None:
        self.environment = environment
        self.loop = asyncio.get_running_loop()
        self.image = image
        self.replicas = Replicas()
        self.created: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.partitions: dict[int, Partition] = {}
        self.cluster = SimpleNamespace(image=image, live_nodes=self.live_nodes)
        self.groups = Groups(
            config,
            environment,
            self.loop,
            self._spawn,
            lambda topic: config.offsets_topic_num_partitions,
            CurrentImage(self.cluster),
        )
        self.coordinators = CoordinatorRegistry([self.groups], lambda log: None)
        self.topics = SimpleNamespace(
            create_internal=self.create_internal,
            create_for_group=lambda topic, _retry_ms: self.created.append(topic.name),
            failures=lambda _names, _now_ms: self.failures,
        )
        self.access: Access = Unrestricted()
        """That of the client."""
        self.failures: dict[str, str] = {}
        """Why topics of streams groups could not be created, by name."""
        self.long_requests = short_answers()

    def _spawn(self, work: Coroutine[object, object, None], name: str = "", /) -> None:
        self.tasks.append(self.loop.create_task(work))

    async def start(self) -> None:
        for index in range(self.groups.topic.partitions):
            self.gain(index)
        await self.loaded()

    def gain(self, index: int) -> Partition:
        """Make this node the leader of a partition."""
        directory = f"/data/{GROUP_METADATA_TOPIC}-{index}"
        self.environment.fs.make_directories(directory)
        log = Log.open(self.environment.fs, directory, LogConfig(), now_ms=self.environment.wall_ms())
        partition = Partition(GROUP_METADATA_TOPIC, bytes(16), index, log, log.log_start_offset)
        partition.become_leader(NODE_ID, 0, (NODE_ID,))
        self.partitions[index] = partition
        self.coordinators.on_leadership_gained(partition)
        return partition

    async def loaded(self) -> None:
        while self.tasks:
            await self.tasks.pop()

    # What handlers ask of a broker

    def create_internal(self, topic: InternalTopic) -> None:
        self.created.append(topic.name)

    def live_nodes(self, listener_name: str) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(id=NODE_ID, host="localhost", port=9092)

    # As a connection calls handlers

    def ask(self, request: object, version: int) -> Pending[object]:
        """Hand a request to its handler; the reply, which may be there already."""
        handler: Any = LINES[type(request).__name__.removesuffix("Request")].api().broker
        context = SimpleNamespace(
            version=version,
            client_id=CLIENT_ID,
            client_host="127.0.0.1",
            listener=SimpleNamespace(name="PLAINTEXT"),
            access=self.access,
            connection=SimpleNamespace(software=("unknown", "unknown")),
        )
        response = handler(self, context, request)
        if isinstance(response, Pending):
            return response
        reply: Pending[object] = Pending()
        reply.complete(response)
        return reply

    async def call(self, request: object, version: int) -> object:
        """Ask over the wire's encoding, and wait for the reply."""
        answered = self.loop.create_future()
        self.ask(over_the_wire(request, version), version).listen(answered.set_result)
        return over_the_wire(await answered, version)


def over_the_wire(message: object, version: int) -> object:
    """A message after it was encoded and decoded."""
    return decode(type(message), encode(message, version), version)


def image_with(topics: dict[str, tuple[bytes, int]], **levels: int) -> MetadataImage:
    """The metadata of a cluster with these topics, id and number of partitions by name, and levels of features, by
    name with `_` for `.`.
    """
    delta = MetadataDelta(MetadataImage())
    for feature, level in levels.items():
        delta.replay(FeatureLevelRecord(name=feature.replace("_", "."), feature_level=level))
    for name, (topic_id, partitions_count) in topics.items():
        delta.replay(TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions_count):
            delta.replay(
                PartitionRecord(
                    partition_id=index, topic_id=topic_id, replicas=[NODE_ID], isr=[NODE_ID], leader=NODE_ID
                )
            )
    return delta.apply(Provenance(1, 0, 0))
