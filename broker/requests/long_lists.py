"""APIs whose long requests are cut in ways of their own: Fetch, Metadata, DescribeTopicPartitions and CreateTopics."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from moldau.broker.network.client_quotas import is_exempt
from moldau.broker.requests.parts import SIZE, ListPath, Parts, Pause, RequestPart, pieces, sorted_in_slices
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.refusals import refused
from moldau.replication.fetch_session import FINAL_EPOCH, SESSION_PARTITIONS_MAX

if TYPE_CHECKING:
    from moldau.broker.network.route import Handler, RequestContext


def too_many_topics(request: object) -> Handler | None:
    """DIVERGES: Apache Kafka asks the ACLs before it refuses more than 10,000 topics; here all are refused at once."""
    assert isinstance(request, CreateTopicsRequest)
    if len(request.topics) <= NEW_PARTITIONS_MAX:
        return None

    return lambda context, part: refused(
        part,
        context.version,
        ErrorCode.POLICY_VIOLATION,
        "Unable to perform excessively large batch operation.",
    )


class MetadataParts(Parts):
    """How requests for the metadata of topics are cut."""

    __slots__ = ()

    def of(self, request: object) -> Generator[RequestPart | Pause | None, object, None]:
        """A request for more topics than one request may create creates none, as in Apache Kafka. DIVERGES: topics that
        exist count here.
        """
        assert isinstance(request, MetadataRequest)
        if len(request.topics or ()) > NEW_PARTITIONS_MAX:
            request = copy(request)
            request.allow_auto_topic_creation = False
        return Parts.of(self, request)


TOPICS: Final = ListPath("topics.partitions", "responses.partitions")
EXAMINED_AT_ONCE: Final = 4_096
"""Topics of a fetch that are looked at without a pause."""
FORGOTTEN: Final = ListPath("forgotten_topics_data.partitions", "responses.partitions")


@dataclass(frozen=True, slots=True)
class FetchParts(Parts):
    """How the fetches of consumers are cut. DIVERGES: records that arrive while such a fetch waits are sent when its
    wait is over; Apache Kafka sends them at once.
    """

    lists: tuple[ListPath, ...] = (TOPICS, FORGOTTEN)
    long_from: int = SESSION_PARTITIONS_MAX
    open_max: int = 1
    is_exempt: Callable[[RequestContext, object], bool] | None = is_exempt

    def of(self, request: object) -> Generator[RequestPart | Pause | None, object, None]:
        assert isinstance(request, FetchRequest)
        if request.session_epoch > 0:
            yield RequestPart(_changed(request, session_id=0, topics=[]), TOPICS, continues=False)
            return
        topics: list[FetchTopic] = []
        for first in range(0, len(request.topics), EXAMINED_AT_ONCE):
            # No result is about a topic without partitions.
            topics += [each for each in request.topics[first : first + EXAMINED_AT_ONCE] if each.partitions]
            yield None
        if not topics:
            yield RequestPart(_changed(request, topics=[]), TOPICS, continues=False)
            return
        for wait_ms in (request.max_wait_ms, 0):
            left = request.max_bytes
            for piece in pieces(topics, ["partitions"], self.size, consumes=False):
                part = _changed(
                    request, session_epoch=FINAL_EPOCH, max_wait_ms=0, max_bytes=left, topics=piece.elements
                )
                response = yield RequestPart(part, TOPICS, piece.continues)
                left -= records_size(response)
                if left <= 0 or _has_failed(response):
                    break
            if wait_ms <= 0 or request.min_bytes <= 0 or left < request.max_bytes or _has_failed(response):
                return
            yield Pause(wait_ms)


def _changed(request: FetchRequest, **fields: object) -> FetchRequest:
    part = copy(request)
    part.forgotten_topics_data = []
    for name, value in fields.items():
        setattr(part, name, value)
    return part


def records_size(response: object) -> int:
    """The bytes of the records in a response."""
    assert isinstance(response, FetchResponse)
    return sum(len(data.records) for topic in response.responses for data in topic.partitions if data.records)


def _has_failed(response: object) -> bool:
    """Whether the whole request failed, or the client is throttled."""
    return isinstance(response, FetchResponse) and (response.error_code != 0 or response.throttle_time_ms > 0)


TOPIC_NAMES: Final = ListPath("topics", "topics")
PAGE_PARTITIONS_MAX: Final = 2_000
"""The most partitions in a page of several parts: the default of max.request.partition.size.limit. A page may have
fewer than the client allows.
"""


@dataclass(frozen=True, slots=True)
class TopicPages(Parts):
    """The parts of one page: it ends where the partitions of its topics reach the limit of the request."""

    lists: tuple[ListPath, ...] = (TOPIC_NAMES,)
    open_max: int = 1

    def of(self, request: object) -> Generator[RequestPart | Pause | None, object, None]:
        assert isinstance(request, DescribeTopicPartitionsRequest)
        cursor = request.cursor
        is_cursor_named = cursor is None or any(each.name == cursor.topic_name for each in request.topics)
        is_refused = cursor is not None and (cursor.partition_index < 0 or not is_cursor_named)
        first_name = "" if cursor is None or is_refused else cursor.topic_name
        names = yield from sorted_in_slices((each.name for each in request.topics), first_name)
        sorted_names = _distinct(names)
        left = max(min(request.response_partition_limit, PAGE_PARTITIONS_MAX), 1)
        while names_of_part := list(islice(sorted_names, SIZE)):
            part = copy(request)
            part.cursor = cursor
            part.topics = [TopicRequest(name=name) for name in names_of_part]
            part.response_partition_limit = left
            response = yield RequestPart(part, TOPIC_NAMES, continues=False)
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
