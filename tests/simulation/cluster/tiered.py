"""The tiered part of a swarm: its rules, cold readers, and what is owed when all is healed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Final

from moldau.broker.tiering.remote_partitions import FollowedRemoteLog, is_tiered, remote_partition
from moldau.replication.partition import Partition
from moldau.storage.tiered.layout import parse_key
from moldau.testing.simulation.storage import SimulatedBucket
from tests.simulation.cluster.plan import Fault, Plan
from tests.simulation.invariants.observation import Violation
from tests.simulation.tiering.rules import TieringRules
from tests.support.cluster_clients import Bootstrap, Reader
from tests.support.history import Key

if TYPE_CHECKING:
    from moldau.broker.node.node import Node as Broker
    from moldau.kraft.image.topics import Topic
    from tests.simulation.cluster.swarm import Run
    from tests.support.cluster import Cluster

URL: Final = "s3://bucket/prefix"
COPIED_S: Final = 240.0
"""How long a healed cluster may take until all is copied that can be, and nothing else is in the bucket.

A copy takes two seconds if another node leads its partition of the metadata, and a strike leaves fifty segments.
"""
PAUSE_S: Final = 1.0
"""Between two readings of a partition from its beginning."""


class Tiered:
    """`bootstrap_of` gives each client its own way to the cluster, by its name."""

    def __init__(
        self, cluster: Cluster, plan: Plan, run: Run, bootstrap_of: Callable[[str], Bootstrap], trimmed: Set[str]
    ) -> None:
        self.bucket = cluster.world.buckets.setdefault(URL, SimulatedBucket())
        self.rules = TieringRules(self.bucket, trimmed)
        self._cluster = cluster
        self._plan = plan
        self._run = run
        self._bootstrap_of = bootstrap_of
        self._count = 0

    def readers(self, keys: Sequence[Key], is_ended: Callable[[], bool]) -> Iterator[asyncio.Task[None]]:
        """Read these partitions from their beginning, over both tiers, again and again."""
        for key in keys if not self._plan.trims else ():
            yield asyncio.get_running_loop().create_task(self._read_again(key, is_ended))

    async def _read_again(self, key: Key, is_ended: Callable[[], bool]) -> None:
        while not is_ended():
            self._count += 1
            name = f"cold-{self._count}"
            reading = self._run.history.reading(name, key)
            may_rot = Fault.BIT_ROT in self._plan.faults
            reader = Reader(self._bootstrap_of(name), reading, self._run.complaints, may_rot=may_rot)
            await reader.work(lambda: True)
            await asyncio.sleep(PAUSE_S)

    # What is owed at last

    async def settled(self) -> None:
        """Raises `Violation` if copying does not catch up, or something is left in the bucket that no copy is."""
        try:
            await self._cluster.until(lambda: not any(self._behind()), "copies", COPIED_S)
        except AssertionError as error:
            raise Violation(f"not live: {COPIED_S:.0f} s after the last record {list(self._behind())}") from error

    def _behind(self) -> Iterator[str]:
        named: set[bytes] = set()
        topic_ids: set[bytes] = set()
        for broker in self._brokers():
            for partition in broker.replicas:
                if is_tiered(partition) and partition.is_leader:
                    topic_ids.add(partition.topic_id)
                    followed = _followed(broker, partition)
                    if followed is None:
                        yield f"{partition.topic}-{partition.index} is not followed"
                        continue
                    yield from _uncopied(partition, followed)
                    named.update(each.segment_id for each in followed.remote_log.segments())
        yield from self._orphans(named, topic_ids & {topic.id for topic in self._newest_topics()})

    def _orphans(self, named: set[bytes], topic_ids: set[bytes]) -> Iterator[str]:
        """Objects of a topic that is deleted, or not tiered any more, may be left to the sweep: its last leader may
        have ended before they were gone."""
        for key in self.bucket.objects:
            found = parse_key(key)
            if found is not None and found.segment_id not in named and found.partition.topic_id in topic_ids:
                yield f"{key} belongs to no copy"

    def _brokers(self) -> list[Broker]:
        found = [node.broker for node in self._cluster.nodes.values() if node.is_up]
        return [each for each in found if each is not None and each.config.is_broker]

    def _newest_topics(self) -> Iterable[Topic]:
        image = max((each.image for each in self._brokers()), key=lambda each: each.provenance.end_offset)
        return image.topics.by_id.values()


def _followed(broker: Broker, partition: Partition) -> FollowedRemoteLog | None:
    return broker.tiering.reader.get(remote_partition(partition)) if broker.tiering is not None else None


def _uncopied(partition: Partition, followed: FollowedRemoteLog) -> Iterator[str]:
    log, told = partition.log, f"{partition.topic}-{partition.index}"
    if log.config.remote_log_copy_disable or followed.is_being_removed:
        return  # the removal of a broker that is busy otherwise is taken over after ten minutes
    ends = [each.base_offset for each in log.segments[1:] if each.base_offset <= partition.last_stable_offset]
    copied_end = followed.end_offset(log.epochs, log.end_offset)
    if ends and copied_end < ends[-1]:
        yield f"{told} is copied up to {copied_end}, its rolled segments end at {ends[-1]}"
    if followed.remote_log.unfinished_copies() or followed.remote_log.segments_in_deletion():
        yield f"{told} has remains of copies or deletions"
