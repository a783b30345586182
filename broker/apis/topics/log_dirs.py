"""The log directories of a broker (KIP-113).

DescribeLogDirs (API key 35, versions 1-5; KIP-113, KIP-827, KIP-1066): the partitions in each, with their sizes in
bytes. An offline directory answers KAFKA_STORAGE_ERROR.
3: an error for the whole request · 4: the total and the free bytes of the disk (KIP-827) · 5: whether the directory is
cordoned (KIP-1066), which none is here.
AlterReplicaLogDirs (API key 34, versions 1-2; KIP-113): accepts only the directory that a replica is in.
2: tagged fields (KIP-482).

DIVERGES: Apache Kafka moves a replica to another log directory of its broker; here that is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import one_pass
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import Answering, consume_elements, in_parts
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from moldau.replication.partition import Partition
from moldau.security.access import AclOperation


def describe(services: Services, context: RequestContext, request: DescribeLogDirsRequest) -> object:
    return services.long_requests.answer(context, _described(services, request))


def _described(services: Services, request: DescribeLogDirsRequest) -> Answering:
    """Describe each log directory. Yields for each partition, so that other tasks run: a partition that is created or
    deleted meanwhile may be in the answer or not."""
    named: dict[tuple[str, int], Partition] = {}
    for topic in consume_elements(request.topics or []):
        yield
        for index in topic.partitions:
            found = services.replicas.get(topic.topic, index)
            if found is not None:
                named[topic.topic, index] = found
            yield
    partitions = [*services.replicas] if request.topics is None else named.values()
    results = []
    for directory in services.config.log_dirs:
        failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory)
        if directory in services.logs.offline:
            results.append(failed)
            continue
        topics: dict[str, DescribeLogDirsTopic] = {}
        for partition in partitions:
            yield
            if partition.log.directory.rpartition("/")[0] != directory:
                continue
            in_directory = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
            in_directory.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=partition.log.size,
                    offset_lag=0,
                    is_future_key=False,
                )
            )
        try:
            total_bytes, usable_bytes = services.environment.fs.disk_usage(directory)
        except OSError:
            results.append(failed)
            continue
        results.append(
            DescribeLogDirsResult(
                log_dir=directory, topics=list(topics.values()), total_bytes=total_bytes, usable_bytes=usable_bytes
            )
        )
    return DescribeLogDirsResponse(results=results)


def alter(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Answer for each partition by the directory that is named for it; the last one counts, as in Apache Kafka."""
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
                        partition_index=index, error_code=_error_of_move(services, topic, index, path)
                    )
                    for index, path in paths.items()
                ],
            )
            for topic, paths in wanted.items()
        ]
    )


def _error_of_move(services: Services, topic: str, index: int, path: str) -> ErrorCode:
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


APIS: Final = (
    Api(
        DescribeLogDirsRequest,
        broker=describe,
        needs=needs_cluster(AclOperation.DESCRIBE),
        lists=[one_pass("the partitions are looked at in slices", "topics", "topics.partitions")],
    ),
    Api(
        AlterReplicaLogDirsRequest,
        broker=alter,
        needs=needs_cluster(AclOperation.ALTER),
        lists=[in_parts("dirs.topics.partitions", "results.partitions")],
    ),
)
