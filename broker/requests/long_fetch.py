"""Long fetches: those of a consumer with more partitions than a fetch session may have, served part by part.

    session_epoch above 0      the session would have too many partitions: FETCH_SESSION_ID_NOT_FOUND, and the client
                               sends all its partitions, without a session from then on
    0 or -1                    each part is a fetch without a session and without a wait, until the bytes are used up;
                               where no part has any, once more when the client's wait is over

A follower is not served in this way: its session examines only the partitions that may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moldau.broker.network.quotas.throttled_route import is_exempt
from moldau.broker.requests.parts import ListPath, Parts, Pause, RequestPart, pieces
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.replication.fetch_session import FINAL_EPOCH, SESSION_PARTITIONS_MAX

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext

TOPICS: Final = ListPath("topics.partitions", "responses.partitions")
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
        if not request.topics:
            yield RequestPart(_changed(request), TOPICS, continues=False)
            return
        for wait_ms in (request.max_wait_ms, 0):
            left = request.max_bytes
            for piece in pieces(request.topics, ["partitions"], self.size):
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
