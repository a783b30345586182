"""DescribeLogDirs (API key 35, versions 1-5; KIP-113, KIP-827, KIP-1066): the partitions in each log directory.

Each partition has its size in bytes; version 4 adds the total and the free bytes of the disk. An offline directory
answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import cut
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moldau.broker.apis.parts import Answering
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext
    from moldau.replication.partition import Partition


def handle(services: Services, context: RequestContext, request: DescribeLogDirsRequest) -> object:
    if request.topics is None:
        partitions = [*services.replicas]
    else:
        wanted = dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)
        partitions = [found for key in wanted if (found := services.replicas.get(*key)) is not None]
    return services.long_requests.answer(context, _described(services, partitions))


def _described(services: Services, partitions: Iterable[Partition]) -> Answering:
    results = []
    for directory in services.config.log_dirs:
        if directory in services.logs.offline:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory))
            continue
        topics: dict[str, DescribeLogDirsTopic] = {}
        for partition in partitions:
            yield
            if partition.log.directory.rpartition("/")[0] != directory:
                continue
            topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
            topic.partitions.append(
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
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory))
            continue
        results.append(
            DescribeLogDirsResult(
                log_dir=directory, topics=list(topics.values()), total_bytes=total_bytes, usable_bytes=usable_bytes
            )
        )
    return DescribeLogDirsResponse(results=results)


API: Final = Api(
    DescribeLogDirsRequest,
    broker=handle,
    needs=needs_cluster(AclOperation.DESCRIBE),
    lists=[cut("topics.partitions", "results.topics.partitions", groups_results=True)],
)
