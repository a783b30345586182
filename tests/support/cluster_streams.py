"""Members of a Streams group (KIP-1071) of a simulated cluster: one subtopology, whose changelog a broker creates.

The watch complains of them as of the members of a consumer group: the active tasks are the partitions of the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moldau.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.support.cluster_group import GroupWatch
from tests.support.cluster_heartbeats import REBALANCE_MS, ConsumerMember

SUBTOPOLOGY = "0"
LEAVE = -1


def partitions_of(tasks: Iterable[TaskIds]) -> list[int]:
    return sorted(partition for each in tasks for partition in each.partitions)


def tasks_of(partitions: list[int]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=SUBTOPOLOGY, partitions=partitions)] if partitions else []


def topology_of(watch: GroupWatch) -> Topology:
    changelog = TopicInfo(name=f"{watch.group}-changelog", partitions=0, replication_factor=0)
    stateful = Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[watch.topic], state_changelog_topics=[changelog])
    return Topology(epoch=0, subtopologies=[stateful])


class StreamsMember(ConsumerMember):
    """An application instance with a process of its own. It gives tasks back at once."""

    version = 0
    _standby: list[int]

    def _drop(self) -> None:
        super()._drop()
        self._standby = []

    def _request(self, epoch: int) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self._watch.group,
            member_id=self._member_id,
            member_epoch=epoch,
            endpoint_information_epoch=0,
            shutdown_application=False,
        )

    def _heartbeat(self) -> object:
        request = self._request(self._generation)
        if not self._generation:
            request.topology = topology_of(self._watch)
            request.process_id = self._name
            request.rebalance_timeout_ms = REBALANCE_MS
        if self._says_everything:
            request.active_tasks = tasks_of(self._owned)
            request.standby_tasks = tasks_of(self._standby)
            request.warmup_tasks = []
        return request

    def _hear(self, answer: Any) -> None:
        if answer.active_tasks is not None:
            told = partitions_of(answer.active_tasks), partitions_of(answer.standby_tasks or ())
            self._says_everything = told != (self._owned, self._standby)
            self._owned, self._standby = told
            self._watch.synced(self._member_id, self._generation, self._owned)

    def _leave(self) -> object:
        return self._request(LEAVE)
