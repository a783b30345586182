"""What once went wrong in Apache Kafka's replication, each told again with our replicas: none of it may happen here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from moldau.kraft.features import ELIGIBLE_LEADER_REPLICAS
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition
from moldau.protocol.record_builder import Record, build_batch
from moldau.replication.partition import Partition
from moldau.replication.replica_fetcher import LogWarning, TruncateLog
from moldau.storage.segment.segment import Segment
from tests.support.cluster import Cluster, ClusterNode
from tests.support.node import batch
from tests.support.replica_pair import FOLLOWER, LEADER, FollowerSide, LeaderSide, replica


def grown(epochs: Sequence[int], *, values: str) -> Partition:
    """A replica whose log has one record of each of these leader epochs."""
    partition = replica()
    for offset, (epoch, value) in enumerate(zip(epochs, values, strict=True)):
        records = bytearray(build_batch([Record(value=value.encode(), timestamp=1000)], partition_leader_epoch=epoch))
        records[:8] = offset.to_bytes(8, "big")
        assert partition.log.append_as_follower(bytes(records), epoch, 0).error is ErrorCode.NONE
    return partition


def stored(partition: Partition) -> list[bytes]:
    segments: list[Segment] = partition.log.segments
    return [segment.file().pread(segment.size, 0) for segment in segments if segment.size]


def two_fast_failovers_leave_no_divergence(seed: int) -> None:
    """KIP-279 (KAFKA-6361): leaders 1 and 2 followed one another so fast that each wrote what the other never had. The
    epoch that the follower names is unknown to its leader, which answers with an earlier one; cut to where that one
    ends there alone, the follower would have kept a record of its own between the leader's."""
    ours, theirs = grown((0, 0, 1), values="abx"), grown((0, 2, 2), values="apq")
    leader, follower = LeaderSide(theirs), FollowerSide(ours)
    follower.catch_up(leader)
    cuts = [each.offset for each in follower.effects if isinstance(each, TruncateLog)]
    assert cuts == [1], f"epoch 0 ends at offset 1 there: cut at {cuts}"
    assert b"".join(stored(ours)) == b"".join(stored(theirs))
    assert ours.log.epochs.entries == theirs.log.epochs.entries[: len(ours.log.epochs.entries)]


def a_replica_whose_log_parts_from_its_leaders_commits_nothing(seed: int) -> None:
    """KIP-101: the offset that it asks for says how long its log is, and not that it is the leader's. Counted, it would
    have committed what the leader alone has."""
    ours, theirs = grown((0, 0, 1), values="abx"), grown((0, 2, 2), values="apq")
    leader, follower = LeaderSide(theirs), FollowerSide(ours)
    request = follower.request()
    assert request is not None
    leader.handle(request)
    assert theirs.high_watermark == 0, "three records of which the follower has one"


def a_consumer_with_another_epoch_is_told(seed: int) -> None:
    """KIP-320: one that read from a leader that was deposed is told where its log and the new leader's part; with a
    leader epoch that is over, or not known here yet, it is told that."""
    partition = grown((0, 2, 2), values="apq")
    leader = LeaderSide(partition)
    assert partition.check_leader_epoch(partition.leader_epoch - 1) is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.check_leader_epoch(partition.leader_epoch + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    follower = FollowerSide(grown((0, 0, 1), values="abx"))
    request = follower.request()
    assert request is not None
    request.replica_state = None  # a consumer asks the same
    request.session_id, request.session_epoch, request.max_wait_ms = 0, -1, 0
    answer = leader.handle(request)
    data = answer.responses[0].partitions[0]  # type: ignore[union-attr]
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)
    assert not data.records, "records of another history"


def a_log_that_began_anew_has_its_high_watermark_at_its_start(seed: int) -> None:
    """KAFKA-9491: emptied because it was behind its leader's start, elected at once, a replica had a high watermark
    before its own log, and failed at every look at it."""
    partition = grown((0, 0, 1), values="abx")
    partition.become_follower(LEADER, 5)
    partition.log.truncate_fully_and_start_at(50, 0)
    partition.adapt_to_truncation()
    assert partition.high_watermark == 50
    partition.become_leader(FOLLOWER, 6, (FOLLOWER,), replicas=(LEADER, FOLLOWER), partition_epoch=2)
    assert partition.append(batch("y"), -1, 1000, 9).base_offset == 50
    assert partition.high_watermark == 51


def an_empty_answer_does_not_forget_the_last_epoch(seed: int) -> None:
    """KAFKA-15510: a follower that had an answer without records said nothing of its last epoch from then on, and its
    leader could not tell that the two had parted."""
    ours, theirs = grown((0, 1), values="ab"), grown((0, 1), values="ab")
    leader, follower = LeaderSide(theirs), FollowerSide(ours)
    follower.catch_up(leader)
    follower.machine.on_request_failed(0)  # the connection broke: all is named again
    follower.now_ms = 60_000
    follower.request()
    wishes: list[FetchPartition] = [wish for topic in follower.requests[-1].topics for wish in topic.partitions]
    assert [wish.last_fetched_epoch for wish in wishes] == [1]


def a_cut_below_the_high_watermark_is_told(seed: int) -> None:
    """KAFKA-19474: what was committed is not there any more if an unclean leader was elected. Whoever runs the
    cluster is to read that, and not only that something was truncated."""
    ours, theirs = grown((0, 0, 1), values="abx"), grown((0, 2, 2), values="apq")
    leader, follower = LeaderSide(theirs), FollowerSide(ours)
    ours.high_watermark = 2
    follower.catch_up(leader)
    told = [each.message for each in follower.effects if isinstance(each, LogWarning)]
    assert any("below its high watermark" in each for each in told), told


def the_last_replica_standing_takes_nothing_with_it(seed: int) -> None:
    """KIP-966: one after the other leaves the in-sync set, the last one loses its power with what it had not flushed.
    Nothing was committed while it was alone, so who left when there were two has everything, and leads."""

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", min_insync_replicas=2, retention_ms=-1)
        for number in range(5):
            await produced(cluster, f"v{number}")
        last_id = await cluster.led("t")
        first, second = (node for node in brokers(cluster) if node.id != last_id)
        last = cluster.nodes[last_id]
        first.kill()
        await cluster.until(lambda: set(assigned(last).isr) == {last_id, second.id}, "two in sync", 30)
        await produced(cluster, "v5")
        cluster.world.network.isolate(second.host.name)
        await cluster.until(lambda: assigned(last).isr == (last_id,), "one in sync", 30)
        client = await cluster.connect(last_id)
        answer = await client.produce("t", batch("alone"))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, answer
        client.close()
        last.crash()
        first.boot()
        await asyncio.sleep(5)
        assert not leads(first), "it left while two were in sync: it may lack what was committed after that"
        cluster.world.network.heal()
        await cluster.until(lambda: leads(second), "who left last leads", 60)
        last.boot()
        await cluster.settled()
        await produced(cluster, "v6")
        client = await cluster.connect(await cluster.led("t"))
        data = await client.fetch("t", 0)
        assert data.high_watermark == 7, f"seven records were acknowledged, committed are {data.high_watermark}"
        client.close()

    features = {ELIGIBLE_LEADER_REPLICAS: 1}
    with Cluster(
        seed, nodes=6, controllers=3, features=features, replica_lag_time_max_ms=2000, broker_session_timeout_ms=2000
    ) as cluster:
        cluster.live(story)


def brokers(cluster: Cluster) -> list[ClusterNode]:
    return [node for node in cluster.nodes.values() if "broker" in node.properties["process.roles"]]


def assigned(node: ClusterNode) -> Assigned:
    assert node.broker is not None
    found = node.broker.image.topics.partition("t", 0)
    assert found is not None
    return found


def leads(node: ClusterNode) -> bool:
    found = node.broker.replicas.get("t", 0) if node.broker is not None and hasattr(node.broker, "replicas") else None
    return found is not None and found.is_leader


async def produced(cluster: Cluster, value: str) -> None:
    while True:
        client = await cluster.connect(await cluster.led("t"))
        answer = await client.produce("t", batch(value))
        client.close()
        if answer.error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.1)


ALL: Final[tuple[Callable[[int], None], ...]] = (
    two_fast_failovers_leave_no_divergence,
    a_replica_whose_log_parts_from_its_leaders_commits_nothing,
    a_consumer_with_another_epoch_is_told,
    a_log_that_began_anew_has_its_high_watermark_at_its_start,
    an_empty_answer_does_not_forget_the_last_epoch,
    a_cut_below_the_high_watermark_is_told,
    the_last_replica_standing_takes_nothing_with_it,
)
