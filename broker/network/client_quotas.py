"""Client quotas on this node: the limits in the metadata, the measured rates of clients, and the request handler that
applies them while any entity has a quota.

    producer_byte_rate         `produce`     bytes of Produce requests
    consumer_byte_rate         `fetch`       bytes of Fetch responses
    request_percentage         `request`     the time of request handlers, in percent of one thread
    controller_mutation_rate                 decided by the controller (`security/quotas/mutations.py`)

Each broker measures the rates of its own requests, as in Apache Kafka.

    handler ──▶ response ──▶ bytes and time are recorded ─▶ within the limits: the response
                                                          above: throttle_time_ms in the response, which leaves at once;
                                                                 then the connection is muted for that time (KIP-219)

While no entity has a quota, a route calls its own handler directly. While one has (`Route.is_governed`), every frame is
decoded, so that its request is measured: no hook answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Final

from moldau.broker.config.config import Config
from moldau.broker.runtime.pending import Pending
from moldau.protocol.compiler import encoder_of
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.primitives import Chunk
from moldau.security.access import CLUSTER_NAME, AclOperation, ResourceKind
from moldau.security.quotas.entity import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from moldau.security.quotas.limits import QuotaLimits
from moldau.security.quotas.sampled_rate import QuotaWindows
from moldau.security.quotas.throttling import PERCENT_OF_NANOSECOND, ClientThrottle

if TYPE_CHECKING:
    from moldau.broker.network.route import Handler, RequestContext, Route
PRODUCE: Final = 0
WRITE_TXN_MARKERS: Final = 27
HEADER_SIZE: Final = 10
"""The size (bytes) of a request header without the client id and tags."""


def quota_windows(config: Config) -> QuotaWindows:
    """The windows over which the rates of client quotas are measured, from the settings quota.window.*."""
    return QuotaWindows(config.integer("quota.window.num"), 1000 * config.integer("quota.window.size.seconds"))


class ClientQuotas:
    """The client quotas of a node. `produce`, `fetch` and `request` are None while no entity has a quota of that kind;
    then nothing is measured.
    """

    def __init__(self, windows: QuotaWindows) -> None:
        self.limits = QuotaLimits()
        self.windows = windows
        # The time of requests is throttled for one window at most.
        self.by_key = {
            PRODUCER_BYTE_RATE: ClientThrottle(PRODUCER_BYTE_RATE, self.limits, windows),
            CONSUMER_BYTE_RATE: ClientThrottle(CONSUMER_BYTE_RATE, self.limits, windows),
            REQUEST_PERCENTAGE: ClientThrottle(REQUEST_PERCENTAGE, self.limits, windows, windows.size_ms),
        }
        self.produce: ClientThrottle | None = None
        self.fetch: ClientThrottle | None = None
        self.request: ClientThrottle | None = None
        self.bounds_mutations = False
        """Whether any entity has a quota of controller mutations, so that the controller may throttle changes of
        topics.
        """

    @property
    def is_idle(self) -> bool:
        """Whether no request of any client can be throttled."""
        return self.produce is self.fetch is self.request is None and not self.bounds_mutations

    def changed(self, entities: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Apply changed quotas of entities; None for an entity without quotas."""
        self.limits.apply_changes(entities)
        self.produce = self._if_set(PRODUCER_BYTE_RATE)
        self.fetch = self._if_set(CONSUMER_BYTE_RATE)
        self.request = self._if_set(REQUEST_PERCENTAGE)
        self.bounds_mutations = self.limits.are_set(CONTROLLER_MUTATION_RATE)

    def _if_set(self, key: str) -> ClientThrottle | None:
        return self.by_key[key] if self.limits.are_set(key) else None


class ThrottledRequests:
    """Applies the client quotas to the requests of one listener. `clock_ns` is a monotonic clock (ns) that measures the
    time of handlers.
    """

    def __init__(
        self, quotas: ClientQuotas, clock_ns: Callable[[], int], now_ms: Callable[[], int], *, counts: bool
    ) -> None:
        """`counts`: whether this listener records the bytes and the time of requests. A broker's listener does. At a
        controller's listener a connection is muted only for the throttle_time_ms that the controller has set (KIP-599).
        DIVERGES: Apache Kafka's controllers also record the time of requests.
        """
        self._quotas = quotas
        self._clock_ns = clock_ns
        self._now_ms = now_ms
        self._counts = counts

    def governed(self, route: Route, handle: Handler) -> Handler:
        """A handler that calls `handle`, records the bytes and the time of the request, and throttles the client if a
        quota is exceeded.
        """

        def serve(context: RequestContext, request: object) -> object:
            size = self._size_of(context, request) if route.key == PRODUCE else 0
            began_ns = self._clock_ns()
            response = handle(context, request)
            spent_ns = self._clock_ns() - began_ns
            if is_exempt(context, request):
                return response
            if type(response) is Pending:
                return self._later(context, response, spent_ns, size)
            return self._settled(context, response, spent_ns, size)

        return serve

    def _size_of(self, context: RequestContext, request: object) -> int:
        """The size (bytes) of a Produce request with its header; 0 if no entity has a quota on produced bytes, or if
        this listener does not record them.
        """
        return request_size(context, request) if self._counts and self._quotas.produce is not None else 0

    def _later(self, context: RequestContext, inner: Pending[object], spent_ns: int, size: int) -> Pending[object]:
        """A `Pending` for the response of a request that waits. Bytes and time of the request are recorded once the
        response is there, as in Apache Kafka.
        """
        outer: Pending[object] = Pending(inner.abandon, inner.waits_for)
        inner.listen(lambda response: outer.complete(self._settled(context, response, spent_ns, size)))
        return outer

    def _settled(self, context: RequestContext, response: object, spent_ns: int, size: int) -> object:
        """Record the bytes and the time of a request. If a quota is exceeded, mute the connection and set
        throttle_time_ms in the response. Returns the response.
        """
        delay_ms = max(getattr(response, "throttle_time_ms", 0), self._recorded(context, response, spent_ns, size))
        if delay_ms <= 0:
            return response
        context.connection.throttle(delay_ms)
        if not hasattr(response, "throttle_time_ms"):
            # DIVERGES: a large Metadata response was encoded in an executor thread, maybe for several clients. Here
            # the client is muted without being told for how long; Apache Kafka tells it.
            return response
        throttled = copy(response)  # the response may be one that other clients get too
        throttled.throttle_time_ms = delay_ms
        return throttled

    def _recorded(self, context: RequestContext, response: object, spent_ns: int, size: int) -> int:
        """Record the bytes and the time of a request. Returns the time (ms) for which this node throttles the
        client.
        """
        if not self._counts:
            return 0
        quotas, now_ms = self._quotas, self._now_ms()
        user, client_id = context.principal.name, context.client_id or ""
        delay_ms = 0
        if size and quotas.produce is not None:
            delay_ms = quotas.produce.record(user, client_id, size, now_ms)
        # DIVERGES: Apache Kafka also counts the time in which network threads send a response; and a consumer above its
        # request percentage alone gets an empty Fetch response there, and here its records before it is muted.
        if quotas.request is not None and response is not None:
            percent = spent_ns * PERCENT_OF_NANOSECOND
            delay_ms = max(delay_ms, quotas.request.record(user, client_id, percent, now_ms))
        return delay_ms


def is_exempt(context: RequestContext, request: object) -> bool:
    """Whether a request is exempt from quotas: replication, and the markers of transactions.

    On a node with an authorizer, a client without CLUSTER_ACTION is not exempt, even if its request names a replica id.
    """
    if isinstance(request, FetchRequest):
        replica = request.replica_state
        if (replica.replica_id if replica is not None else request.replica_id) < 0:
            return False
    elif context.route.key != WRITE_TXN_MARKERS:
        return False
    access = context.access
    return access.is_unrestricted or access.allows(
        AclOperation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME, logs_allowed=False, logs_denied=False
    )


def request_size(context: RequestContext, request: object) -> int:
    """Compute the size (bytes) of a request with its header, as the client sent it, without copying the records."""
    version = context.version
    pieces: list[Chunk] = []
    encoder_of(type(request), version)(request, pieces)
    size = HEADER_SIZE + (len(context.client_id.encode()) if context.client_id else 0)
    return size + (version >= context.route.flexible_from) + sum(map(len, pieces))
