"""Cuts long fetches of consumers into parts."""

from __future__ import annotations

from collections.abc import Callable, Generator
from copy import copy
from typing import Final

from moldau.broker.apis.parts import ListPath, PartRules, RequestPart, RestartAfter, pieces
from moldau.broker.network.client_quotas import is_exempt
from moldau.broker.network.route import RequestContext
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic
from moldau.replication.fetch_session import FINAL_EPOCH, SESSION_PARTITIONS_MAX

TOPICS: Final = ListPath("topics.partitions", "responses.partitions")
EXAMINED_AT_ONCE: Final = 4_096
"""The most topics of a fetch that are examined without letting other tasks run."""
FORGOTTEN: Final = ListPath("forgotten_topics_data.partitions", "responses.partitions")


@dataclass(frozen=True, slots=True)
class FetchParts(PartRules):
    """How fetches of consumers are cut into parts. DIVERGES: records that arrive while such a fetch waits are sent when
    its wait is over; Apache Kafka sends them at once."""

    lists: tuple[ListPath, ...] = (TOPICS, FORGOTTEN)
    long_from: int = SESSION_PARTITIONS_MAX
    open_max: int = 1
    is_exempt: Callable[[RequestContext, object], bool] | None = is_exempt

    def parts_of(self, request: object) -> Generator[RequestPart | RestartAfter | None, object, None]:
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
            yield RestartAfter(wait_ms)


def _changed(request: FetchRequest, **fields: object) -> FetchRequest:
    part = copy(request)
    part.forgotten_topics_data = []
    for name, value in fields.items():
        setattr(part, name, value)
    return part


def records_size(response: object) -> int:
    """The number of bytes of all records in a response."""
    assert isinstance(response, FetchResponse)
    return sum(len(data.records) for topic in response.responses for data in topic.partitions if data.records)


def _has_failed(response: object) -> bool:
    """Whether a response refuses the whole request, or throttles the client."""
    return isinstance(response, FetchResponse) and (response.error_code != 0 or response.throttle_time_ms > 0)
