"""Scripted stories, if random faults would need too long to meet the one moment that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.node.node import Node
from moldau.broker.purgatory.purgatory import CommitCallback
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from moldau.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from moldau.protocol.messages.fetch import PartitionData as FetchedData
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.partition import HighWatermarkListener, Partition
from moldau.replication.replica_fetcher import FetcherSettings, ReplicaFetcher, TruncateLog
from moldau.testing.simulation.disk_calls import Operation
from tests.simulation.cluster import fencing
from tests.support.cluster import Cluster, ClusterNode
from tests.support.group_offsets import GROUP, LOST, ask, commit, commit_request, coordinator, offset_request
from tests.support.in_sync_stage import Stage
from tests.support.node import Client, batch, produce_request
from tests.support.partitions import partition
from tests.support.purgatories import ManualLoop, purgatory_of
from tests.support.replica_pair import FOLLOWER, LEADER, TOPIC_ID, FollowerSide, LeaderSide, replica

CREATE_S: Final = 60.0
CONTROLLER_PORT: Final = 9093
LATEST: Final = -1


async def settled_topic(cluster: Cluster) -> None:
    await cluster.settled()
    await cluster.create("t", min_insync_replicas=2, retention_ms=-1)

    def is_known() -> bool:
        return all(broker.image.topics.by_name("t") is not None for broker in brokers(cluster).values())

    await cluster.until(is_known, "everybody knows of it")


def brokers(cluster: Cluster) -> dict[int, Node]:
    return {node.id: node.broker for node in cluster.nodes.values() if node.broker is not None and node.is_up}


def a_late_copy_of_an_alter_partition_is_refused(seed: int) -> None:
    """A request for another in-sync set that was overtaken: its partition epoch is not the partition's any more.

    Taken, it would bring back into the set whoever left it meanwhile.
    """

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader_id = await cluster.led("t")
        follower = next(node for node in cluster.nodes.values() if node.id != leader_id)
        if cluster.leader_of_quorum() is follower:
            follower = next(node for node in cluster.nodes.values() if node.id not in (leader_id, follower.id))
        leader = brokers(cluster)[leader_id]
        before = leader.image.topics.partition("t", 0)
        assert before is not None
        late = AlterPartitionRequest(
            broker_id=leader_id,
            broker_epoch=leader.registration.epoch,
            topics=[
                TopicData(
                    topic_id=leader.image.topics.ids["t"],
                    partitions=[
                        PartitionData(
                            partition_index=0,
                            leader_epoch=before.leader_epoch,
                            partition_epoch=before.partition_epoch,
                            new_isr_with_epochs=[
                                BrokerState(broker_id=each.node_id, broker_epoch=each.registration.epoch)
                                for each in brokers(cluster).values()
                                if each.node_id != follower.id
                            ],
                        )
                    ],
                )
            ],
        )
        follower.kill()  # the set shrinks, and grows again when it is back: two changes

        def is_changed() -> bool:
            now = leader.image.topics.partition("t", 0)
            return now is not None and now.partition_epoch > before.partition_epoch

        await cluster.until(is_changed, "a newer partition epoch", 30)
        follower.boot()
        await cluster.settled()
        await asyncio.sleep(5)
        controller = cluster.leader_of_quorum()
        assert controller is not None
        reader, writer = await asyncio.open_connection(controller.host.name, CONTROLLER_PORT)
        client = Client(reader, writer, "late")
        now = leader.image.topics.partition("t", 0)
        assert now is not None
        late.topics[0].partitions[0].leader_epoch = now.leader_epoch
        reply = await client.ask(late, 3)
        (answer,) = reply.topics[0].partitions
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION, f"a stale AlterPartition was answered {answer}"
        client.close()

    with Cluster(seed, replica_lag_time_max_ms=2000, broker_session_timeout_ms=2000) as cluster:
        cluster.live(story)


def the_end_of_a_wait_is_no_acknowledgement(seed: int) -> None:
    """A leader that nobody follows any more takes a record, and hears later that another one leads: who waits for that
    record is refused, and it is gone."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader_id = await cluster.led("t")
        client = await cluster.connect(leader_id)
        others = [node for node in cluster.nodes.values() if node.id != leader_id]
        cluster.world.network.partition([cluster.nodes[leader_id].host.name], [node.host.name for node in others])
        request = produce_request("t", batch("lost"))
        request.timeout_ms = 120_000
        client.send(request, 9)

        def is_deposed() -> bool:
            broker = brokers(cluster)[others[0].id]
            now = broker.image.topics.partition("t", 0)
            return now is not None and now.leader in (node.id for node in others)

        await cluster.until(is_deposed, "another leader", 30)
        cluster.world.network.heal()
        reply = await client.reply()
        (answer,) = reply.responses[0].partition_responses
        assert answer.error_code != ErrorCode.NONE, f"what another leader does not have was acknowledged: {answer}"
        client.close()

    with Cluster(seed, replica_lag_time_max_ms=2000, broker_session_timeout_ms=2000) as cluster:
        cluster.live(story)


def a_wait_that_takes_too_long_is_no_acknowledgement(seed: int) -> None:
    """Its followers are cut off, and the set has not shrunk yet: the time of the request is up before that."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader_id = await cluster.led("t")
        client = await cluster.connect(leader_id)
        others = [node.host.name for node in cluster.nodes.values() if node.id != leader_id]
        cluster.world.network.partition([cluster.nodes[leader_id].host.name], others)
        request = produce_request("t", batch("late"))
        request.timeout_ms = 200
        reply = await client.ask(request, 9)
        (answer,) = reply.responses[0].partition_responses
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT, f"after 200 ms alone it was answered {answer}"
        client.close()

    with Cluster(seed, replica_lag_time_max_ms=10000) as cluster:
        cluster.live(story)


def an_end_is_not_told_before_it_is_committed(seed: int) -> None:
    """A leader has a record under acks=1 that no follower has: whatever the isolation level, a client that asks where
    the partition ends is told where what is committed ends, and reads nothing past it."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader_id = await cluster.led("t")
        client = await cluster.connect(leader_id)
        assert (await client.produce("t", batch("a"))).error_code == ErrorCode.NONE
        others = [node.host.name for node in cluster.nodes.values() if node.id != leader_id]
        cluster.world.network.partition([cluster.nodes[leader_id].host.name], others)
        answer = await client.produce("t", batch("b"), acks=1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
        for isolation_level in (0, 1):
            assert await latest_offset(client, isolation_level) == 1, f"isolation level {isolation_level}"
            data = await client.fetch("t", 1, isolation_level=isolation_level)
            assert (data.high_watermark, data.records or b"") == (1, b"")
        client.close()

    with Cluster(seed, replica_lag_time_max_ms=10000) as cluster:
        cluster.live(story)


async def latest_offset(client: Client, isolation_level: int) -> int:
    wish = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topic = ListOffsetsTopic(name="t", partitions=[wish])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic])
    answer = (await client.ask(request, 5)).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return int(answer.offset)


def too_few_in_sync_commit_nothing(seed: int) -> None:
    """KIP-966: the last one in sync goes on taking records under acks=1. They are committed when another one is in
    sync again, and not before: what left the set last has all that is committed."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader_id = await cluster.led("t")
        leader = brokers(cluster)[leader_id]
        client = await cluster.connect(leader_id)
        assert (await client.produce("t", batch("a"))).error_code == ErrorCode.NONE
        followers = [node for node in cluster.nodes.values() if node.id in brokers(cluster) and node.id != leader_id]
        followers = [node for node in followers if node.broker is not None and node.broker.config.is_broker]
        for node in followers:
            node.kill()

        def partition_there() -> Partition:
            found = leader.replicas.get("t", 0)
            assert found is not None
            return found

        await cluster.until(lambda: partition_there().isr == (leader_id,), "one in sync", 30)
        assert (await client.produce("t", batch("b"), acks=1)).error_code == ErrorCode.NONE
        await asyncio.sleep(3)
        assert partition_there().high_watermark == 1, "one of three committed a record alone"
        for node in followers:
            node.boot()
        await cluster.until(lambda: partition_there().high_watermark == 2, "it is committed", 30)
        client.close()

    with Cluster(seed, nodes=6, controllers=3, replica_lag_time_max_ms=2000, broker_session_timeout_ms=2000) as cluster:
        cluster.live(story)


def a_coordinator_answers_when_what_it_loaded_is_committed(seed: int) -> None:
    """It has a commit in its log that it does not know to be committed. The leader before it may have acknowledged that
    one: with the offset before it for an answer, it would be lost to the group."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        await commit(cluster, 1)
        while (first_id := await coordinator(cluster)) < 0:
            await asyncio.sleep(0.05)
        first = cluster.nodes[first_id]
        assert first.broker is not None
        index = first.broker.coordinators.groups.partition_of(GROUP)
        assigned = first.broker.image.topics.partition(GROUP_METADATA_TOPIC, index)
        assert assigned is not None
        second, third = (cluster.nodes[each] for each in assigned.replicas if each != first.id)

        def log_of(node: ClusterNode) -> Partition:
            found = node.broker.replicas.get(GROUP_METADATA_TOPIC, index) if node.broker is not None else None
            assert found is not None
            return found

        end_offset = log_of(first).log.end_offset + 1
        third.host.pause()
        client = await cluster.connect(first.id)
        client.send(commit_request(2), 8)
        await cluster.until(lambda: log_of(second).log.end_offset == end_offset, "one of two followers has it", 5)
        first.kill()
        await cluster.until(lambda: log_of(second).is_leader, "that one leads", 10)
        for _ in range(200):
            reply = await ask(cluster, second.id, offset_request(), 7)
            if reply.error_code == ErrorCode.NONE:
                break
            await asyncio.sleep(0.05)
        high_watermark = log_of(second).high_watermark
        assert reply.error_code == ErrorCode.NONE, reply
        answered = reply.topics[0].partitions[0].committed_offset
        assert answered == 2, f"the group was told {answered}, and 2 may have been acknowledged"
        assert high_watermark >= end_offset, f"answered with {high_watermark} of {end_offset} records committed"

    with Cluster(seed, nodes=6, controllers=3, replica_lag_time_max_ms=10000) as cluster:
        cluster.live(story)


def what_is_appended_during_a_sync_waits_for_the_next(seed: int) -> None:
    """P2: the sync that was under way knows nothing of it. Committed with it, it would be gone with the power."""
    leader = partition()
    leader.log.config = replace(leader.log.config, flush_messages=1)
    leader.become_leader(2, 3, (2,), now_ms=0)
    assert leader.append(batch("a"), 1, 1000, 9).error is ErrorCode.NONE
    work = leader.log.pending_flush()
    assert work is not None
    assert leader.append(batch("b"), 1, 1000, 9).error is ErrorCode.NONE
    work.sync_files()
    leader.log.finish_flush(work, 1000)
    leader.advance_high_watermark()
    assert (leader.log.synced_end_offset, leader.high_watermark) == (1, 1), "the second record is not durable"


def a_wait_for_a_commit_that_begins_late_is_settled_in_its_place(seed: int) -> None:
    """P6: a produce with a large batch as well begins to wait for its small one when the large one is examined. Others
    have appended behind it, and wait already."""
    purgatory, leader = purgatory_of(ManualLoop()), partition()
    leader.become_leader(1, 5, (1, 2), partition_epoch=1)
    heard: list[ErrorCode] = []
    for value in "ab":
        assert leader.append(batch(value), -1, 1000, 9).error is ErrorCode.NONE
    purgatory.await_commit(leader, CommitCallback(2, lambda error: None))
    purgatory.await_commit(leader, CommitCallback(1, heard.append))
    leader.note_follower_fetch(2, 1, 0, 1, 0)
    leader.advance_high_watermark()
    assert heard == [ErrorCode.NONE], "the record is committed, and its producer is not told"


def a_leader_whose_sync_failed_acknowledges_nothing(seed: int) -> None:
    """P1, under acks=1 with flush.messages: a sync that fails may take the record along, and a broker with another log
    directory goes on and answers."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", partitions=2, replication_factor=1, flush_messages=1)
        node = cluster.nodes[await cluster.led("t", 1)]
        assert node.broker is not None
        logs = [(each.index, each.log) for each in node.broker.replicas if each.log.directory.startswith("/more")]
        index, log = logs[0]
        client = await cluster.connect(node.id)
        assert (await client.produce("t", batch("a"), partition=index, acks=1)).error_code == ErrorCode.NONE
        syncs = node.host.disk.counts[Operation.SYNC]
        node.host.disk.fail(Operation.SYNC, syncs + 1)
        answer = await client.produce("t", batch("b"), partition=index, acks=1)
        assert log.failure is not None, "the sync did not fail"
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR, f"{answer.error_code} after a failed sync"
        client.close()

    with Cluster(seed, nodes=1, log_dirs="/data,/more") as cluster:
        cluster.live(story)


def a_set_that_may_have_grown_counts_as_grown(seed: int) -> None:
    """KIP-497: the answer was lost with the controller that gave it, and the next one knows a later partition epoch.
    The replica may be a member, and lead next, though it seems gone: nothing is committed without it until metadata
    tells."""
    stage = Stage()
    stage.fetch(3, 0)
    stage.partition.append(batch("a"), 1, 0, 9)
    stage.answer(ErrorCode.INVALID_UPDATE_VERSION)
    stage.brokers[3].is_active = False
    stage.changes.on_brokers_changed()
    stage.fetch(2, 1)
    assert stage.partition.high_watermark == 0, "committed without one that may be in sync"


def fetched(data: FetchedData, topic_id: bytes) -> FetchResponse:
    return FetchResponse(session_id=1, responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[data])])


def diverging(end_offset: int, high_watermark: int) -> FetchedData:
    """A leader's word that its log parts from the asker's where epoch 3 ends."""
    return FetchedData(
        partition_index=0,
        high_watermark=high_watermark,
        log_start_offset=0,
        diverging_epoch=EpochEndOffset(epoch=3, end_offset=end_offset),
        records=b"",
    )


def batch_of_epoch(epoch: int, *values: str) -> bytes:
    return build_batch([Record(value=each.encode(), timestamp=1000) for each in values], partition_leader_epoch=epoch)


def a_fetch_reply_of_an_earlier_leader_epoch_is_dropped(seed: int) -> None:
    """The same broker leads again, in a new epoch, after it followed another for a while: what it said before, it may
    not say any more. A follower that appended it would hold what its leader never had in that epoch."""
    follower, machine = partition(), ReplicaFetcher(2, FetcherSettings())
    follower.become_follower(1, 5)
    machine.follow(follower)
    assert machine.next_request(7, 0) is not None
    follower.become_follower(1, 6)
    machine.follow(follower)
    stale = FetchedData(partition_index=0, high_watermark=2, log_start_offset=0, records=batch_of_epoch(5, "a", "b"))
    list(machine.on_response(fetched(stale, follower.topic_id), 0, 0))
    assert follower.log.end_offset == 0, "a reply of leader epoch 5 was appended in epoch 6"
    assert follower.high_watermark == 0


def a_high_watermark_that_the_follower_dropped_is_sent_again(seed: int) -> None:
    """The response that had it was to a request of the leader epoch before; the fetch session goes on."""
    theirs, mine = replica(), replica()
    leader, follower = LeaderSide(theirs), FollowerSide(mine)
    theirs.append(batch("a"), 1, 0, 9)
    assert follower.fetch_from(leader)
    request = follower.request()
    assert request is not None
    request.max_wait_ms = 0
    answer = leader.handle(request)
    assert isinstance(answer, FetchResponse)
    theirs.become_leader(LEADER, 6, (LEADER, FOLLOWER), replicas=(LEADER, FOLLOWER), partition_epoch=2)
    mine.become_follower(LEADER, 6)
    follower.machine.follow(mine)
    follower.answered(answer, leader)
    assert (theirs.high_watermark, mine.high_watermark) == (1, 0)
    follower.catch_up(leader)
    assert mine.high_watermark == 1, "the leader counts as sent what the follower dropped"


def a_fetch_that_causes_an_append_does_not_wait_for_another(seed: int) -> None:
    """The leader of the partition that it confirms is a coordinator, which appends to another partition at the commit.
    A fetch that waited all the same would hold up that record's commit for replica.fetch.wait.max.ms."""
    confirmed, appended = replica(0), replica(1)
    leader, follower = LeaderSide(confirmed, appended), FollowerSide(replica(0), replica(1))
    confirmed.append(batch("a"), 1, 0, 9)
    assert follower.fetch_from(leader)

    def append() -> None:
        appended.append(batch("b"), 1, 0, 9)

    confirmed.add_listener(HighWatermarkListener(append))
    request = follower.request()
    assert request is not None and request.max_wait_ms > 0
    answer = leader.handle(request)
    assert isinstance(answer, FetchResponse), "the fetch waits, and a record has come for the follower"
    follower.answered(answer, leader)
    assert [each.log.end_offset for each in follower.machine.partitions] == [1, 1]


def a_follower_truncates_before_it_takes_the_high_watermark(seed: int) -> None:
    """KAFKA-14704: with the leader's high watermark taken first, a follower called its own diverging tail committed."""
    follower, machine = partition(), ReplicaFetcher(2, FetcherSettings())
    follower.become_leader(2, 3, (2, 1), now_ms=0)
    assert follower.append(batch("x", "y"), 1, 1000, 9).error is ErrorCode.NONE
    follower.become_follower(1, 4)
    machine.follow(follower)
    assert machine.next_request(7, 0) is not None
    answer = fetched(diverging(end_offset=1, high_watermark=2), follower.topic_id)
    effects = list(machine.on_response(answer, 0, 0))
    assert follower.high_watermark == 0, "the high watermark of a leader with another log was taken"
    assert [each.offset for each in effects if isinstance(each, TruncateLog)] == [1]


def a_follower_truncates_by_epoch_and_not_to_its_high_watermark(seed: int) -> None:
    """KIP-101: what lies above the high watermark may be committed; only what the leader's epochs lack is cut."""
    follower, machine = partition(), ReplicaFetcher(2, FetcherSettings())
    follower.become_follower(1, 3)
    for offset, value in enumerate("abc"):
        records = bytearray(batch_of_epoch(3, value))
        records[:8] = offset.to_bytes(8, "big")
        assert follower.append_fetched(bytes(records), 1, 0, 1000).error is ErrorCode.NONE
    assert (follower.log.end_offset, follower.high_watermark) == (3, 1)
    follower.become_follower(3, 4)
    machine.follow(follower)
    assert machine.next_request(7, 0) is not None
    answer = fetched(diverging(end_offset=2, high_watermark=0), follower.topic_id)
    effects = list(machine.on_response(answer, 0, 0))
    assert [each.offset for each in effects if isinstance(each, TruncateLog)] == [2], effects


def a_follower_flushes_what_it_brought_along_before_it_fetches(seed: int) -> None:
    """P2: killed, or deposed, it has a tail in its page cache that its next leader would count as durable: with the
    power of all gone at once, an acknowledged record would be gone if only this one comes back in sync."""
    follower, machine = partition(), ReplicaFetcher(2, FetcherSettings())
    follower.log.config = replace(follower.log.config, flush_messages=1)
    follower.become_follower(1, 3)
    assert follower.append_fetched(batch_of_epoch(3, "a"), 0, 0, 1000).error is ErrorCode.NONE
    follower.become_follower(3, 4)
    effect = machine.follow(follower)
    assert machine.next_request(7, 0) is None, "it tells its leader what it has, and that is not durable"
    assert effect is not None
    follower.log.flush(1000)
    machine.on_flushed(follower, 4)
    assert machine.next_request(7, 0) is not None


def an_offset_is_not_told_before_it_is_committed(seed: int) -> None:
    """Whoever follows the coordinator is gone: what the group commits now may be lost, and nobody may read it."""

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        await commit(cluster, 5)
        node_id = await coordinator(cluster)
        for node in cluster.nodes.values():
            if node.id != node_id:
                node.kill()
        with suppress(*LOST):
            answer = await ask(cluster, node_id, commit_request(6), 8)
            assert answer.topics[0].partitions[0].error_code, "acknowledged, and nobody else has it"
        reply = await ask(cluster, node_id, offset_request(), 7)
        told = reply.topics[0].partitions[0].committed_offset
        assert reply.error_code or told == 5, f"offset {told} is told, and only this coordinator has it"

    with Cluster(seed) as cluster:
        cluster.live(story)


def metadata_that_is_known_already_ends_no_proposal(seed: int) -> None:
    """The controller's answer was faster than its metadata, and the next replica was proposed meanwhile: that one may
    be a member by now, and commits wait for it."""
    stage = Stage(isr=(1,))
    stage.fetch(2, 0)
    stage.fetch(3, 0)
    stage.answer(ErrorCode.NONE, isr=(1, 2), partition_epoch=8)
    assert stage.wishes()[-1] == ([1, 2, 3], 8)
    stage.partition.become_leader(1, 5, (1, 2), replicas=(1, 2, 3), partition_epoch=8)
    stage.brokers[3].is_active = False
    stage.changes.on_brokers_changed()
    stage.partition.append(batch("a"), 1, 0, 9)
    stage.fetch(2, 1)
    assert stage.partition.high_watermark == 0, "committed without one that may be in sync"


def a_follower_that_lost_its_tail_is_behind_again(seed: int) -> None:
    """What it had before its power went says nothing of what it has now."""
    stage = Stage(isr=(1, 2))
    stage.partition.append(batch("a", "b"), 1, 0, 9)
    stage.brokers[3].is_active = False
    stage.fetch(3, 2)
    stage.fetch(2, 2)
    stage.brokers[3].epoch, stage.brokers[3].is_active = 10, True
    stage.fetch(3, 0, broker_epoch=10)
    assert stage.wishes() == [], "it lacks what is committed"


def a_request_of_a_former_life_counts_no_more(seed: int) -> None:
    """KIP-903: it was sent before the follower's power went, and comes when its next process fetches already."""
    leader = LeaderSide(replica())
    partition = leader.replicas.get("t", 0)
    assert partition is not None
    partition.append(batch("a", "b"), 1, 0, 9)
    for epoch, offset in ((10, 0), (9, 2)):
        leader.handle(replica_fetch(epoch, offset))
    assert partition.high_watermark == 0, "committed is what the follower has lost"


def a_request_of_an_earlier_leader_epoch_counts_not(seed: int) -> None:
    """It says what the follower had then; under the leader between the two it may have cut that away."""
    leader = LeaderSide(replica())
    partition = leader.replicas.get("t", 0)
    assert partition is not None
    partition.append(batch("a", "b"), 1, 0, 9)
    leader.handle(replica_fetch(10, 2, leader_epoch=4))
    assert partition.high_watermark == 0, "committed by what was sent to another leader"


def replica_fetch(broker_epoch: int, offset: int, *, leader_epoch: int = 5) -> FetchRequest:
    wish = FetchPartition(
        partition=0, current_leader_epoch=leader_epoch, fetch_offset=offset, last_fetched_epoch=5, partition_max_bytes=1
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=broker_epoch),
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wish])],
    )


ALL: Final[tuple[Callable[[int], None], ...]] = (
    a_fetch_reply_of_an_earlier_leader_epoch_is_dropped,
    a_high_watermark_that_the_follower_dropped_is_sent_again,
    a_fetch_that_causes_an_append_does_not_wait_for_another,
    a_follower_truncates_before_it_takes_the_high_watermark,
    a_follower_truncates_by_epoch_and_not_to_its_high_watermark,
    a_follower_flushes_what_it_brought_along_before_it_fetches,
    a_late_copy_of_an_alter_partition_is_refused,
    the_end_of_a_wait_is_no_acknowledgement,
    a_wait_that_takes_too_long_is_no_acknowledgement,
    an_end_is_not_told_before_it_is_committed,
    too_few_in_sync_commit_nothing,
    a_coordinator_answers_when_what_it_loaded_is_committed,
    what_is_appended_during_a_sync_waits_for_the_next,
    a_wait_for_a_commit_that_begins_late_is_settled_in_its_place,
    a_leader_whose_sync_failed_acknowledges_nothing,
    a_set_that_may_have_grown_counts_as_grown,
    an_offset_is_not_told_before_it_is_committed,
    metadata_that_is_known_already_ends_no_proposal,
    a_follower_that_lost_its_tail_is_behind_again,
    a_request_of_a_former_life_counts_no_more,
    a_request_of_an_earlier_leader_epoch_counts_not,
    *fencing.ALL,
)
