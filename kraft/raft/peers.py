"""The requests in flight: at most one to each peer, and a pause after a failed request."""

from __future__ import annotations

from moldau.kraft.raft.events import Destination, OutgoingRequest, ResponseReceived, Send
from moldau.kraft.raft.outbox import Outbox


class Peers:
    """The requests in flight by node id. A bootstrap server has a negative id."""

    def __init__(self, outbox: Outbox, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._outbox = outbox
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._in_flight: dict[int, OutgoingRequest] = {}
        self._ready_ms: dict[int, int] = {}

    def is_waiting(self, node_id: int) -> bool:
        """Whether a request to this peer has no response yet."""
        return node_id in self._in_flight

    def ready_ms(self, node_id: int) -> int:
        """The time (ms) from which on a request may be sent to this peer; 0 for at once."""
        return self._ready_ms.get(node_id, 0)

    def can_send(self, node_id: int, now_ms: int) -> bool:
        return node_id not in self._in_flight and self.ready_ms(node_id) <= now_ms

    def send(self, to: Destination, request: OutgoingRequest) -> None:
        self._in_flight[to.node_id] = request
        self._outbox.put(Send(to, request, self._request_timeout_ms))

    def response_received(self, event: ResponseReceived, now_ms: int) -> bool:
        """End the request: a response came, or it timed out.

        False for a request of an earlier role, whose response is ignored.
        """
        if self._in_flight.get(event.to.node_id) is not event.request:
            return False
        del self._in_flight[event.to.node_id]
        if event.response is None:
            self.back_off(event.to.node_id, now_ms)
        else:
            self._ready_ms.pop(event.to.node_id, None)
        return True

    def back_off(self, node_id: int, now_ms: int) -> None:
        """Wait for `retry_backoff_ms` before the next request to a peer whose response was not usable."""
        self._ready_ms[node_id] = now_ms + self._retry_backoff_ms

    def forget(self) -> None:
        """Forget the requests of the earlier role; their responses are ignored."""
        self._in_flight.clear()
        self._ready_ms.clear()
