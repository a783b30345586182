"""Reports to the controller which log directory holds each replica of this broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

from moldau.broker.metadata.topic_creation import ControllerPort
from moldau.broker.replicas.local_logs import LocalLogs
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.protocol.errors import ErrorCode
from moldau.replication.partition import Partition

RETRY_MS: Final = 1000
ASSIGNMENTS_MAX: Final = 200
"""The maximum number of assignments in one request. A controller on this node decides on all of them in one event loop
iteration, at some 45 us each, and writes them in one batch.
"""
ReplicaKey = tuple[bytes, int]
"""The topic id and the index of a partition."""


class DirectoryAssignments:
    """Tells the controller which log directory holds each replica (AssignReplicasToDirs, KIP-858). Assignments noted in
    one event loop iteration go in one request, up to `ASSIGNMENTS_MAX`. If the controller refuses the request, they are
    sent again.
    """

    def __init__(
        self,
        controller: ControllerPort,
        logs: LocalLogs,
        loop: asyncio.AbstractEventLoop,
        broker_id: int,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._controller = controller
        self._logs = logs
        self._loop = loop
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._pending: dict[ReplicaKey, bytes] = {}
        self._is_under_way = True
        """Whether a request is in progress or due.

        True before `begin` too, because the controller would not know this broker.
        """

    def begin(self) -> None:
        """Begin to send assignments, because the broker is registered."""
        self._is_under_way = False
        self._send_soon(0)

    def report(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        self._pending[topic_id, index] = directory_id
        self._send_soon(0)

    def report_log(self, partition: Partition, assigned: Assigned) -> None:
        """Report the log directory of a replica to the controller, if the metadata (`assigned`) names another
        directory.
        """
        directory_id = self._logs.directory_id(self._logs.directory_of(partition.log))
        if directory_id is not None and directory_id != assigned.directory_of(self._broker_id):
            self.report(partition.topic_id, partition.index, directory_id)

    def _send_soon(self, delay_ms: int) -> None:
        if not self._is_under_way and self._pending:
            self._is_under_way = True
            self._loop.call_later(delay_ms / 1000, self._send)

    def _send(self) -> None:
        # Imported here, because with one directory nothing is ever assigned.
        from moldau.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            AssignReplicasToDirsResponse,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        sent = dict(islice(self._pending.items(), ASSIGNMENTS_MAX))
        for key in sent:
            del self._pending[key]
        directories: dict[bytes, dict[bytes, TopicData]] = {}
        for (topic_id, index), directory_id in sent.items():
            topics = directories.setdefault(directory_id, {})
            topic = topics.setdefault(topic_id, TopicData(topic_id=topic_id, partitions=[]))
            topic.partitions.append(PartitionData(partition_index=index))
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=[DirectoryData(id=id_, topics=list(topics.values())) for id_, topics in directories.items()],
        )

        def answered(response: AssignReplicasToDirsResponse) -> None:
            self._is_under_way = False
            is_taken = response.error_code == ErrorCode.NONE
            if not is_taken:
                self._pending = sent | self._pending
            self._send_soon(0 if is_taken else RETRY_MS)

        self._controller.submit(request, answered)
