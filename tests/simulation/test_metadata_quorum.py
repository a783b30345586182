"""A quorum of one whose power is cut at every step of its disk: what was answered stays, and epochs only grow."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import pytest

from moldau.broker.config.config import Config
from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.metadata.publisher import MetadataPublisher
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.metadata.raft import controller_terms
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.network.peer_channel import PeerChannels
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.kraft.features import SUPPORTED_FEATURES
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse, Feature
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from moldau.storage.checkpoints.meta_properties import read_meta_properties
from moldau.testing.simulation.disk_calls import Operation
from moldau.testing.simulation.world import Host, SimulatedEnvironment, World

Response = TypeVar("Response")

DATA = "/data"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
LIVES_LIMIT_S = 60.0
ENOUGH_TOPICS = 6
PAUSE_S = 0.0003
"""Between requests: less than a sync takes."""


def config(*, standalone: bool) -> Config:
    quorum = (
        {"controller.quorum.bootstrap.servers": "h:9093"} if standalone else {"controller.quorum.voters": "1@h:9093"}
    )
    return checked_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": DATA,
            "metadata.log.max.record.bytes.between.snapshots": "400",
            "metadata.max.retention.bytes": "1000",
            **quorum,
        }
    )


@dataclass
class Story:
    """What the outside world was told, over all lives."""

    standalone: bool = True
    created: dict[str, bytes] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    """Asked for and not answered: it may have happened or not."""
    epochs: list[int] = field(default_factory=list)
    producer_ids: list[int] = field(default_factory=list)
    seen: dict[int, MetadataImage] = field(default_factory=dict)
    """By end offset, every image that was published."""
    watched: list[tuple[bool, int]] = field(default_factory=list)

    async def live(self, environment: SimulatedEnvironment) -> None:
        """One life: format if needed, lead, check what is remembered, change something, until enough was done."""
        quorum = await self.start(environment)
        self.check(quorum.image)
        broker_epoch = await self.join(environment, quorum)
        names = [f"topic-{len(self.epochs)}-{index}" for index in range(ENOUGH_TOPICS)]
        await asyncio.gather(*(self.create_and_delete(quorum, index, name) for index, name in enumerate(names)))
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=broker_epoch)
        ids = await ask(quorum, request, AllocateProducerIdsResponse)
        assert ids.producer_id_start not in self.producer_ids, "a block is given once"
        self.producer_ids.append(ids.producer_id_start)
        await quorum.stop()

    async def start(self, environment: SimulatedEnvironment) -> Quorum:
        node = config(standalone=self.standalone)
        await environment.offload(
            lambda: format_directories(environment.fs, node, CLUSTER_ID, {}, True, self.standalone, environment.entropy)
        )
        properties = read_meta_properties(environment.fs, DATA)
        assert properties is not None
        channels = PeerChannels(asyncio.get_running_loop(), Timeouts(asyncio.get_running_loop()), "node-1", "4.3.1")
        publisher = MetadataPublisher()
        quorum = Quorum(
            environment, node, properties, DynamicConfig(node), publisher, channels, lambda _: None, lambda: None
        )
        quorum.subscribe(self.published)
        try:
            await quorum.open()
        except OSError as refusal:
            environment.halt(f"{refusal}")  # as `moldau serve` does: it says why, and ends
        await quorum.join()
        assert quorum.leader_id == 1
        assert not self.epochs or quorum.leader_epoch > self.epochs[-1], "each term is an epoch of its own"
        self.epochs.append(quorum.leader_epoch)
        return quorum

    def published(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """What was committed once at an offset is what there is for ever."""
        end_offset = image.provenance.end_offset
        before = self.seen.setdefault(end_offset, image)
        assert before.topics == image.topics and before.configs == image.configs

    async def join(self, environment: SimulatedEnvironment, quorum: Quorum) -> int:
        registered = await ask(
            quorum,
            BrokerRegistrationRequest(
                broker_id=1,
                cluster_id=CLUSTER_ID,
                incarnation_id=environment.entropy(16),
                features=[
                    Feature(name=name, min_supported_version=first, max_supported_version=last)
                    for name, (first, last) in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[environment.entropy(16)],
            ),
            BrokerRegistrationResponse,
        )
        assert registered.error_code == ErrorCode.NONE
        beat = await ask(
            quorum,
            BrokerHeartbeatRequest(
                broker_id=1,
                broker_epoch=registered.broker_epoch,
                current_metadata_offset=quorum.image.provenance.end_offset - 1,
                want_fence=False,
                want_shut_down=False,
            ),
            BrokerHeartbeatResponse,
        )
        assert not beat.is_fenced
        return registered.broker_epoch

    async def create_and_delete(self, quorum: Quorum, index: int, name: str) -> None:
        """Several at once: what is appended during a sync must wait for the next one."""
        await asyncio.sleep(index * PAUSE_S)
        await self.create(quorum, name)
        if index % 3 == 2:
            await self.delete(quorum, name)

    async def create(self, quorum: Quorum, name: str) -> None:
        self.doubtful.add(name)
        request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])
        response = await ask(quorum, request, CreateTopicsResponse)
        (topic,) = response.topics
        assert topic.error_code == ErrorCode.NONE, topic
        assert quorum.image.topics.by_name(name) is not None, "the image is there before the answer"
        self.created[name] = topic.topic_id
        self.doubtful.discard(name)

    async def delete(self, quorum: Quorum, name: str) -> None:
        self.doubtful.add(name)
        state = DeleteTopicState(name=name, topic_id=bytes(16))
        request = DeleteTopicsRequest(topics=[state], timeout_ms=1000)
        response = await ask(quorum, request, DeleteTopicsResponse)
        assert response.responses[0].error_code == ErrorCode.NONE
        self.deleted.add(name)
        self.doubtful.discard(name)

    def check(self, image: MetadataImage) -> None:
        for name, topic_id in self.created.items():
            topic = image.topics.by_name(name)
            if name in self.doubtful:
                continue
            if name in self.deleted:
                assert topic is None, f"{name} was deleted and came back"
            else:
                assert topic is not None and topic.id == topic_id, f"{name} was created and is lost"
        known = {*self.created, *self.doubtful}
        assert {topic.name for topic in image.topics.by_id.values()} <= known


async def ask(quorum: Quorum, request: object, kind: type[Response]) -> Response:
    answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    quorum.submit(request, answer.set_result)
    return await answer


def run_lives(seed: str, story: Story, crash_steps: list[int | None]) -> Host:
    """One life after the other, each crashed at its step of the disk if one is given."""
    with World(seed) as world:
        host = world.add_host("h")

        async def lives() -> None:
            for step in crash_steps:
                host.disk.crash_at_step = None if step is None else host.disk.steps + step
                host.boot(story.live)
                while host.is_up:
                    await asyncio.sleep(0.01)

        world.run(lives(), limit_s=LIVES_LIMIT_S)
        return host


def steps_of_a_life(standalone: bool) -> int:
    return run_lives("steps", Story(standalone), [None]).disk.steps


def test_a_life_without_a_crash() -> None:
    story = Story()
    run_lives("calm", story, [None, None, None])
    assert story.epochs == [1, 2, 3]
    assert len(story.created) == 3 * ENOUGH_TOPICS and story.producer_ids == [0, 1000, 2000]


def test_a_controller_whose_partitions_are_indexed_in_an_executor_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_terms, "INDEXED_ON_LOOP_MAX", 0)
    for seed in range(10):
        story = Story()
        run_lives(f"indexed/{seed}", story, [*((seed * 7 + life * 13) % 90 + 1 for life in range(3)), None])
        assert len(story.created) >= ENOUGH_TOPICS


@pytest.mark.parametrize("standalone", [True, False])
def test_the_power_is_cut_at_every_step_of_the_first_life(standalone: bool) -> None:
    for step in range(1, steps_of_a_life(standalone) + 1):
        story = Story(standalone)
        run_lives(f"first/{step}", story, [step, None])
        assert len(story.created) >= ENOUGH_TOPICS, f"the second life did all, after a cut at step {step}"


class Raising(Story):
    """Raises kraft.version as soon as it leads, and never sees it go back once that was acknowledged."""

    raised = False

    async def join(self, environment: SimulatedEnvironment, quorum: Quorum) -> int:
        assert quorum.kraft_version == 1 or not self.raised, "what was acknowledged stays"
        broker_epoch = await super().join(environment, quorum)
        update = FeatureUpdateKey(feature="kraft.version", max_version_level=1)
        request = UpdateFeaturesRequest(feature_updates=[update])
        reply = await ask(quorum, request, UpdateFeaturesResponse)
        assert reply.error_code == ErrorCode.NONE and quorum.kraft_version == 1
        self.raised = True
        return broker_epoch


def test_the_power_is_cut_at_every_step_around_a_raised_kraft_version() -> None:
    """The voters of the configuration become those of the log, with their directories, or stay what they were."""
    steps = run_lives("raised", Raising(standalone=False), [None]).disk.steps
    for step in range(1, steps + 1):
        story = Raising(standalone=False)
        run_lives(f"raised/{step}", story, [step, None, None])
        assert story.raised and len(story.created) >= 2 * ENOUGH_TOPICS


def test_the_power_is_cut_again_and_again() -> None:
    """Cuts of later lives find logs, snapshots and half-cleaned segments of the earlier ones."""
    for seed in range(40):
        story = Story()
        run_lives(f"again/{seed}", story, [*((seed * 7 + life * 13) % 90 + 1 for life in range(5)), None])
        assert len(story.created) >= ENOUGH_TOPICS


class Onlooker(Story):
    """Joins, and then says nothing more."""

    async def live(self, environment: SimulatedEnvironment) -> None:
        quorum = await self.start(environment)
        await self.join(environment, quorum)
        for _ in range(SILENCE_S):
            self.watched.append((not quorum.image.cluster.brokers[1].fenced, quorum.image.provenance.end_offset))
            await asyncio.sleep(1)
        await quorum.stop()


SILENCE_S = 12


def test_a_silent_broker_is_fenced_and_a_silent_log_is_not_silent() -> None:
    story = Onlooker()
    run_lives("silence", story, [None])
    alive = [is_active for is_active, _ in story.watched]
    assert all(alive[:9]) and not any(alive[10:]), "a session is nine seconds"
    growth = [after - before for (_, before), (_, after) in pairwise(story.watched)]
    assert min(growth) >= 1 and max(growth) <= 3, "a record for every half second of silence, and one for the fencing"


def test_a_sync_that_fails_stops_the_node_and_answers_nothing_more() -> None:
    """The pages that could not be written are gone from the kernel: what they held was never answered."""
    halted = 0
    for failing in range(1, 13):
        story = Story()
        with World(f"sync/{failing}") as world:
            host = world.add_host("h")
            host.may_halt = True
            halted += world.run(lives_around_a_failed_sync(host, story, failing), limit_s=LIVES_LIMIT_S)
        assert len(story.created) >= 2 * ENOUGH_TOPICS, "the lives around the failure did all"
    assert halted >= 8


async def lives_around_a_failed_sync(host: Host, story: Story, failing: int) -> int:
    """How many lives stopped themselves. A snapshot that fails does not stop the node: the next one tries again."""
    halted = 0
    for life in range(3):
        if life == 1:
            host.disk.fail(Operation.SYNC, host.disk.counts[Operation.SYNC] + failing)
        host.boot(story.live)
        while host.is_up:
            await asyncio.sleep(0.01)
        halted += host.halted is not None
        assert life == 1 or host.halted is None
    return halted
