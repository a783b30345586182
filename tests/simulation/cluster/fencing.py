"""Who is of the past is told so, whatever it asks: former incarnations, deposed leaders, voters that were replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from moldau.broker.node.node import Node
from moldau.kraft.features import CONTROLLER_UNREGISTRATION_VERSION, ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from moldau.kraft.image.topics import NO_LEADER
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.kraft.raft.events import Resign
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from moldau.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, DirectoryData
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.unregister_controller import UnregisterControllerRequest
from moldau.protocol.record_builder import Record, build_batch
from tests.simulation.invariants.equal_images import summary
from tests.simulation.raft.host import Host
from tests.simulation.raft.swarm import vote_request
from tests.simulation.raft.world import World
from tests.support.cluster import Cluster, ClusterNode
from tests.support.node import CONTROLLER_PORT, Client
from tests.support.partitions import partition
from tests.support.transaction_stage import TransactionStage

SESSION_MS: Final = 2000
FENCED_S: Final = 8.0
ELECTED_MS: Final = 15_000
FEW_MS: Final = 50
LATE_EVERY_S: Final = 0.3


async def settled_topic(cluster: Cluster) -> None:
    await cluster.settled()
    await cluster.create("t", min_insync_replicas=2, retention_ms=-1)
    await cluster.until(lambda: all(assigned(node) is not None for node in up(cluster)), "everybody knows of it")


def up(cluster: Cluster) -> list[ClusterNode]:
    """Those with brokers that have begun."""
    return [
        node
        for node in cluster.nodes.values()
        if node.is_up and node.broker is not None and node.broker.applier.has_loaded
    ]


def assigned(node: ClusterNode) -> Assigned | None:
    assert node.broker is not None
    return node.broker.image.topics.partition("t", 0)


def is_open(broker: Node | None) -> bool:
    return broker is not None and broker.quorum.is_open


def newest(cluster: Cluster) -> Assigned:
    """As the controller has it, or whoever knows most."""
    started = [
        node for node in cluster.nodes.values() if node.is_up and node.broker is not None and is_open(node.broker)
    ]
    node = max(started, key=lambda each: each.broker.image.provenance.end_offset if each.broker else -1)
    found = assigned(node)
    assert found is not None
    return found


def epoch_of(node: ClusterNode) -> int:
    assert node.broker is not None
    return node.broker.registration.epoch


async def restarted_alike(cluster: Cluster, node: ClusterNode) -> None:
    """Who reads the whole log at once has the same metadata as who read it record by record."""
    node.kill()
    node.boot()
    await cluster.until(lambda: node in up(cluster) and len(images(cluster)) == 1, "all know as much", 30)
    (known,) = images(cluster).values()
    assert len(known) > 1 and all(each == known[0] for each in known), "the node that restarted has other metadata"


def images(cluster: Cluster) -> dict[int, list[object]]:
    """What is in the images, the controllers' among them, by their end offsets."""
    by_offset: dict[int, list[object]] = {}
    for node in cluster.nodes.values():
        if node.is_up and node.broker is not None and is_open(node.broker):
            image = node.broker.image
            by_offset.setdefault(image.provenance.end_offset, []).append(summary(image))
    return by_offset


async def ask_controller(cluster: Cluster, request: object, version: int) -> Any:
    await cluster.until(lambda: cluster.leader_of_quorum() is not None, "a controller")
    controller = cluster.leader_of_quorum()
    assert controller is not None
    client = Client(*await asyncio.open_connection(controller.host.name, CONTROLLER_PORT), "past")
    try:
        return await client.ask(request, version)
    finally:
        client.close()


async def altered(cluster: Cluster, leader: ClusterNode, members: dict[int, int], **changes: int) -> ErrorCode:
    """What a leader is told that wants these members, with their epochs, in sync. `changes`: what it says otherwise."""
    now = newest(cluster)
    assert leader.broker is not None
    partition = PartitionData(
        partition_index=0,
        leader_epoch=changes.get("leader_epoch", now.leader_epoch),
        partition_epoch=changes.get("partition_epoch", now.partition_epoch),
        new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in members.items()],
    )
    request = AlterPartitionRequest(
        broker_id=leader.id,
        broker_epoch=changes.get("broker_epoch", epoch_of(leader)),
        topics=[TopicData(topic_id=leader.broker.image.topics.ids["t"], partitions=[partition])],
    )
    reply = await ask_controller(cluster, request, 3)
    return ErrorCode(reply.error_code or reply.topics[0].partitions[0].error_code)


def live(seed: int, story: Callable[[Cluster], Any], **options: Any) -> None:
    shape = {"replica_lag_time_max_ms": 1000, "broker_session_timeout_ms": SESSION_MS} | options
    with Cluster(seed, **shape) as cluster:
        cluster.live(story)


def an_alter_partition_of_the_past_is_refused(seed: int) -> None:
    """KIP-497, KIP-903: of a leader that is none, of an epoch that is over; and a member that is fenced, or of which
    another incarnation fetched, is not let in: what that one had may be gone."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader = cluster.nodes[await cluster.led("t")]
        controller = cluster.leader_of_quorum()
        follower, other = sorted(
            (node for node in up(cluster) if node is not leader), key=lambda node: node is controller
        )
        everybody = {node.id: epoch_of(node) for node in up(cluster)}
        now = newest(cluster)
        told = {
            "an earlier leader epoch": (await altered(cluster, leader, everybody, leader_epoch=now.leader_epoch - 1)),
            "another than the leader": await altered(cluster, other, everybody),
            "without the leader": await altered(cluster, leader, {follower.id: everybody[follower.id]}),
            "who is no replica": await altered(cluster, leader, everybody | {9: 1}),
            "a former incarnation of the leader": await altered(cluster, leader, everybody, broker_epoch=1),
            "a former incarnation of a member": await altered(cluster, leader, everybody | {follower.id: 1}),
        }
        follower.kill()
        await cluster.until(lambda: follower.id not in newest(cluster).isr, "it is fenced", 30)
        told["a fenced member"] = await altered(cluster, leader, everybody)
        assert told == {
            "an earlier leader epoch": ErrorCode.FENCED_LEADER_EPOCH,
            "another than the leader": ErrorCode.INVALID_REQUEST,
            "without the leader": ErrorCode.INVALID_REQUEST,
            "who is no replica": ErrorCode.INVALID_REQUEST,
            "a former incarnation of the leader": ErrorCode.STALE_BROKER_EPOCH,
            "a former incarnation of a member": ErrorCode.INELIGIBLE_REPLICA,
            "a fenced member": ErrorCode.INELIGIBLE_REPLICA,
        }, told

    live(seed, story)


def a_former_incarnation_is_refused(seed: int) -> None:
    """A process that was taken for dead, and is: what it sent arrives after another has its place."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        controller = cluster.leader_of_quorum()
        node = next(each for each in up(cluster) if each is not controller)
        former = epoch_of(node)
        node.kill()
        node.boot()
        await cluster.settled()
        await cluster.until(lambda: node in up(cluster) and epoch_of(node) > former, "another incarnation")
        beats = [
            BrokerHeartbeatRequest(
                broker_id=node.id,
                broker_epoch=former,
                current_metadata_offset=1 << 40,
                want_fence=False,
                want_shut_down=wants_to_leave,
            )
            for wants_to_leave in (False, True)
        ]
        directories = [DirectoryData(id=bytes(15) + b"\x7f")]
        requests: list[tuple[object, int]] = [
            *((beat, 1) for beat in beats),
            (AllocateProducerIdsRequest(broker_id=node.id, broker_epoch=former), 0),
            (AssignReplicasToDirsRequest(broker_id=node.id, broker_epoch=former, directories=directories), 0),
            (
                AlterPartitionRequest(
                    broker_id=node.id, broker_epoch=former, topics=[TopicData(topic_id=bytes(15) + b"\x7f")]
                ),
                3,
            ),
        ]
        for request, version in requests:
            reply = await ask_controller(cluster, request, version)
            assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH, f"{request} was answered {reply}"

    live(seed, story)


def an_unregistered_broker_leads_nothing(seed: int) -> None:
    """It is gone, and the controller is told so before it knows: its partitions are led by others from then on."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader = cluster.nodes[await cluster.led("t")]
        if cluster.leader_of_quorum() is leader:  # another is to be the one that goes
            controller = leader
            controller.kill()
            controller.boot()
            await cluster.until(lambda: newest(cluster).leader not in (NO_LEADER, controller.id), "another leads", 30)
            leader = cluster.nodes[newest(cluster).leader]
            await cluster.until(lambda: cluster.leader_of_quorum() not in (None, leader), "a controller", 30)
        leader.kill()
        reply = await ask_controller(cluster, UnregisterBrokerRequest(broker_id=leader.id), 0)
        assert reply.error_code == ErrorCode.NONE, reply
        now = newest(cluster)
        assert now.leader not in (NO_LEADER, leader.id), f"unregistered, and leading: {now}"
        assert leader.id not in now.isr, f"unregistered, and in sync: {now}"

    live(seed, story, nodes=6, controllers=3, moldau_broker_silence_fence_ms=0)


def an_unregistered_controller_that_runs_registers_again(seed: int) -> None:
    """Every node forgets it, and then knows the same incarnation again."""

    async def story(cluster: Cluster) -> None:
        await cluster.until(lambda: cluster.leader_of_quorum() is not None, "a controller")
        leader = cluster.leader_of_quorum()
        assert leader is not None and leader.broker is not None
        quorum = leader.broker.quorum
        await cluster.until(lambda: len(quorum.image.cluster.controllers) == 3, "three", 30)
        former = next(each for each in quorum.image.cluster.controllers.values() if each.id != leader.id)
        states: list[bool] = []
        quorum.subscribe(lambda image, _: states.append(former.id in image.cluster.controllers))
        reply = await ask_controller(cluster, UnregisterControllerRequest(controller_id=former.id), 0)
        assert reply.error_code == ErrorCode.NONE, reply
        assert False in states, "the registration was not removed"
        await cluster.until(lambda: quorum.image.cluster.controllers.get(former.id) == former, "registered again", 30)

    live(seed, story, nodes=6, controllers=3, features={METADATA_VERSION: CONTROLLER_UNREGISTRATION_VERSION})


def a_new_controller_fences_who_died_with_the_former(seed: int) -> None:
    """It never heard of that broker: the session counts from its own first moment."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader = cluster.nodes[await cluster.led("t")]
        controller = cluster.leader_of_quorum()
        assert controller is not None
        leader.kill()
        controller.kill()
        await cluster.until(lambda: newest(cluster).leader not in (NO_LEADER, leader.id), "another leads", FENCED_S)

    live(seed, story, nodes=6, controllers=3, moldau_broker_silence_fence_ms=0)


def fewer_in_sync_are_enough_and_nobody_else_is_eligible(seed: int) -> None:
    """KIP-966: who left while two had to be in sync has everything. With one that is enough, more is committed: from
    then on it may lack that."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader = cluster.nodes[await cluster.led("t")]
        for node in [each for each in up(cluster) if each is not leader]:
            node.kill()
        await cluster.until(lambda: bool(newest(cluster).eligible_leader_replicas), "eligible leaders", 30)
        resource = AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=[AlterableConfig(name="min.insync.replicas", config_operation=0, value="1")],
        )
        client = await cluster.connect(leader.id)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        reply = await client.ask(request, 1)
        client.close()
        assert reply.responses[0].error_code == ErrorCode.NONE, reply
        now = newest(cluster)
        assert now.isr == (leader.id,) and not now.eligible_leader_replicas, (
            f"one is enough, and others may lead: {now}"
        )
        partition = leader.broker.replicas.get("t", 0) if leader.broker is not None else None
        await asyncio.sleep(1)
        assert partition is not None and partition.min_insync_replicas == 1, "its leader still wants two"
        await restarted_alike(cluster, leader)

    features = {ELIGIBLE_LEADER_REPLICAS: 1}
    live(seed, story, nodes=6, controllers=3, features=features)


def what_a_lost_controller_decided_is_promised_to_nobody(seed: int) -> None:
    """Cut off, it decides on, and commits nothing; its log is cut when it hears of the next one."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        former = cluster.leader_of_quorum()
        assert former is not None
        others = [node for node in cluster.nodes.values() if node is not former]
        client = await cluster.connect(former.id)
        cluster.world.network.partition([former.host.name], [node.host.name for node in others])
        topic = CreatableTopic(name="promised", num_partitions=1, replication_factor=1)
        client.send(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        await cluster.until(lambda: cluster.leader_of_quorum() in others, "another controller", 30)
        cluster.world.network.heal()
        reply = await asyncio.wait_for(client.reply(), 60)
        client.close()
        is_there = any(node.broker and node.broker.image.topics.by_name("promised") for node in others)
        is_promised = reply.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert is_there or not is_promised, f"nobody else knows of what was answered {reply}"

    live(seed, story)


def who_lost_its_power_is_eligible_no_more(seed: int) -> None:
    """KIP-966: it was eligible for what it had. Nobody knows what it has now: it waits for one that does."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader = cluster.nodes[await cluster.led("t")]
        first, second = (node for node in up(cluster) if node is not leader)
        first.kill()
        await cluster.until(lambda: first.id not in newest(cluster).isr, "two in sync", 30)
        second.kill()
        await cluster.until(lambda: newest(cluster).eligible_leader_replicas == (second.id,), "one is eligible", 30)
        leader.kill()
        await cluster.until(lambda: not newest(cluster).isr, "nobody in sync", 30)
        eligible = newest(cluster).eligible_leader_replicas
        assert set(eligible) == {leader.id, second.id}, eligible
        second.crash()
        second.boot()
        await cluster.until(lambda: second in up(cluster) and epoch_of(second) >= 0, "it is back", 30)
        await asyncio.sleep(3)
        now = newest(cluster)
        assert now.leader == NO_LEADER and now.eligible_leader_replicas == (leader.id,), f"it may lack much: {now}"

    features = {ELIGIBLE_LEADER_REPLICAS: 1}
    live(seed, story, nodes=6, controllers=3, features=features)


def who_led_votes_for_nobody_in_its_epoch(seed: int) -> None:
    """Others stood in that epoch, and ask late: of a leader, of one that resigned, of one that lost its power, and with
    it the first record of its term, which alone had made its log longer than theirs. `Invariants.answers` sees a second
    vote."""
    world = World(seed, 3)
    world.start()
    for ends in (Host.crash, lambda host: host.feed(Resign(host.raft.epoch)), *[Host.crash] * 8):
        world.run_until(lambda: world.leader is not None, ELECTED_MS)
        leader = world.leader
        assert leader is not None
        late_ballots(world, leader)
        ends(leader)
        world.start()
        late_ballots(world, leader)
        world.run_until(world.has_leader, ELECTED_MS)
        world.run_for(FEW_MS)
        if world.leader is not None:
            world.leader.feed(Resign(world.leader.raft.epoch))


def late_ballots(world: World, voter: Host) -> None:
    for host in world.hosts.values():
        if host is not voter:
            world.network.stray(host, voter, vote_request(host, voter))


def a_refused_heartbeat_keeps_no_session_alive(seed: int) -> None:
    """What an earlier process of a broker sent goes on arriving after the end of the next one: it is refused, and the
    broker is fenced as if nothing had come; nor is it unfenced by that."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        controller = cluster.leader_of_quorum()
        node = next(each for each in up(cluster) if each is not controller)
        former = epoch_of(node)
        node.kill()
        node.boot()
        await cluster.settled()
        assert epoch_of(node) > former
        node.kill()
        began_s = cluster.world.now_s
        while not is_fenced(cluster, node):
            assert cluster.world.now_s < began_s + FENCED_S, "it died, and counts as alive"
            await late_beat(cluster, node, former)
        for _ in range(10):
            await late_beat(cluster, node, former)
            assert is_fenced(cluster, node), "nobody is there, and serves"

    live(seed, story)


async def late_beat(cluster: Cluster, node: ClusterNode, epoch: int) -> None:
    request = BrokerHeartbeatRequest(
        broker_id=node.id, broker_epoch=epoch, current_metadata_offset=1 << 40, want_fence=False, want_shut_down=False
    )
    reply = await ask_controller(cluster, request, 1)
    assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH, reply
    await asyncio.sleep(LATE_EVERY_S)


def is_fenced(cluster: Cluster, node: ClusterNode) -> bool:
    controller = cluster.leader_of_quorum()
    assert controller is not None and controller.broker is not None
    return controller.broker.image.cluster.brokers[node.id].fenced


def a_produce_of_a_former_producer_epoch_is_refused(seed: int) -> None:
    """P5: the next process with a transactional id has the next epoch. What the one before still sends from its first
    sequence on would be taken for a transaction of its own."""
    leader = partition()
    leader.become_leader(2, 3, (2,), now_ms=0)

    def answer(epoch: int) -> ErrorCode:
        records = [Record(value=b"v", timestamp=1000)]
        return leader.append(
            build_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=0, is_transactional=True),
            -1,
            1000,
            9,
        ).error

    leader.verifies_transactions = False
    assert answer(1) is ErrorCode.NONE
    assert answer(0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert leader.log.end_offset == 1


def a_fenced_producer_is_not_told_the_end_of_the_next_one(seed: int) -> None:
    """P5: under protocol 1 the end of a transaction moves no epoch, so that the epoch below may be another client's. An
    answer to its EndTxn would give it the epoch of the producer that fenced it."""
    stage = TransactionStage()
    fenced, current = stage.init(), stage.init()
    assert fenced is not None and current is not None
    stage.add(*current[1:], ("a", 0), protocol=1)
    stage.end(*current[1:], commits=True, protocol=1)
    stage.write_markers()
    answer = stage.end(*fenced[1:], commits=True, protocol=2)
    assert answer is not None and answer.error is ErrorCode.PRODUCER_FENCED, answer


ALL: Final[tuple[Callable[[int], None], ...]] = (
    a_fenced_producer_is_not_told_the_end_of_the_next_one,
    a_produce_of_a_former_producer_epoch_is_refused,
    a_refused_heartbeat_keeps_no_session_alive,
    an_alter_partition_of_the_past_is_refused,
    a_former_incarnation_is_refused,
    an_unregistered_broker_leads_nothing,
    an_unregistered_controller_that_runs_registers_again,
    a_new_controller_fences_who_died_with_the_former,
    fewer_in_sync_are_enough_and_nobody_else_is_eligible,
    what_a_lost_controller_decided_is_promised_to_nobody,
    who_lost_its_power_is_eligible_no_more,
    who_led_votes_for_nobody_in_its_epoch,
)
