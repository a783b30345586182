"""The subscriptions to client metrics (KIP-714), computed for one client at a time; no state is kept for clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moldau.broker.config.catalogue import client_metrics_catalogue
from moldau.broker.config.values import default_value, linear_match
from moldau.kraft.image.configs import ConfigsImage, ResourceType
from moldau.protocol.checksum import crc32c

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"


class MetricsSubscription(NamedTuple):
    """The metrics that one client has to push, by prefixes of their names; `*` for all of them."""

    id: int
    push_interval_ms: int
    metrics: list[str]


def subscription_for(configs: ConfigsImage, instance_id: bytes, client: Mapping[str, str]) -> MetricsSubscription:
    """All subscriptions that match the client, merged into one; its id is different for each merged set. `client` holds
    what a subscription's match may name: client_id, client_software_name and so on."""
    default_ms = default_value(client_metrics_catalogue()[INTERVAL_MS])
    assert isinstance(default_ms, int)
    interval_ms = default_ms
    metrics: dict[str, None] = {}
    seen = instance_id
    for name, settings in _matching(configs, client):
        interval_ms = min(interval_ms, int(settings.get(INTERVAL_MS, default_ms)))
        metrics.update(dict.fromkeys(_items(settings.get(METRICS, ""))))
        seen += repr((name, sorted(settings.items()))).encode()
    wanted = ["*"] if "*" in metrics else list(metrics)
    unsigned = crc32c(seen, 0)
    return MetricsSubscription(unsigned - (1 << 32) if unsigned >> 31 else unsigned, interval_ms, wanted)


def _matching(configs: ConfigsImage, client: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for resource, settings in sorted(configs.by_resource.items()):
        if resource.type == ResourceType.CLIENT_METRICS and _matches(settings.get(MATCH, ""), client):
            yield resource.name, settings


def _matches(patterns: str, client: Mapping[str, str]) -> bool:
    for each in _items(patterns):
        what, _, pattern = each.partition("=")
        match = linear_match(pattern.strip())
        if match is None or not match(client.get(what.strip(), "")):
            return False
    return True


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
