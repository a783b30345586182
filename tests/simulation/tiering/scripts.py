"""Scripted stories of tiered storage, each with every rule looked at all the while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from moldau.broker.node.node import Node
from moldau.broker.tiering.remote_log_metadata import RemoteLogMetadataReader
from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, remote_partition
from moldau.broker.tiering.tiering import Tiering
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_reader import records_of
from moldau.replication.partition import Partition
from moldau.storage.tiered.layout import parse_key
from moldau.testing.simulation.schedule import SimulationFailed
from moldau.testing.simulation.storage import SimulatedBucket, StorageFaults
from tests.simulation.invariants.observation import Observer
from tests.simulation.tiering.rules import TieringRules
from tests.support.cluster import Cluster
from tests.support.node import Closed, batch
from tests.support.tiered_node import TIERED, TOPIC_SETTINGS, URL
from tests.support.transactions.reader import told_apart

PROPERTIES: Final[dict[str, Any]] = TIERED | {"rlmm_config_remote_log_metadata_topic_replication_factor": 3}
LOOK_S: Final = 0.05
TEN_MINUTES_S: Final = 600.0
READ_COMMITTED: Final = 1
PASSING: Final = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The errors of a remote read: the storage does not answer, or the segment was replaced under the read."""
MANY: Final = 10
MANY_BATCHES: Final = 60


class Stage:
    """A cluster with one tiered partition, `t`-0."""

    def __init__(self, cluster: Cluster, *, keeps_all: bool = True) -> None:
        """`keeps_all`: whether nothing but retention moves the start of the log."""
        self.cluster = cluster
        self.bucket = cluster.world.buckets.setdefault(URL, SimulatedBucket())
        self.observer = Observer(cluster, flushes=False)
        self.rules = TieringRules(self.bucket, frozenset(() if keeps_all else ("t",)))
        self.count = 0
        """Of records that were acknowledged."""
        self.is_watched = True

    def look(self) -> None:
        seen = self.observer.look() if self.is_watched else None
        if seen is not None:
            self.rules.check(seen)

    async def watch(self, look_s: float) -> None:
        while True:
            await asyncio.sleep(look_s)
            try:
                self.look()
            except Exception as error:
                failed = SimulationFailed(f"{type(error).__name__}: {error}")
                failed.__cause__ = error
                self.cluster.world.loop.fail(failed)
                return

    def faults(self) -> list[StorageFaults]:
        """Of all nodes."""
        return [node.host.storage_faults for node in self.cluster.nodes.values()]

    def broker(self, node_id: int) -> Node:
        broker = self.cluster.nodes[node_id].broker
        assert broker is not None
        return broker

    def tiering(self, node_id: int) -> Tiering:
        tiering = self.broker(node_id).tiering
        assert tiering is not None
        return tiering

    def leader(self) -> Partition:
        found = [
            partition
            for node in self.cluster.nodes.values()
            if node.is_up and node.broker is not None
            for partition in node.broker.replicas
            if partition.topic == "t" and partition.is_leader
        ]
        return max(found, key=lambda each: each.leader_epoch)

    def leader_id(self) -> int:
        """The node whose replica leads."""
        leader = self.leader()
        return next(each for each in self.cluster.nodes if leader in self.broker(each).replicas)

    def follows(self, node_id: int) -> bool:
        """Whether a node has read the metadata of the partition."""
        partition = self.broker(node_id).replicas.get("t", 0)
        found = self.tiering(node_id).reader.get(remote_partition(partition)) if partition is not None else None
        return found is not None and found.is_complete

    def followed(self, node_id: int) -> FollowedRemoteLog:
        partition = self.broker(node_id).replicas.get("t", 0)
        assert partition is not None
        found = self.tiering(node_id).reader.get(remote_partition(partition))
        assert found is not None
        return found

    async def fill(self, count: int) -> None:
        """Batches of two records, acknowledged; nothing is refused that a leader was asked for."""
        done = 0
        while done < count:
            with suppress(OSError, Closed, TimeoutError):
                client = await self.cluster.connect(await self.cluster.led("t"))
                while done < count:
                    records = batch(f"a{self.count:06}", f"b{self.count + 1:06}")
                    answer = await asyncio.wait_for(client.produce("t", records), 10)
                    if answer.error_code:
                        break
                    done += 1
                    self.count += 2
                client.close()
            await asyncio.sleep(0.05)

    def is_copied(self) -> bool:
        """Whether all rolled segments are, and nothing else is in the bucket."""
        leader = self.leader()
        found = [node.id for node in self.cluster.nodes.values() if node.broker and leader in node.broker.replicas]
        remote_log = self.followed(found[0]).remote_log
        segments = list(remote_log.segments())
        stored = {each.segment_id for key in self.bucket.objects if (each := parse_key(key)) is not None}
        return (
            leader.log.tiered_end_offset == leader.log.active.base_offset > 0
            and not remote_log.unfinished_copies()
            and not remote_log.segments_in_deletion()
            and stored == {each.segment_id for each in segments}
        )

    async def copied(self, limit_s: float = 120) -> None:
        await self.cluster.until(self.is_copied, "all is copied, and no orphan is there", limit_s)

    async def error_at(self, offset: int) -> ErrorCode:
        """What a fetch at an offset is answered, at last."""
        client = await self.cluster.connect(await self.cluster.led("t"))
        answer = await client.fetch("t", offset, max_wait_ms=500)
        for _ in range(200):
            if answer.error_code or answer.records:
                break
            answer = await client.fetch("t", offset, max_wait_ms=500)
        client.close()
        return ErrorCode(answer.error_code)

    async def read(self, offset: int = 0) -> list[tuple[int, bytes]]:
        """All records from an offset on that are committed, over both tiers. A fetch is repeated after an error that
        passes."""
        found: list[tuple[int, bytes]] = []
        client = await self.cluster.connect(await self.cluster.led("t"))
        while True:
            answer = await client.fetch("t", offset, max_wait_ms=500, isolation_level=READ_COMMITTED)
            if answer.error_code:
                assert answer.error_code in PASSING, ErrorCode(answer.error_code).name
                await asyncio.sleep(0.5)
                continue
            assert answer.records is None or isinstance(answer.records, bytes | memoryview)
            stored, before = bytes(answer.records or b""), offset
            for place, header, is_shown in told_apart(stored, answer):
                found += [
                    (each.offset, bytes(each.value or b""))
                    for each in (records_of(stored, place, header) if is_shown else ())
                    if each.offset >= before
                ]
                offset = header.next_offset
            if offset > before:
                continue
            if offset >= answer.high_watermark:
                client.close()
                return found


def told(
    seed: int,
    story: Callable[[Stage], Awaitable[None]],
    *,
    look_s: float = LOOK_S,
    keeps_all: bool = True,
    properties: Mapping[str, Any] = {},
    **configs: object,
) -> None:
    """A cluster with one tiered topic, in which this happens."""

    async def run(cluster: Cluster) -> None:
        stage = Stage(cluster, keeps_all=keeps_all)
        await cluster.settled()
        await cluster.create(
            "t", **(TOPIC_SETTINGS | {"local_retention_bytes": 1, "index_interval_bytes": 0} | configs)
        )
        await cluster.until(lambda: all(map(stage.follows, cluster.nodes)), "all follow", 60)
        watch = asyncio.get_running_loop().create_task(stage.watch(look_s))
        await story(stage)
        watch.cancel()
        stage.look()

    with Cluster(seed, nodes=3, **(PROPERTIES | dict(properties))) as cluster:
        cluster.live(run, limit_s=4000)


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(each, f"{'ab'[each % 2]}{each:06}".encode()) for each in range(count)]


def copies_wait_for_an_open_transaction(seed: int) -> None:
    """What lies at or past the last stable offset is not copied, however long it stays so."""

    async def story(stage: Stage) -> None:
        await stage.fill(5)
        opening = batch("x", producer_id=9000, producer_epoch=0, base_sequence=0, is_transactional=True)
        assert stage.leader().append_internal(opening, 1000).error is ErrorCode.NONE
        stage.count += 1
        opened = stage.leader().log.end_offset - 1
        await stage.fill(20)
        await asyncio.sleep(8)
        leader = stage.leader()
        assert leader.last_stable_offset == opened
        assert leader.log.tiered_end_offset <= opened
        ended = leader.end_transaction(9000, 0, 1000, is_commit=False, coordinator_epoch=0)
        assert ended.error is ErrorCode.NONE
        await stage.fill(10)
        await stage.copied()

    told(seed, story)


def aborted_records_stay_hidden_in_both_tiers(seed: int) -> None:
    """An aborted transaction has its records in the first segments and its marker some segments later; another one has
    its marker in the last."""

    async def story(stage: Stage) -> None:
        hidden: set[int] = set()

        def write(producer_id: int, sequence: int) -> None:
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            appended = stage.leader().append_internal(batch("x", is_transactional=True, **fields), 1000)
            assert appended.error is ErrorCode.NONE
            hidden.add(appended.base_offset)
            stage.count += 1

        def end(producer_id: int) -> None:
            ended = stage.leader().end_transaction(producer_id, 0, 1000, is_commit=False, coordinator_epoch=0)
            assert ended.error is ErrorCode.NONE
            hidden.add(stage.leader().log.end_offset - 1)
            stage.count += 1

        for sequence in range(2):
            write(9000, sequence)
            await stage.fill(3)
        write(9001, 0)
        await stage.fill(8)
        end(9000)
        write(9002, 0)
        end(9002)
        await stage.fill(8)
        end(9001)
        await stage.fill(3)
        await stage.copied()
        log = stage.leader().log
        await stage.cluster.until(lambda: log.segments == [log.active], "local segments are deleted", 60)
        found = await stage.read()
        assert [offset for offset, _ in found] == [each for each in range(log.end_offset) if each not in hidden]
        assert b"x" not in [value for _, value in found]

    told(seed, story)


def what_is_not_copied_stays_local(seed: int) -> None:
    """The storage takes the objects, and its answers are lost."""

    async def story(stage: Stage) -> None:
        await stage.fill(5)
        for faults in stage.faults():
            faults.loses_answer, faults.timeout_s = 1.0, 1.0
        await stage.fill(15)
        await asyncio.sleep(5)
        assert stage.leader().log.tiered_end_offset < stage.leader().log.active.base_offset
        for faults in stage.faults():
            faults.loses_answer = 0.0
        await stage.copied()
        await stage.cluster.until(lambda: stage.leader().log.local_start_offset > 1, "local segments are deleted", 60)
        assert await stage.read() == expected(stage.count)
        assert await stage.read(1) == expected(stage.count)[1:], "a reader begins with the second record of a batch"

    told(seed, story)


def the_bucket_is_away_for_ten_minutes(seed: int) -> None:
    """Produce and hot reads never fail, cold reads fail with an error that clients repeat; then all comes back."""
    told(seed, _while_struck(lambda each: setattr(each, "is_away", True)), look_s=1.0)


def the_credentials_expire(seed: int) -> None:
    """As the bucket that is away. New credentials are found without a restart."""
    told(seed, _while_struck(lambda each: setattr(each, "credentials_end_s", 0.0)), look_s=1.0)


def the_bucket_is_full(seed: int) -> None:
    """Copying stops, cold reads do not, and local segments stay."""
    strike = _while_struck(lambda each: setattr(each, "capacity_bytes", 0.0), are_cold_reads_served=True)
    told(seed, strike, look_s=1.0)


def _while_struck(
    strike: Callable[[StorageFaults], None], *, are_cold_reads_served: bool = False
) -> Callable[[Stage], Awaitable[None]]:
    async def story(stage: Stage) -> None:
        await stage.fill(20)
        await stage.copied()
        leader = stage.leader()
        await stage.cluster.until(lambda: leader.log.local_start_offset > 10, "local segments are deleted", 60)
        for faults in stage.faults():
            strike(faults)
        began_s = stage.cluster.world.now_s
        while stage.cluster.world.now_s < began_s + TEN_MINUTES_S:
            local_start_offset, before = leader.log.local_start_offset, stage.count
            await stage.fill(2)
            hot = await stage.read(before)
            assert [value for _, value in hot] == [value for _, value in expected(stage.count)[before:]]
            assert leader.log.local_start_offset == local_start_offset, "what is not copied stays"
            cold = await stage.error_at(0)
            assert cold is (ErrorCode.NONE if are_cold_reads_served else ErrorCode.KAFKA_STORAGE_ERROR), cold
            await asyncio.sleep(30)
        for faults in stage.faults():
            faults.is_away, faults.credentials_end_s, faults.capacity_bytes = False, float("inf"), float("inf")
        await stage.copied()
        assert await stage.read() == expected(stage.count)

    return story


def retention_counts_each_byte_once(seed: int) -> None:
    """`retention.bytes` of both tiers, if much of what is copied is still local."""

    async def story(stage: Stage) -> None:
        await stage.fill(40)
        await stage.cluster.until(lambda: stage.leader().log.log_start_offset > 0, "retention has deleted", 60)
        await stage.fill(20)
        await stage.copied()
        start_offset = stage.leader().log.log_start_offset
        assert await stage.read(start_offset) == expected(stage.count)[start_offset:]

    told(seed, story, retention_bytes=3000, local_retention_bytes=1500)


def two_leaders_copy_one_range(seed: int) -> None:
    """A broker that has read nothing of the metadata for a while becomes the leader, and copies what is copied already.
    Once both copies are finished, one of them is read, and counts."""

    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.fill(1)
        first = await cluster.led("t")
        others = [each for each in cluster.nodes if each != first]
        readers = [stage.tiering(each).reader for each in others]
        for reader in readers:
            vars(reader)[RemoteLogMetadataReader._replay_bytes.__name__] = deaf
        await stage.fill(10)
        await stage.cluster.until(lambda: len(stage.followed(first).remote_log.read_segments()) > 1, "copies", 60)
        cluster.nodes[first].kill()
        await cluster.until(lambda: any(reader._expected for reader in readers), "the next leader begins a copy", 60)
        for reader in readers:
            del vars(reader)[RemoteLogMetadataReader._replay_bytes.__name__]
        cluster.nodes[first].boot()
        await cluster.settled()
        second = await cluster.led("t")
        await cluster.until(lambda: bool(stage.followed(second).remote_log.superseded_copies()), "two copies", 60)
        await stage.fill(5)
        await stage.copied()
        assert await stage.read() == expected(stage.count)

    told(seed, story)


def the_metadata_of_many_topics_is_read_at_once(seed: int) -> None:
    """Segments of several topics are copied at the same time, and each broker reads the metadata of all of them from
    several leaders, whose responses come one upon the other."""

    async def story(stage: Stage) -> None:
        names = [f"u{number}" for number in range(MANY)]
        for name in names:
            await stage.cluster.create(name, **TOPIC_SETTINGS)
        clients = [(name, await stage.cluster.connect(await stage.cluster.led(name))) for name in names]
        for number in range(MANY_BATCHES):
            for name, client in clients:
                answer = await client.produce(name, batch(f"a{number:06}", f"b{number:06}"))
                assert answer.error_code == 0
        await stage.fill(10)
        await stage.cluster.until(lambda: stage.leader().log.tiered_end_offset > 10, "segments are copied", 60)
        await asyncio.sleep(5)

    told(seed, story)


async def deaf(index: int, position: int, data: object) -> bool:
    """In place of `RemoteLogMetadataReader._replay_bytes`: nothing is read for now."""
    await asyncio.sleep(0.2)
    return False


ALL: Final[tuple[Callable[[int], None], ...]] = (
    what_is_not_copied_stays_local,
    copies_wait_for_an_open_transaction,
    aborted_records_stay_hidden_in_both_tiers,
    retention_counts_each_byte_once,
    two_leaders_copy_one_range,
    the_metadata_of_many_topics_is_read_at_once,
)
LONG: Final[tuple[Callable[[int], None], ...]] = (
    the_bucket_is_away_for_ten_minutes,
    the_credentials_expire,
    the_bucket_is_full,
)
"""Some seconds each."""
