"""The partitions that members serve at their endpoints, for interactive queries of the application."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from moldau.coordinator.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.streams.member import Member
from moldau.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


def partitions_by_endpoint(
    members: Iterable[Member], configured: ConfiguredTopology, partition_count: Callable[[str], int | None]
) -> list[EndpointToPartitions]:
    """For each member that has an endpoint, the partitions of the input topics of its active and standby tasks.

    `partition_count` returns the number of a topic's partitions, None if the topic does not exist.

    DIVERGES: if a topic is missing, Apache Kafka fails with UNKNOWN_SERVER_ERROR, so that the application does not get
    the status that says so; here no partitions of that topic are told.
    """

    def served(tasks: Mapping[str, Collection[int]]) -> list[TopicPartition]:
        subtopologies = configured.subtopologies or {}
        return [
            TopicPartition(topic=topic, partitions=sorted(tasks[key])[:count])
            for key in sorted(tasks)
            if key in subtopologies
            for topic in subtopologies[key].inputs
            if (count := partition_count(topic)) is not None
        ]

    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.user_endpoint.host, port=member.user_endpoint.port),
            active_partitions=served(member.assigned.active),
            standby_partitions=served(member.assigned.standby),
        )
        for member in members
        if member.user_endpoint is not None
    ]
