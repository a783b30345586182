"""Metrics of requests, connections and waiting requests, collected from the listeners."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from moldau.broker.metrics.exposition import Page
from moldau.broker.network.request_times import RequestTimes
from moldau.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.network.listener import Listener
    from moldau.broker.network.route import Route

REQUESTS: Final = "kafka_network_requestmetrics_"
TOPICS: Final = "kafka_server_brokertopicmetrics_"
SOCKETS: Final = "kafka_server_socket_server_metrics_"
_NAMES: Final[Mapping[int, str]] = {code.value: code.name for code in ErrorCode}


class ApiTraffic:
    """The traffic of one API over all listeners."""

    def __init__(self, routes: list[Route]) -> None:
        self.requests = sum(route.requests for route in routes)
        self.errors: Counter[int] = Counter()
        for route in routes:
            self.errors.update(route.errors)


def collect_requests(page: Page, listeners: Iterable[Listener]) -> None:
    """Collect the metrics of each API that has served a request."""
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
    for name, kafka_name in (("Produce", "produce"), ("Fetch", "fetch")):
        traffic = ApiTraffic(routes.get(name, []))
        page.add(f"{TOPICS}total{kafka_name}requests_total", traffic.requests)
        page.add(f"{TOPICS}failed{kafka_name}requests_total", traffic.errors.total())


def collect_delayed_operations(page: Page, sizes: Mapping[str, int]) -> None:
    """Collect the sizes of the purgatory. `sizes`: the number of operations by kind."""
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
