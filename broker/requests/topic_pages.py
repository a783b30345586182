"""DescribeTopicPartitions for many topics: the names are sorted and described part by part, up to one page."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Final

from moldau.broker.requests.parts import SIZE, ListPath, Parts, Pause, RequestPart
from moldau.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

TOPICS: Final = ListPath("topics", "topics")
PAGE_PARTITIONS_MAX: Final = 2_000
"""The most partitions in a page of several parts: the default of max.request.partition.size.limit. A page may have
fewer than the client allows.
"""
SORTED_AT_ONCE: Final = 512
"""The most names that are sorted without a pause."""


@dataclass(frozen=True, slots=True)
class TopicPages(Parts):
    """The parts of one page: it ends where the partitions of its topics reach the limit of the request."""

    lists: tuple[ListPath, ...] = (TOPICS,)
    open_max: int = 1

    def of(self, request: object) -> Generator[RequestPart | Pause | None, object, None]:
        assert isinstance(request, DescribeTopicPartitionsRequest)
        cursor = request.cursor
        is_cursor_named = cursor is None or any(each.name == cursor.topic_name for each in request.topics)
        is_refused = cursor is not None and (cursor.partition_index < 0 or not is_cursor_named)
        first_name = "" if cursor is None or is_refused else cursor.topic_name
        runs: list[list[str]] = []
        for start in range(0, len(request.topics), SORTED_AT_ONCE):
            names = (each.name for each in request.topics[start : start + SORTED_AT_ONCE])
            runs.append(sorted(name for name in names if name >= first_name))
            yield None
        sorted_names = _distinct(heapq.merge(*runs))
        left = max(min(request.response_partition_limit, PAGE_PARTITIONS_MAX), 1)
        while names_of_part := list(islice(sorted_names, SIZE)):
            part = copy(request)
            part.cursor = cursor
            part.topics = [TopicRequest(name=name) for name in names_of_part]
            part.response_partition_limit = left
            response = yield RequestPart(part, TOPICS, continues=False)
            if not is_refused:
                cursor = None
            assert isinstance(response, DescribeTopicPartitionsResponse)
            left -= sum(len(each.partitions) for each in response.topics)
            if response.next_cursor is not None:
                return
            if left <= 0:
                following = next(sorted_names, None)
                if following is not None:
                    response.next_cursor = Cursor(topic_name=following, partition_index=0)
                return


def _distinct(names: Iterator[str]) -> Iterator[str]:
    """Sorted names, each once."""
    before = None
    for name in names:
        if name != before:
            yield name
        before = name
