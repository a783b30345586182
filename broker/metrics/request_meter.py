"""Measures the requests of one API: the time of a sample of them, and the errors in all replies.

A produce takes microseconds, so measuring it must be cheap: the connection counts requests and bytes, and only every
64th request is timed. The handler counts its own errors. In the replies of all other APIs error codes are counted when
the reply is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from broker.metrics.exposition import Histogram
from broker.runtime.pending import Pending
from protocol.compiler import Encoder
from protocol.schema import fields_of

if TYPE_CHECKING:
    from broker.network.route import Handler, RequestContext, Route
    from protocol.primitives import Chunk

PRODUCE: Final = 0
FETCH: Final = 1
SAMPLE_GAPS: Final = {PRODUCE: 64, FETCH: 16}
"""The number of requests of which one is timed, for each sampled API. Every request of the other APIs is timed."""
BOUNDS_MS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10000, 60000)
ERROR_CODE: Final = "error_code"

Walk = Callable[[object], Iterator[int]]


class RequestMeter:
    """Measures the requests of one API. `clock_ns` is a precise clock."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.total_ms = Histogram(BOUNDS_MS)
        self.local_ms = Histogram(BOUNDS_MS)
        self.remote_ms = Histogram(BOUNDS_MS)
        self._clock_ns = clock_ns

    def timed(self, route: Route, handle: Handler) -> Handler:
        """Wrap the handler so that it measures the time of a request."""
        gap = SAMPLE_GAPS.get(route.key, 1)
        route.sample_at = 1

        def measure(context: RequestContext, request: object) -> object:
            route.sample_at = route.requests + gap
            began_ns = self._clock_ns()
            response = handle(context, request)
            local_ms = (self._clock_ns() - began_ns) / 1e6
            self.local_ms.observe(local_ms)
            if type(response) is Pending:
                return self._parked(response, began_ns, local_ms)
            self.remote_ms.observe(0)
            self.total_ms.observe(local_ms)
            return response

        return measure

    def _parked(self, inner: Pending[object], began_ns: int, local_ms: float) -> Pending[object]:
        outer: Pending[object] = Pending(inner.abandon)

        def completed(response: object) -> None:
            total_ms = (self._clock_ns() - began_ns) / 1e6
            self.remote_ms.observe(total_ms - local_ms)
            self.total_ms.observe(total_ms)
            outer.complete(response)

        inner.listen(completed)
        return outer

    def counted(self, route: Route, response_class: type[object], encode: Encoder[object]) -> Encoder[object]:
        """Wrap an encoder so that it counts the errors in a response."""
        walk = None if route.key == PRODUCE else errors_walk(response_class)
        if walk is None:
            return encode

        def encode_and_count(response: object, out: list[Chunk]) -> None:
            route.count_errors(walk(response))
            encode(response, out)

        return encode_and_count


def errors_walk(cls: type[object]) -> Walk | None:
    """A function that finds the error codes other than NONE in a response of this class; None where it has no such
    field.
    """
    names = [(field.name, field.struct, field.is_array) for field in fields_of(cls)]
    has_own = any(name == ERROR_CODE for name, _, _ in names)
    inner = [
        (name, is_array, deeper)
        for name, struct, is_array in names
        if struct is not None and (deeper := errors_walk(struct)) is not None
    ]
    if not has_own and not inner:
        return None

    def walk(value: object) -> Iterator[int]:
        if has_own and (code := getattr(value, ERROR_CODE)):
            yield code
        for name, is_array, deeper in inner:
            found = getattr(value, name)
            for each in found or () if is_array else () if found is None else (found,):
                yield from deeper(each)

    return walk
