"""AlterReplicaLogDirs (API key 34, versions 1-2; KIP-113): accepts only the log directory that a replica is in.

DIVERGES: Apache Kafka moves a replica to another log directory of its broker; here that is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import cut
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext


def handle(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Answer each partition. For a partition that is named twice the last directory counts, as in Apache Kafka."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=_error(services, topic, index, path)
                    )
                    for index, path in paths.items()
                ],
            )
            for topic, paths in wanted.items()
        ]
    )


def _error(services: Services, topic: str, index: int, path: str) -> ErrorCode:
    if path not in services.logs.properties:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if path in services.logs.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = services.replicas.get(topic, index)
    if partition is None:
        is_known = services.cluster.image.topics.partition(topic, index) is not None
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_there = services.logs.directory_of(partition.log) == path
    return ErrorCode.NONE if is_there else ErrorCode.UNSUPPORTED_VERSION


API: Final = Api(
    AlterReplicaLogDirsRequest,
    broker=handle,
    needs=needs_cluster(AclOperation.ALTER),
    lists=[cut("dirs.topics.partitions", "results.partitions")],
)
