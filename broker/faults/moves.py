"""Moves leaders and coordinators for a test, by requests to the controller, like an administrator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from moldau.broker.faults.fault import object_of
from moldau.broker.faults.messages import InvalidFault
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

if TYPE_CHECKING:
    from moldau.broker.coordinators.composition import BrokerCoordinators
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.broker.metadata.quorum import Quorum

PATIENCE_S: Final = 10.0
PREFERRED: Final = 0
METADATA_WAIT_S: Final = 2.0
"""The time (s) for which a move waits until this node's metadata has the partition, because another node may have just
created it.
"""
POLL_S: Final = 0.02


class LeaderMoves:
    """Moves the leaders of partitions to other replicas."""

    def __init__(
        self, cluster: ClusterView, quorum: Quorum, coordinators: BrokerCoordinators, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._cluster = cluster
        self._quorum = quorum
        self._coordinators = coordinators
        self._loop = loop

    async def move(self, described: object) -> dict[str, object]:
        """Move the leader of {"topic", "partition"}, or the coordinator of {"group"} or {"transactional_id"}, to the
        replica on {"node"}. Returns when that replica leads. Raises `InvalidFault`.
        """
        given = object_of(described, "the body")
        for name in given:
            if name not in ("topic", "partition", "group", "transactional_id", "node"):
                raise InvalidFault(f"{name} is unknown: here are topic, partition, group, transactional_id, node")
        topic, index = self._partition(given)
        partition = self._cluster.image.topics.partition(topic, index)
        end_s = self._loop.time() + METADATA_WAIT_S
        while partition is None and self._loop.time() < end_s:
            await asyncio.sleep(POLL_S)
            partition = self._cluster.image.topics.partition(topic, index)
        if partition is None:
            raise InvalidFault(f"there is no partition {topic}-{index}")
        node = given.get("node")
        if node not in partition.replicas:
            raise InvalidFault(f"node is {node!r}, and the replicas of {topic}-{index} are {list(partition.replicas)}")
        order = [node, *(each for each in partition.replicas if each != node)]
        wanted = ReassignablePartition(partition_index=index, replicas=order)
        reassigned = await self._asked(
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[wanted])])
        )
        _raise(reassigned.error_code or reassigned.responses[0].partitions[0].error_code, topic, index)
        elected = await self._asked(
            ElectLeadersRequest(
                election_type=PREFERRED, topic_partitions=[TopicPartitions(topic=topic, partitions=[index])]
            )
        )
        results = elected.replica_election_results
        error = elected.error_code or (results[0].partition_result[0].error_code if results else 0)
        if error != ErrorCode.ELECTION_NOT_NEEDED:
            _raise(error, topic, index)
        return {"topic": topic, "partition": index, "leader": node}

    def _partition(self, given: dict[str, Any]) -> tuple[str, int]:
        named = [name for name in ("topic", "group", "transactional_id") if name in given]
        if len(named) != 1:
            raise InvalidFault("the body names one of topic, group and transactional_id")
        (name,) = named
        if not isinstance(given[name], str):
            raise InvalidFault(f"{name} is {given[name]!r}, and must be a text")
        if name == "topic":
            index = given.get("partition", 0)
            if type(index) is not int:
                raise InvalidFault(f"partition is {index!r}, and must be a number")
            return given[name], index
        if name == "group":
            return GROUP_METADATA_TOPIC, self._coordinators.groups.partition_of(given[name])
        return TRANSACTION_STATE_TOPIC, self._coordinators.transactions.partition_of(given[name])

    async def _asked(self, request: object) -> Any:
        """Send a request to the active controller, and return the response. Raises `InvalidFault` if there is none
        within `PATIENCE_S`.
        """
        answer: asyncio.Future[object] = self._loop.create_future()
        self._quorum.submit(request, lambda response: None if answer.done() else answer.set_result(response))
        try:
            return await asyncio.wait_for(answer, PATIENCE_S)
        except TimeoutError:
            raise InvalidFault(f"the controller did not answer within {PATIENCE_S:g} s") from None


def _raise(error: int, topic: str, index: int) -> None:
    if error:
        raise InvalidFault(f"the controller refuses to move {topic}-{index}: {ErrorCode(error).name}")
