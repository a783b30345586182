"""Scripted stories, where random faults would need too long to meet the one moment that matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from broker.node import Broker
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse
from protocol.messages.fetch import PartitionData as FetchedData
from protocol.record_builder import Record, build_batch
from replication.fetch_effects import Truncate
from replication.replica_fetcher import FetcherSettings, ReplicaFetcher
from tests.support.cluster import Cluster
from tests.support.node import Client, batch, produce_request
from tests.support.partitions import partition

CREATE_S: Final = 60.0
CONTROLLER_PORT: Final = 9093


async def settled_topic(cluster: Cluster) -> None:
    await cluster.settled()
    await cluster.create("t", min_insync_replicas=2, retention_ms=-1)


def brokers(cluster: Cluster) -> dict[int, Broker]:
    return {node.id: node.broker for node in cluster.nodes.values() if node.broker is not None and node.is_up}


def a_late_copy_of_an_alter_partition_is_refused(seed: int) -> None:
    """A request for another in-sync set that was overtaken: its partition epoch is not the partition's any more.

    Taken, it would bring back into the set whoever left it meanwhile.
    """

    async def story(cluster: Cluster) -> None:
        await settled_topic(cluster)
        leader_id = await cluster.leader("t")
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
        leader_id = await cluster.leader("t")
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
    list(machine.answered(fetched(stale, follower.topic_id), 0, 0))
    assert follower.log.end_offset == 0, "a reply of leader epoch 5 was appended in epoch 6"
    assert follower.high_watermark == 0


def a_follower_truncates_before_it_takes_the_high_watermark(seed: int) -> None:
    """KAFKA-14704: with the leader's high watermark taken first, a follower called its own diverging tail committed."""
    follower, machine = partition(), ReplicaFetcher(2, FetcherSettings())
    follower.become_leader(2, 3, (2, 1), now_ms=0)
    assert follower.append(batch("x", "y"), 1, 1000, 9).error is ErrorCode.NONE
    follower.become_follower(1, 4)
    machine.follow(follower)
    assert machine.next_request(7, 0) is not None
    answer = fetched(diverging(end_offset=1, high_watermark=2), follower.topic_id)
    effects = list(machine.answered(answer, 0, 0))
    assert follower.high_watermark == 0, "the high watermark of a leader with another log was taken"
    assert [each.offset for each in effects if isinstance(each, Truncate)] == [1]


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
    effects = list(machine.answered(answer, 0, 0))
    assert [each.offset for each in effects if isinstance(each, Truncate)] == [2], effects


def a_follower_flushes_what_it_brought_along_before_it_fetches(seed: int) -> None:
    """P2: killed, or deposed, it has a tail in its page cache that its next leader would count as durable: with the
    power of all gone at once, an acknowledged record would be gone where only this one comes back in sync."""
    follower, machine = partition(), ReplicaFetcher(2, FetcherSettings())
    follower.log.config = replace(follower.log.config, flush_messages=1)
    follower.become_follower(1, 3)
    assert follower.append_fetched(batch_of_epoch(3, "a"), 0, 0, 1000).error is ErrorCode.NONE
    follower.become_follower(3, 4)
    effect = machine.follow(follower)
    assert machine.next_request(7, 0) is None, "it tells its leader what it has, and that is not durable"
    assert effect is not None
    follower.log.flush(1000)
    machine.flushed(follower, 4)
    assert machine.next_request(7, 0) is not None


ALL: Final[tuple[Callable[[int], None], ...]] = (
    a_fetch_reply_of_an_earlier_leader_epoch_is_dropped,
    a_follower_truncates_before_it_takes_the_high_watermark,
    a_follower_truncates_by_epoch_and_not_to_its_high_watermark,
    a_follower_flushes_what_it_brought_along_before_it_fetches,
    a_late_copy_of_an_alter_partition_is_refused,
    the_end_of_a_wait_is_no_acknowledgement,
)
