"""Every invariant flags the violation that is planted for it, and nothing in a healthy cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from moldau.broker.metrics.observed import NodeStage
from moldau.broker.purgatory.purgatory import CommitCallback
from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.kraft.image.metadata_image import EMPTY_IMAGE
from moldau.kraft.raft.election_state import QUORUM_STATE
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.metadata import NoOpRecord
from moldau.replication.leadership import InSyncSet
from moldau.replication.partition import Partition
from moldau.testing.simulation.disk_calls import Operation
from tests.simulation.invariants import Invariant
from tests.simulation.invariants.aborted_transactions import AbortedTransactions
from tests.simulation.invariants.acknowledged import check_acknowledged
from tests.simulation.invariants.as_assigned import AsAssigned
from tests.simulation.invariants.commits_answered import CommitsAnswered
from tests.simulation.invariants.committed_prefix import CommittedPrefix
from tests.simulation.invariants.confirmed_set import ConfirmedSet
from tests.simulation.invariants.controller_state import ControllerState
from tests.simulation.invariants.dead_are_fenced import DeadAreFenced
from tests.simulation.invariants.decided_first import DecidedFirst
from tests.simulation.invariants.epochs_of_log import EpochsOfLog
from tests.simulation.invariants.epochs_rise import EpochsRise
from tests.simulation.invariants.equal_images import EqualImages
from tests.simulation.invariants.high_watermark_bound import HighWatermarkBound
from tests.simulation.invariants.high_watermark_rises import HighWatermarkRises
from tests.simulation.invariants.in_sync_complete import InSyncComplete
from tests.simulation.invariants.leader_acknowledged import LeaderAnswers
from tests.simulation.invariants.metadata_epochs import MetadataEpochs
from tests.simulation.invariants.metadata_logs import MetadataLogs
from tests.simulation.invariants.observation import HEARD_NS, LogContent, Observation, Observer, Violation
from tests.simulation.invariants.of_their_topic import OfTheirTopic
from tests.simulation.invariants.one_controller import OneController
from tests.simulation.invariants.one_coordinator import OneCoordinator
from tests.simulation.invariants.one_fetcher import OneFetcher
from tests.simulation.invariants.one_leader import OneLeader
from tests.simulation.invariants.producer_sequences import ProducerSequences
from tests.simulation.invariants.producer_state import ProducerState
from tests.simulation.invariants.quorum_state import QuorumState
from tests.simulation.invariants.registered_first import RegisteredFirst
from tests.simulation.invariants.roles_follow_metadata import RolesFollowMetadata
from tests.simulation.invariants.sound_image import SoundImage
from tests.simulation.invariants.sound_log import SoundLog
from tests.simulation.invariants.stable_offset import StableOffset
from tests.simulation.invariants.start_bound import StartBound
from tests.simulation.invariants.true_snapshots import TrueSnapshots
from tests.support.cluster import Cluster
from tests.support.cluster_admin import Made
from tests.support.node import batch, produce_request
from tests.support.topic_writer import BY_ID, BY_NAME, value_of

Plant = Callable[[Cluster, Observation], None]


def replica(seen: Observation, *, leads: bool) -> Partition:
    found = [
        each.partition
        for _, each in seen.all_replicas()
        if each.partition.topic == "t" and (each.partition.leadership is not None) == leads
    ]
    return found[0]


def rot(seen: Observation, *, leads: bool) -> None:
    """One byte of the first record changes on one replica, in the cache alone."""
    partition = replica(seen, leads=leads)
    for _, each in seen.all_replicas():
        if each.partition is partition:
            data = each.disk.peek(partition.log.active.path(".log"))
            assert isinstance(data, bytearray)
            data[17] ^= 1  # the checksum
            each.content.batches.clear()
            each.content.verified = 0


def plant_second_leader(cluster: Cluster, seen: Observation) -> None:
    follower, leader = replica(seen, leads=False), replica(seen, leads=True)
    follower.leadership = leader.leadership


def plant_lost_tail(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=False).log.truncate_to(1, 0)


def plant_high_watermark(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=False).high_watermark = 99


def plant_late_start(cluster: Cluster, seen: Observation) -> None:
    follower = replica(seen, leads=False)
    follower.log.advance_log_start(follower.log.end_offset, follower.log.end_offset)
    follower.high_watermark = 1


def plant_lower_watermark(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=False).high_watermark = 0


def plant_other_set(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=True).isr = (1,)


def plant_waits(seen: Observation, *end_offsets: int) -> None:
    """As a purgatory would have them that takes each wait as it comes."""
    leader = replica(seen, leads=True)
    for _, each in seen.all_replicas():
        if each.partition is leader:
            commits = each.broker.purgatory.watchers(leader).commits
            for end_offset in end_offsets:
                wait = CommitCallback(end_offset, lambda error: None)
                wait._queue = commits
                commits.append(wait)


def plant_late_wait(cluster: Cluster, seen: Observation) -> None:
    plant_waits(seen, 9, 7)


def plant_forgotten_wait(cluster: Cluster, seen: Observation) -> None:
    plant_waits(seen, 4)


def plant_old_epoch(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=False).leader_epoch -= 1


def plant_fetcher(cluster: Cluster, seen: Observation) -> None:
    leader = replica(seen, leads=True)
    for _, each in seen.all_replicas():
        if each.partition is leader:
            fetchers = each.broker.fetchers
            fetchers._fetcher(1 if each.node_id != 1 else 2).follow(leader)


def plant_producer(cluster: Cluster, seen: Observation) -> None:
    log = replica(seen, leads=False).log
    log.producers.entries.clear()


def plant_repeat(cluster: Cluster, seen: Observation) -> None:
    """As a coordinator's own batch, of which nobody asks whether it was there before."""
    again = batch("again", producer_id=5, producer_epoch=0, base_sequence=2)
    assert replica(seen, leads=True).append_internal(again, 1000).error == 0


def plant_forgotten_transaction(cluster: Cluster, seen: Observation) -> None:
    """The leader appends it, and does not know it as open."""
    opening = batch("opening", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    leader = replica(seen, leads=True)
    assert leader.append_internal(opening, 1000).error == 0
    leader.log.producers.clear(leader.log.end_offset)
    leader.high_watermark = leader.log.end_offset


def plant_unlisted_abort(cluster: Cluster, seen: Observation) -> None:
    """The leader aborts a transaction, and its index loses it."""
    opening = batch("opening", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    leader = replica(seen, leads=True)
    assert leader.append_internal(opening, 1000).error == 0
    assert leader.end_transaction(9, 0, 1000, is_commit=False, coordinator_epoch=0).error == 0
    leader.log.active.transaction_index.clear()


def plant_lost_epochs(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=False).log.epochs.clear()


def plant_leader_without_epoch(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=True).log.epochs.clear()


def plant_unsaved_vote(cluster: Cluster, seen: Observation) -> None:
    for node in seen.nodes:
        if node.broker.quorum.active_controller is not None:
            node.disk.unlink(f"{node.broker.config.metadata_log_dir}/__cluster_metadata-0/{QUORUM_STATE}")
            node.disk.sync_directory(f"{node.broker.config.metadata_log_dir}/__cluster_metadata-0")


def plant_forgotten_epochs(cluster: Cluster, seen: Observation) -> None:
    seen.nodes[0].broker.quorum.opened.log.log.epochs.clear()


def plant_lost_snapshot(cluster: Cluster, seen: Observation) -> None:
    """Only its name is there."""
    log, disk = seen.nodes[0].broker.quorum.opened.log, seen.nodes[0].disk
    snapshot = SnapshotId(3, 1)
    disk.open(f"{log.directory}/{snapshot.file_name}", create=True).append([b"not synced"])
    log._snapshots.append(snapshot)


def plant_second_controller(cluster: Cluster, seen: Observation) -> None:
    (active,) = [each.broker.quorum for each in seen.nodes if each.broker.quorum.active_controller is not None]
    other = next(each.broker.quorum for each in seen.nodes if each.broker.quorum is not active)
    other.opened.terms._active = active.opened.terms.active


def plant_coordinator(cluster: Cluster, seen: Observation) -> None:
    """Of a partition that nobody has yet: the topic is made when the first group asks."""
    seen.nodes[0].broker.coordinators.groups._runners[0] = None  # type: ignore[assignment]


def plant_fenced_leader(cluster: Cluster, seen: Observation) -> None:
    key = next(key for key, each in seen.all_replicas() if each.partition.topic == "t")
    assigned = seen.assigned(key)
    assert assigned is not None
    topic = seen.image.topics.by_id[key[0]]
    moved = topic._replace(partitions={**topic.partitions, key[1]: assigned._replace(leader=9)})
    topics = seen.image.topics._replace(by_id=seen.image.topics.by_id.with_changes({key[0]: moved}))
    seen.image = seen.image._replace(
        topics=topics, provenance=seen.image.provenance._replace(end_offset=seen.image.provenance.end_offset + 1)
    )


def plant_early_image(cluster: Cluster, seen: Observation) -> None:
    seen.nodes[0].broker.quorum._publisher.high_watermark -= 1


def plant_wrong_minimum(cluster: Cluster, seen: Observation) -> None:
    replica(seen, leads=False).min_insync_replicas = 3


def plant_unknown_replica(cluster: Cluster, seen: Observation) -> None:
    follower = replica(seen, leads=False)
    for node in seen.nodes:
        if follower in node.broker.replicas:
            node.broker.replicas.remove("t", follower.topic_id, 0)


def plant_expected_replica(cluster: Cluster, seen: Observation) -> None:
    follower = replica(seen, leads=False)
    for node in seen.nodes:
        if follower in node.broker.replicas:
            node.broker.replicas.expect("t", follower.topic_id, 0)


def plant_offline_replica(cluster: Cluster, seen: Observation) -> None:
    seen.nodes[0].broker.replicas.add_offline("t", replica(seen, leads=True).topic_id, 99)


def plant_orphan_settings(cluster: Cluster, seen: Observation) -> None:
    settings = {ConfigResource(ResourceType.TOPIC, "gone"): {"retention.ms": "1"}}
    configs = seen.image.configs._replace(by_resource=seen.image.configs.by_resource.with_changes(settings))
    provenance = seen.image.provenance._replace(end_offset=seen.image.provenance.end_offset + 1)
    seen.image = seen.image._replace(configs=configs, provenance=provenance)


def plant_early_role(cluster: Cluster, seen: Observation) -> None:
    broker = seen.nodes[0].broker
    broker.registration.epoch = broker.image.provenance.end_offset + 5


def plant_second_life(cluster: Cluster, seen: Observation) -> None:
    leader = replica(seen, leads=True)
    for node in cluster.nodes.values():
        if node.broker is not None and leader in node.broker.replicas:
            node.host.lives += 1


PLANTS: list[tuple[Callable[[], Invariant], Plant]] = [
    (AsAssigned, plant_unknown_replica),
    (AsAssigned, plant_expected_replica),
    (AsAssigned, plant_offline_replica),
    (AbortedTransactions, plant_unlisted_abort),
    (AsAssigned, plant_wrong_minimum),
    (CommittedPrefix, lambda cluster, seen: rot(seen, leads=False)),
    (CommitsAnswered, plant_late_wait),
    (CommitsAnswered, plant_forgotten_wait),
    (ConfirmedSet, plant_other_set),
    (ControllerState, plant_fenced_leader),
    (EpochsOfLog, plant_lost_epochs),
    (EpochsRise, plant_old_epoch),
    (EpochsRise, plant_leader_without_epoch),
    (HighWatermarkBound, plant_high_watermark),
    (HighWatermarkRises, plant_lower_watermark),
    (InSyncComplete, plant_lost_tail),
    (MetadataEpochs, plant_forgotten_epochs),
    (MetadataLogs, plant_early_image),
    (OneController, plant_second_controller),
    (OneCoordinator, plant_coordinator),
    (OneFetcher, plant_fetcher),
    (OneLeader, plant_second_leader),
    (ProducerSequences, plant_repeat),
    (OneLeader, plant_second_life),
    (ProducerState, plant_producer),
    (QuorumState, plant_unsaved_vote),
    (RegisteredFirst, plant_early_role),
    (RolesFollowMetadata, plant_second_leader),
    (SoundImage, plant_orphan_settings),
    (SoundLog, lambda cluster, seen: rot(seen, leads=True)),
    (StableOffset, plant_forgotten_transaction),
    (StartBound, plant_late_start),
    (TrueSnapshots, plant_lost_snapshot),
]


async def healthy(cluster: Cluster) -> Observer:
    await cluster.settled()
    await cluster.create("t", min_insync_replicas=2, retention_ms=-1)
    client = await cluster.connect(await cluster.leader("t"))
    for number in range(4):
        records = batch(f"v{number}", producer_id=5, producer_epoch=0, base_sequence=number)
        answer = await client.produce("t", records)
        assert answer.error_code == 0, answer
    client.close()
    await asyncio.sleep(2)
    return Observer(cluster, flushes=False)


@pytest.mark.parametrize(("made", "plant"), PLANTS, ids=[plant.__name__ for _, plant in PLANTS])
def test_a_planted_violation_is_flagged(made: Callable[[], Invariant], plant: Plant) -> None:
    async def story(cluster: Cluster) -> None:
        observer, healthy_one, invariant = await healthy(cluster), made(), made()
        seen = observer.look()
        assert seen is not None
        healthy_one.check(seen)
        if made not in (AsAssigned, QuorumState, ProducerState, SoundLog, CommittedPrefix):
            invariant.check(seen)
        plant(cluster, seen)
        later = seen if made in (ControllerState, SoundImage) else observer.look()
        assert later is not None
        with pytest.raises(Violation):
            invariant.check(later)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_leader_that_leaves_out_whom_the_controller_let_in_is_flagged() -> None:
    """It has not heard of the set that it proposed itself."""

    async def story(cluster: Cluster) -> None:
        seen = (await healthy(cluster)).look()
        assert seen is not None
        leader = replica(seen, leads=True)
        assert leader.leadership is not None
        leader.partition_epoch -= 1
        leader.isr = (leader.leader_id,)
        leader.leadership.apply_in_sync_set(InSyncSet(leader.isr, leader.partition_epoch))
        with pytest.raises(Violation, match="the controller has"):
            ConfirmedSet().check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_record_of_another_topic_is_flagged() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", min_insync_replicas=2, retention_ms=-1)
        leader_id = await cluster.led("t")
        broker = cluster.nodes[leader_id].broker
        assert broker is not None
        topic_id = broker.image.topics.ids["t"]
        earlier, later, other = Made("t", b"1" * 16), Made("t", b"3" * 16), Made("u", b"4" * 16)
        names = {topic_id: "t"} | {each.id: each.name for each in (earlier, later, other)}
        client, observer = await cluster.connect(leader_id), Observer(cluster, flushes=False)
        by_name = [value_of(each, BY_NAME, 0) for each in (earlier, later)]
        rightful = (value_of(Made("t", topic_id), BY_ID, 0), *by_name)
        for value in rightful:
            assert (await client.produce("t", batch(value.decode()))).error_code == 0
        seen = observer.look()
        assert seen is not None
        OfTheirTopic(names).check(seen)
        for value in (value_of(earlier, BY_ID, 1), value_of(later, BY_ID, 1), value_of(other, BY_NAME, 1)):
            assert (await client.produce("t", batch(value.decode()))).error_code == 0
            seen = observer.look()
            assert seen is not None
            with pytest.raises(Violation, match="another topic"):
                OfTheirTopic(names).check(seen)
        client.close()

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_completion_without_a_marker_is_flagged_where_the_log_was_looked_at() -> None:
    """The look at a replica whose disk has rotted is left out, and its leader may have appended the marker since."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", retention_ms=-1)
        client, observer = await cluster.connect(await cluster.led("t")), Observer(cluster, flushes=False)
        invariant, decision = DecidedFirst(), (7, 0)
        assert (await client.produce("t", batch("a"))).error_code == 0
        seen = observer.look()
        assert seen is not None
        invariant.check(seen)
        invariant._partitions[decision] = [("t", 0)]
        coordinator = next(each for _, each in seen.all_replicas())
        with pytest.raises(Violation, match="t-0 unmarked"):
            invariant._check_completion(seen, coordinator, decision)
        assert (await client.produce("t", batch("perhaps the marker"))).error_code == 0
        invariant._check_completion(seen, coordinator, decision)
        client.close()

    with Cluster(1) as cluster:
        cluster.live(story)


def test_an_acknowledgement_of_what_is_not_there_is_flagged() -> None:
    """The log holds another batch at the offset that is told: one that was never sent, or one sent before."""
    told: list[str] = []

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", retention_ms=-1)
        leader_id = await cluster.led("t")
        answers = LeaderAnswers(cluster, lambda error: told.append(str(error)), flushes=False)
        client = await cluster.connect(leader_id)

        async def produced(value: str, believed: str) -> None:
            client.send(produce_request("t", batch(value), acks=1), 9)
            answers.expect(client, ("t", 0), batch(believed))
            await client.reply()

        await produced("a", "a")
        assert (answers.count, told) == (1, [])
        await produced("b", "never sent")
        assert len(told) == 1
        await produced("c", "a")
        assert len(told) == 2
        client.close()

    with Cluster(1) as cluster:
        cluster.live(story)


def test_metadata_that_no_majority_has_on_disk_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        seen = (await healthy(cluster)).look()
        assert seen is not None
        MetadataLogs().check(seen)
        for node in seen.nodes[1:]:
            monkeypatch.setattr(node.disk, "peek_durable", lambda path: b"")
        with pytest.raises(Violation, match="durable"):
            MetadataLogs().check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_metadata_that_counts_as_durable_too_early_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        seen = (await healthy(cluster)).look()
        assert seen is not None
        monkeypatch.setattr(seen.nodes[0].disk, "peek_durable", lambda path: b"")
        with pytest.raises(Violation, match="counts its metadata as durable"):
            MetadataLogs().check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_metadata_that_differs_is_flagged() -> None:
    async def story(cluster: Cluster) -> None:
        seen = (await healthy(cluster)).look()
        assert seen is not None
        invariant = MetadataLogs()
        invariant._committed[0] = (0, 0, 9, 9), 9
        with pytest.raises(Violation, match="has committed"):
            invariant.check(seen)
        invariant = MetadataLogs()
        invariant._described[seen.image.provenance.end_offset] = "another quorum", 9
        with pytest.raises(Violation, match="knows"):
            invariant.check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_dead_broker_that_is_not_fenced_is_flagged(is_forgotten: bool) -> None:
    async def story(cluster: Cluster) -> None:
        observer, invariant = await healthy(cluster), DeadAreFenced()
        controller = cluster.leader_of_quorum()
        dead = next(node for node in cluster.nodes.values() if node is not controller)
        assert controller is not None and controller.broker is not None
        dead.kill()
        active = controller.broker.quorum.active_controller
        assert active is not None
        for _ in range(40):
            if is_forgotten:
                active._controller._forget(dead.id)
            seen = observer.look()
            assert seen is not None
            invariant.check(seen)
            await asyncio.sleep(0.3)

    with Cluster(1, broker_session_timeout_ms=2000, moldau_broker_silence_fence_ms=0) as cluster:
        if is_forgotten:
            with pytest.raises(Violation, match="not fenced"):
                cluster.live(story)
        else:
            cluster.live(story)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_log_that_is_closed_may_forget_an_epoch_in_which_nobody_wrote(is_written: bool) -> None:
    async def story(cluster: Cluster) -> None:
        observer = await healthy(cluster)
        if not is_written:
            await cluster.create("empty", min_insync_replicas=2)
            await asyncio.sleep(2)
        seen = observer.look()
        assert seen is not None
        leader = next(
            each
            for _, each in seen.all_replicas()
            if each.partition.topic == ("t" if is_written else "empty") and each.partition.is_leader
        )
        leader.broker.readiness.enter(NodeStage.STOPPING)
        leader.partition.log.close(0, clean=True)
        EpochsRise().check(seen)
        if is_written:
            leader.partition.log.epochs.clear()
        else:
            assert leader.partition.log.epochs.latest_epoch == -1
            leader.broker.readiness.enter(NodeStage.RUNNING)
        with pytest.raises(Violation, match="its log knows epoch -1"):
            EpochsRise().check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_images_that_differ_are_flagged() -> None:
    async def story(cluster: Cluster) -> None:
        seen = (await healthy(cluster)).look()
        assert seen is not None
        invariant = EqualImages()
        invariant.check(seen)
        offset = next(iter(seen.nodes)).broker.quorum.image.provenance.end_offset
        invariant._seen.clear()
        invariant._summaries[offset] = "another image", 9
        with pytest.raises(Violation):
            invariant.check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_snapshot_that_says_something_else_is_flagged() -> None:
    async def story(cluster: Cluster) -> None:
        observer = await healthy(cluster)
        seen = observer.look()
        assert seen is not None
        quorum = seen.nodes[0].broker.quorum
        await quorum.opened.snapshots.write(quorum.image)
        TrueSnapshots().check(seen)
        invariant, end_offset = TrueSnapshots(), quorum.image.provenance.end_offset
        invariant._images[end_offset], invariant._quorums[end_offset] = EMPTY_IMAGE, quorum.opened.history.description
        with pytest.raises(Violation, match="another image"):
            invariant.check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_an_acknowledgement_of_what_nobody_committed_is_flagged() -> None:
    """Unless the process that gave it is another one now."""

    async def story(cluster: Cluster) -> None:
        await healthy(cluster)
        leader = cluster.nodes[await cluster.leader("t")]
        client = await cluster.connect(leader.id)
        check_acknowledged(cluster, ("t", 0), 3, client)
        with pytest.raises(Violation):
            check_acknowledged(cluster, ("t", 0), 4, client)
        leader.kill()
        leader.boot()
        await cluster.settled()
        check_acknowledged(cluster, ("t", 0), 4, client)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_what_a_failed_sync_took_is_the_brokers_until_it_must_have_heard() -> None:
    """The thread that synced knows, the broker does not yet: no log is read in that moment. One that never hears, or
    goes on all the same, is looked at."""

    async def story(cluster: Cluster) -> None:
        observer = await healthy(cluster)
        assert observer.look() is not None
        node = cluster.nodes[2]
        assert node.broker is not None
        log, disk = node.broker.replicas.get("t", 0).log, node.host.disk  # type: ignore[union-attr]
        disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
        file = log.active.file()
        with pytest.raises(OSError):
            file.sync()
        file.evict()
        assert not any(bytes(disk.peek(log.active.path(".log")))[-20:]), "the last batch is gone"
        seen = observer.look()
        assert seen is not None
        assert {each.node_id for key, each in seen.all_replicas() if each.partition.topic == "t"} == {1, 3}
        await asyncio.sleep(HEARD_NS / 1e9 + 1)
        with pytest.raises(MalformedMessage):
            observer.look()

    with Cluster(1) as cluster:
        cluster.live(story)


def test_of_metadata_a_failed_sync_takes_only_what_nobody_called_durable() -> None:
    async def story(cluster: Cluster) -> None:
        observer = await healthy(cluster)
        node = next(each for each in cluster.nodes.values() if each is not cluster.leader_of_quorum())
        assert node.broker is not None
        metadata, disk = node.broker.quorum.opened.log, node.host.disk
        metadata.append([NoOpRecord()], 30, node.broker.quorum.leader_epoch, 0)
        disk.fail(Operation.SYNC, disk.counts[Operation.SYNC] + 1)
        file = metadata.log.active.file()
        with pytest.raises(OSError):
            file.sync()
        file.evict()
        seen = observer.look()
        assert seen is not None and [each.id for each in seen.nodes if each.is_losing_metadata] == [node.id]
        MetadataLogs().check(seen)
        metadata.log.synced_end_offset = metadata.end_offset
        with pytest.raises(MalformedMessage):
            MetadataLogs().check(seen)

    with Cluster(1) as cluster:
        cluster.live(story)


def test_a_log_that_was_cut_is_read_anew() -> None:
    async def story(cluster: Cluster) -> None:
        observer = await healthy(cluster)
        seen = observer.look()
        assert seen is not None
        partition = replica(seen, leads=False)
        content: LogContent = next(each.content for _, each in seen.all_replicas() if each.partition is partition)
        assert [each.base_offset for each in content.batches] == [0, 1, 2, 3]
        partition.log.truncate_to(2, 0)
        observer.look()
        assert [each.base_offset for each in content.batches] == [0, 1]

    with Cluster(1) as cluster:
        cluster.live(story)
