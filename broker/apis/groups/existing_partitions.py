"""Splits requests about offsets of a group: the coordinator gets only the partitions that exist. Its results and the
errors of the other partitions are merged into one response."""

from __future__ import annotations

from typing import Any

from moldau.broker.apis.needs import with_field
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.protocol.errors import ErrorCode
from moldau.protocol.refusals import refused_elements
from moldau.protocol.schema import ZERO_UUID


def remove_missing(cluster: ClusterView, request: Any, version: int, *, by_id: bool = False) -> list[Any]:
    """Remove the partitions that do not exist from a request, and complete the names and ids of its topics. Returns
    results with errors for the removed partitions, by topic. `by_id`: whether this version of the request names topics
    by id."""
    topics = cluster.image.topics
    missing: list[Any] = []
    accepted = []
    for topic in request.topics:
        known = topics.by_id.get(topic.topic_id) if by_id else topics.by_name(topic.name)
        existing = () if known is None else known.partitions
        found = [each for each in topic.partitions if each.partition_index in existing]
        if len(found) < len(topic.partitions):
            lacking = [each for each in topic.partitions if each.partition_index not in existing]
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            part = with_field(request, "topics", [with_field(topic, "partitions", lacking)])
            missing += refused_elements(part, version, error, "topics")
            topic.partitions = found
        if known is not None and found:
            topic.name = known.name
            if hasattr(topic, "topic_id"):
                topic.topic_id = known.id
            accepted.append(topic)
    request.topics = accepted
    return merge_topics([], missing, by_id=by_id)


def add_missing(missing: list[Any], by_id: bool, response: Any) -> Any:
    """Merge the results of partitions that do not exist (`missing`), which come first, with the response."""
    if not by_id:
        for topic in response.topics:
            if hasattr(topic, "topic_id"):
                topic.topic_id = ZERO_UUID
    if missing and not getattr(response, "error_code", ErrorCode.NONE):
        response.topics = merge_topics(missing, response.topics, by_id=by_id)
    return response


def merge_topics(results: list[Any], more: list[Any], *, by_id: bool) -> list[Any]:
    """Merge two lists of results, so that each topic has one element."""
    known = {topic.topic_id if by_id else topic.name: topic for topic in results}
    for topic in more:
        before = known.setdefault(topic.topic_id if by_id else topic.name, topic)
        if before is not topic:
            before.partitions.extend(topic.partitions)
    return [*known.values()]
