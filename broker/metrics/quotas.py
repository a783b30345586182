"""Metrics of client quotas: the rates and throttle times of the clients that have a quota."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from moldau.broker.metrics.exposition import Page
from moldau.security.quotas.entity import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

if TYPE_CHECKING:
    from moldau.broker.metrics.observed import Observed
    from moldau.security.quotas.limits import Sharers

RATES: Final = {
    PRODUCER_BYTE_RATE: ("produce", "byte_rate"),
    CONSUMER_BYTE_RATE: ("fetch", "byte_rate"),
    REQUEST_PERCENTAGE: ("request", "request_time"),
}
SOCKETS: Final = "kafka_server_socket_server_metrics_"


def collect_quotas(page: Page, node: Observed, series_max: int) -> None:
    """Collect at most `series_max` samples of each metric, because under a default quota the clients choose the number
    of rates.
    """
    now_ms = node.environment.monotonic_ms()
    for key, throttle in node.client_quotas.by_key.items():
        kind, name = RATES[key]
        for sharers, each in islice(throttle.rates, series_max):
            labels = labels_of(sharers)
            page.add(f"kafka_server_{kind}_{name}", each.rate.measure(now_ms), labels)
            page.add(f"kafka_server_{kind}_throttle_time", each.throttle_times.mean(now_ms), labels)
    active = node.quorum.active_controller
    if active is not None:
        for sharers, tokens in islice(active.mutation_tokens().items(), series_max):
            page.add("kafka_server_controllermutation_tokens", tokens, labels_of(sharers))
    for address, rate in islice(node.address_rates.rates, series_max):
        page.add(f"{SOCKETS}connection_accept_rate", rate.measure(now_ms), (("ip", address),))
    for listener in node.listeners:
        labels = (("listener", listener.name),)
        mean_ms = listener.throttle_times.mean(now_ms)
        page.add(f"{SOCKETS}ip_connection_accept_throttle_time", mean_ms, labels)
        page.add("moldau_throttled_connections_total", listener.throttled_count, labels)


def labels_of(sharers: Sharers) -> tuple[tuple[str, str], ...]:
    return ("user", sharers.user), ("client_id", sharers.client_id)
