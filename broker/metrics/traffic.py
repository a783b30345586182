"""Adds the metrics of clients' traffic to a page: requests, errors in replies, connections, limits and quotas.

The parts that enforce the limits count how often a limit was reached. The handler of Produce counts its own errors. In
the replies of all other APIs, error codes are counted when the reply is encoded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from moldau.broker.metrics.exposition import Labels, Page
from moldau.broker.metrics.storage import PARTITIONS_PER_TURN
from moldau.broker.network.request_times import RequestTimes
from moldau.protocol.compiler import Encoder
from moldau.protocol.errors import ErrorCode
from moldau.protocol.schema import fields_of
from moldau.security.quotas.entity import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from moldau.broker.metrics.observed import Observed
    from moldau.broker.network.listener import Listener
    from moldau.broker.network.route import Route
    from moldau.protocol.primitives import Chunk
    from moldau.security.quotas.limits import QuotaTags

REQUESTS: Final = "kafka_network_requestmetrics_"
TOPICS: Final = "kafka_server_brokertopicmetrics_"
COUNTED_AS: Final = {
    "Produce": "produce",
    "Fetch": "fetch",
    "ShareFetch": "sharefetch",
    "ShareAcknowledge": "shareacknowledgement",
}
"""The names of APIs in the metric names of topics."""
SOCKETS: Final = "kafka_server_socket_server_metrics_"
SERVER: Final = "kafka_network_socketserver_"
RATES: Final = {
    PRODUCER_BYTE_RATE: ("produce", "byte_rate"),
    CONSUMER_BYTE_RATE: ("fetch", "byte_rate"),
    REQUEST_PERCENTAGE: ("request", "request_time"),
}
PRODUCE_API_KEY: Final = 0
ERROR_CODE: Final = "error_code"
_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in ErrorCode}

Walk = Callable[[object], Iterator[int]]


class ApiTraffic:
    """The number of requests of one API and of their errors by code, over all listeners."""

    def __init__(self, routes: list[Route]) -> None:
        self.requests = sum(route.requests for route in routes)
        self.errors: Counter[int] = Counter()
        for route in routes:
            self.errors.update(route.errors)


def collect_requests(page: Page, listeners: Iterable[Listener]) -> None:
    """Add the metrics of each API that has served a request to a page."""
    routes: dict[str, list[Route]] = {}
    for listener in listeners:
        for route in listener.routes.values():
            if route.requests:
                routes.setdefault(route.name, []).append(route)
    for name, of_api in routes.items():
        labels = (("request", name),)
        traffic = ApiTraffic(of_api)
        page.add(f"{REQUESTS}requests_total", traffic.requests, labels)
        for code, count in sorted(traffic.errors.items()):
            page.add(f"{REQUESTS}errors_total", count, (*labels, ("error", _NAMES.get(code, str(code)))))
        times = RequestTimes(of_api[0].key)
        for route in of_api:
            times.add(route.times)
        page.add_histogram(f"{REQUESTS}totaltimems", times.total, labels)
        page.add_histogram(f"{REQUESTS}requestqueuetimems", times.queue, labels)
        page.add_histogram(f"{REQUESTS}localtimems", times.local, labels)
        page.add_histogram(f"{REQUESTS}remotetimems", times.remote, labels)
        page.add_histogram(f"{REQUESTS}responsequeuetimems", times.response_queue, labels)
        page.add_histogram(f"{REQUESTS}responsesendtimems", times.send, labels)
        page.add_summary("moldau_request_decode_ms", times.decode, labels)
        page.add_summary("moldau_request_encode_ms", times.encode, labels)
        for waits_for, waits in times.waits.items():
            page.add_summary("moldau_request_wait_ms", waits, (*labels, ("waits_for", waits_for)))
    for name, kafka_name in COUNTED_AS.items():
        traffic = ApiTraffic(routes.get(name, []))
        page.add(f"{TOPICS}total{kafka_name}requests_total", traffic.requests)
        page.add(f"{TOPICS}failed{kafka_name}requests_total", traffic.errors.total())


def collect_delayed_operations(page: Page, sizes: Mapping[str, int]) -> None:
    """Add the number of operations in the purgatory to a page. `sizes` has it by kind of operation."""
    for name in sorted({"Produce", "Fetch", *sizes}):
        page.add(
            "kafka_server_delayedoperationpurgatory_numdelayedoperations",
            sizes.get(name, 0),
            (("delayedoperation", name),),
        )


def collect_connections(page: Page, listeners: Iterable[Listener]) -> None:
    parked: Counter[str] = Counter({"Produce": 0, "Fetch": 0})
    for listener in listeners:
        labels = (("listener", listener.name),)
        page.add(f"{SOCKETS}connection_count", len(listener.connections), labels)
        page.add(f"{SOCKETS}connection_creation_total", listener.created_count, labels)
        page.add(f"{SOCKETS}connection_close_total", listener.created_count - len(listener.connections), labels)
        page.add(f"{SOCKETS}incoming_byte_total", listener.received_bytes, labels)
        page.add(f"{SOCKETS}outgoing_byte_total", listener.sent_bytes, labels)
        page.add("moldau_malformed_requests_total", listener.malformed_count, labels)
        counts = listener.security.counts
        for name, by_mechanism in (
            ("successful_authentication_total", counts.succeeded),
            ("failed_authentication_total", counts.failed),
            ("successful_reauthentication_total", counts.renewed),
            ("failed_reauthentication_total", counts.not_renewed),
        ):
            for mechanism, count in (by_mechanism or {"none": 0}).items():
                page.add(f"{SOCKETS}{name}", count, (*labels, ("mechanism", mechanism)))
        for connection in listener.connections:
            parked.update(connection.replies.parked_apis())
    for name, count in parked.items():
        page.add("kafka_server_delayedoperationpurgatory_purgatorysize", count, (("delayedoperation", name),))


def collect_limits(page: Page, node: Observed) -> None:
    memory = node.request_memory
    page.add(f"{SERVER}memorypoolused", memory.used_size)
    if memory.size_max is not None:
        page.add(f"{SERVER}memorypoolavailable", memory.size_max - memory.used_size)
    page.add("moldau_request_memory_waiting_connections", memory.waiting_count)
    page.add("moldau_request_memory_waits_total", memory.waits_count)
    page.add("moldau_request_memory_stalled_total", memory.stalled_count)
    page.add("moldau_turns_waiting_connections", node.turns.waiting_count)
    replies = node.reply_memory
    page.add("moldau_reply_memory_used_bytes", replies.used_size)
    page.add("moldau_reply_memory_holders", replies.holders_count)
    page.add("moldau_slow_readers_aborted_total", replies.aborted_count)
    for listener in node.listeners:
        labels = (("listener", listener.name),)
        page.add(f"{SERVER}expiredconnectionskilledcount", listener.idle_count, labels)
        page.add("moldau_connections_refused_total", listener.refused_count, labels)
        page.add("moldau_connections_excess_closed_total", listener.excess_count, labels)
        page.add("moldau_accept_blocked", int(listener.is_blocked), labels)
        page.add("moldau_accept_blocked_seconds_total", listener.blocked_s(), labels)
        page.add("moldau_accept_failures_total", listener.accept_failures_count, labels)
    page.add("moldau_large_batches_examined_total", node.large_batches.examined_count)
    page.add("moldau_large_batches_waiting_bytes", node.large_batches.waiting_bytes)


async def collect_quotas(page: Page, node: Observed, series_max: int) -> int:
    """Add the metrics of client quotas to a page. Only the `series_max` clients with the highest rates have series of
    their own, because under a default quota clients choose the number of rates and their labels.

    Returns the number of clients without series of their own.
    """
    now_ms = node.environment.monotonic_ms()
    others = 0
    for key, throttle in node.client_quotas.by_key.items():
        kind, name = RATES[key]
        measured: list[tuple[float, float, Labels]] = []
        for number, (tags, each) in enumerate(throttle.rates):
            measured.append((each.rate.measure(now_ms), each.throttle_times.mean(now_ms), labels_of(tags)))
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        measured.sort(key=itemgetter(0), reverse=True)
        rates = ((labels, rate) for rate, _, labels in measured)
        others += page.add_chosen(f"kafka_server_{kind}_{name}", rates, series_max)
        times = ((labels, mean_ms) for _, mean_ms, labels in measured)
        page.add_chosen(f"kafka_server_{kind}_throttle_time", times, series_max, max)
    active = node.quorum.active_controller
    if active is not None:
        tokens = sorted(((labels_of(tags), left) for tags, left in active.mutation_tokens().items()), key=itemgetter(1))
        others += page.add_chosen("kafka_server_controllermutation_tokens", tokens, series_max, min)
    by_address = (((("ip", address),), rate.measure(now_ms)) for address, rate in node.address_rates.rates)
    accepted = sorted(by_address, key=itemgetter(1), reverse=True)
    others += page.add_chosen(f"{SOCKETS}connection_accept_rate", accepted, series_max)
    for listener in node.listeners:
        of_listener = (("listener", listener.name),)
        mean_ms = listener.throttle_times.mean(now_ms)
        page.add(f"{SOCKETS}ip_connection_accept_throttle_time", mean_ms, of_listener)
        page.add("moldau_throttled_connections_total", listener.throttled_count, of_listener)
    return others


def labels_of(tags: QuotaTags) -> tuple[tuple[str, str], ...]:
    return ("user", tags.user), ("client_id", tags.client_id)


def counting_encoder(route: Route, response_class: type[object], encode: Encoder[object]) -> Encoder[object]:
    """Wrap the encoder of an API's responses so that the errors in each response are counted. Responses of Produce, and
    those that have no error code, get `encode` itself.
    """
    walk = None if route.key == PRODUCE_API_KEY else errors_walk(response_class)
    if walk is None:
        return encode

    def encode_and_count(response: object, out: list[Chunk]) -> None:
        route.count_errors(walk(response))
        encode(response, out)

    return encode_and_count


def errors_walk(cls: type[object]) -> Walk | None:
    """Make a function that yields the error codes other than NONE in a response of class `cls`; None if such a response
    has no error code.
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
