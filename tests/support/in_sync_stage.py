"""A leader whose in-sync set changes: the controller's answers are the test's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.replicas.in_sync_changes import InSyncChanges
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk

TOPIC_ID = bytes(16)


class Stage:
    """A leader of t-0 with followers 2 and 3, and a controller whose answers the test gives."""

    def __init__(self, isr: tuple[int, ...] = (1, 2)) -> None:
        disk = SimulatedDisk("a seed")
        disk.make_directories("/t-0")
        self.partition = Partition("t", TOPIC_ID, 0, Log.open(disk, "/t-0", LogConfig(), now_ms=0), 0)
        self.partition.become_leader(1, 5, isr, replicas=(1, 2, 3), partition_epoch=7)
        self.asked: list[tuple[AlterPartitionRequest, Callable[[AlterPartitionResponse], None]]] = []
        self.later: list[Callable[[], None]] = []
        self.brokers = {
            each: SimpleNamespace(
                is_active=True, epoch=9, has_online_directory=lambda directory_id: directory_id not in self.lost
            )
            for each in (1, 2, 3)
        }
        self.lost: set[bytes] = set()
        """The offline log directories; each broker has one."""
        assigned = SimpleNamespace(directory_of=lambda replica: b"%d" % replica)
        image = SimpleNamespace(
            cluster=SimpleNamespace(brokers=self.brokers),
            topics=SimpleNamespace(partition=lambda topic, index: assigned),
        )
        self.changes = InSyncChanges(
            node_id=1,
            lag_ms_max=30_000,
            replicas=cast("Any", [self.partition]),
            cluster=cast("Any", SimpleNamespace(image=image)),
            controller=cast("Any", SimpleNamespace(submit=lambda request, reply: self.asked.append((request, reply)))),
            broker_epoch=lambda: 4,
            environment=cast("Any", SimpleNamespace(monotonic_ms=lambda: 0)),
            loop=cast("Any", SimpleNamespace(call_later=lambda _, call: self.later.append(call))),
        )

    def fetch(self, replica_id: int, offset: int, broker_epoch: int = 9) -> None:
        self.partition.note_follower_fetch(replica_id, offset, 0, broker_epoch, 0)
        self.changes.propose_if_caught_up(self.partition, replica_id, 0)
        self.partition.advance_high_watermark()

    def wishes(self) -> list[tuple[list[int], int]]:
        """The in-sync sets requested so far, with the partition epochs."""
        return [
            (each.new_isr, each.partition_epoch)
            for request, _ in self.asked
            for topic in request.topics
            for each in topic.partitions
        ]

    def answer(self, error: ErrorCode, isr: tuple[int, ...] = (), partition_epoch: int = 0) -> None:
        result = PartitionResult(partition_index=0, error_code=error, isr=list(isr), partition_epoch=partition_epoch)
        self.asked[-1][1](AlterPartitionResponse(topics=[TopicResult(topic_id=TOPIC_ID, partitions=[result])]))

    @property
    def proposed(self) -> tuple[int, ...] | None:
        assert self.partition.leadership is not None
        return self.partition.leadership.in_sync.proposed
