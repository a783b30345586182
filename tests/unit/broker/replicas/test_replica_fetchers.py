"""A replica fetcher that has to truncate a log, and what else happens to the log before it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.cli.invocation import load_config
from moldau.broker.replicas.replica_fetchers import FetcherPorts, ReplicaFetchers, RunningFetcher
from moldau.broker.runtime.flusher import Flusher
from moldau.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from moldau.replication.partition import Partition
from moldau.replication.replica_fetcher import Effect, RebuildFromRemote, RestartLogAt, TruncateLog
from moldau.replication.replication_quota import ReplicationQuota
from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.log import producer_replay, truncation
from moldau.storage.log.truncation import RemoteStart
from moldau.storage.log_config import LogConfig
from moldau.storage.producers.producer_snapshot import encode_snapshot
from moldau.storage.producers.producer_state import ProducerStates
from moldau.testing.simulation.disk import SimulatedDisk
from tests.unit.storage.stories import NOW_MS, append, open_log, read_all

TOPIC_ID = bytes(range(16))
LEADER = 1
PATH = "/d/t-0"
CONFIG = LogConfig(is_tiered=True)
TURNS_OF_WORK = 6
"""The number of turns of the event loop that work outside of it takes."""


class Follower:
    """A follower of one partition with five records, of which its leader has the first two, or has tiered more."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.make_directories("/d")
        log = open_log(self.disk, PATH, CONFIG)
        for number in range(5):
            append(log, f"old {number}", leader_epoch=3)
        self.partition = Partition("t", TOPIC_ID, 0, log, 0)
        self.during_checkpoint: Callable[[], None] = lambda: None
        self.flusher = Flusher(cast("Any", self), cast("Any", None))
        broker = cast("Any", self)
        ports = FetcherPorts(
            node_id=2,
            config=load_config(None, None, [], {}),
            environment=broker,
            loop=cast("Any", SimpleNamespace(call_soon=lambda *_: None)),
            cluster=broker,
            brokers=broker,
            logs=broker,
            flusher=self.flusher,
            quota=ReplicationQuota(),
            broker_epoch=lambda: 1,
            spawn=broker,
            remote_state=broker,
        )
        self.fetcher = RunningFetcher(ReplicaFetchers(ports), ports, LEADER)
        self.partition.become_follower(LEADER, 4)
        self.fetcher.follow(self.partition)

    # The parts of a broker that the fetcher uses

    def wall_ms(self) -> int:
        return NOW_MS

    monotonic_ms = wall_ms

    async def offload(self, work: Callable[[], None]) -> None:
        for _ in range(TURNS_OF_WORK):
            await asyncio.sleep(0)
        work()

    async def checkpoint(self) -> bool:
        self.during_checkpoint()
        return True

    async def before_local_log(self, partition: Partition, leader_epoch: int, log_start_offset: int) -> RemoteStart:
        return RemoteStart(50, 0, (EpochStart(3, 0),), encode_snapshot(ProducerStates()))

    # What happens

    def answered(self, **fields: Any) -> Effect:
        """The effect of the leader's answer to a fetch."""
        machine = self.fetcher._machine
        assert machine.next_request(9, NOW_MS) is not None
        data = PartitionData(partition_index=0, high_watermark=0, **fields)
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        (effect,) = machine.on_response(FetchResponse(session_id=7, responses=[topic]), NOW_MS, NOW_MS)
        return effect

    def diverges(self) -> TruncateLog:
        effect = self.answered(diverging_epoch=EpochEndOffset(epoch=3, end_offset=2))
        assert isinstance(effect, TruncateLog) and effect.offset == 2
        return effect

    def is_too_late(self) -> RebuildFromRemote:
        effect = self.answered(error_code=109, log_start_offset=0)
        assert isinstance(effect, RebuildFromRemote)
        return effect

    def recreate_topic(self) -> None:
        """Delete the topic, and create another one of the same name."""
        self.fetcher.unfollow(self.partition)
        self.partition.notify_removed()
        self.partition.log.close(NOW_MS, clean=False)
        self.disk.rename(PATH, "/d/t-0.deleted")
        new = open_log(self.disk, PATH, CONFIG)
        for number in range(7):
            append(new, f"new {number}")
        new.release_files()


@pytest.mark.parametrize("is_tiered", [False, True])
def test_a_truncation_does_not_reach_the_log_of_a_later_topic_of_the_same_name(is_tiered: bool) -> None:
    follower = Follower()
    follower.during_checkpoint = follower.recreate_topic
    if is_tiered:
        asyncio.run(follower.fetcher._rebuild(follower.is_too_late()))
    else:
        asyncio.run(follower.fetcher._truncate(follower.diverges()))
    assert read_all(open_log(follower.disk, PATH, CONFIG)) == {number: f"new {number}" for number in range(7)}


def test_a_log_is_truncated_and_goes_on() -> None:
    follower = Follower()
    asyncio.run(follower.fetcher._truncate(follower.diverges()))
    log = follower.partition.log
    assert log.end_offset == 2 and log.recovery_point_max > 5
    assert follower.fetcher._machine.next_request(9, NOW_MS) is not None


def test_a_log_goes_on_after_its_remote_part() -> None:
    follower = Follower()
    asyncio.run(follower.fetcher._rebuild(follower.is_too_late()))
    assert follower.partition.log.local_start_offset == 50


def test_before_a_log_is_emptied_its_recovery_point_is_at_its_first_batch() -> None:
    """Of a crash in between the end of the log is gone, and the start still there."""
    follower = Follower()
    log, machine, seen = follower.partition.log, follower.fetcher._machine, []
    log.flush(NOW_MS)
    follower.during_checkpoint = lambda: seen.append(log.recovery_point)
    follower.answered(error_code=1)
    (effect,) = machine.on_looked_up(follower.partition, 4, 9, 12)
    assert isinstance(effect, RestartLogAt)
    asyncio.run(follower.fetcher._truncate(effect))
    assert seen == [0] and log.log_start_offset == log.end_offset == 9


def test_a_truncation_that_a_new_leader_makes_needless_leaves_the_log_as_it_is() -> None:
    follower = Follower()
    partition = follower.partition
    follower.during_checkpoint = lambda: partition.become_follower(LEADER, 5)
    asyncio.run(follower.fetcher._truncate(follower.diverges()))
    assert partition.log.end_offset == 5 and partition.log.recovery_point_max > 5


def test_a_truncation_waits_for_the_flush_in_progress() -> None:
    """Both write the leader epoch checkpoint: one would remove the temporary file of the other."""

    async def story() -> None:
        follower = Follower()
        log, effect = follower.partition.log, follower.diverges()
        work = log.pending_flush()
        assert work is not None
        flushing = asyncio.ensure_future(follower.flusher._run(log, work))
        truncating = asyncio.ensure_future(follower.fetcher._truncate(effect))
        for _ in range(TURNS_OF_WORK - 1):
            await asyncio.sleep(0)
            assert log.end_offset == 5 and log.flush_in_flight is work
        await flushing
        await truncating
        assert log.end_offset == log.recovery_point == 2

    asyncio.run(story())


def test_the_producers_of_a_truncated_log_are_restored_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a segment of small batches that takes seconds, which the event loop must not wait for."""
    monkeypatch.setattr(producer_replay, "STEP_SIZE", 1)
    monkeypatch.delattr(truncation, "load_producers")

    async def story() -> int:
        follower = Follower()
        truncating = asyncio.ensure_future(follower.fetcher._truncate(follower.diverges()))
        turns = 0
        while not truncating.done():
            turns += 1
            await asyncio.sleep(0)
        await truncating
        assert follower.partition.log.end_offset == 2
        return turns

    assert asyncio.run(story()) > 2
