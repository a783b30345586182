"""The quotas of clients on this node: the limits of the metadata, and the measured rates of clients.

    producer_byte_rate         `produce`     bytes of Produce requests
    consumer_byte_rate         `fetch`       bytes of Fetch responses
    request_percentage         `request`     the time of request handlers, in percent of one thread
    controller_mutation_rate                 decided by the controller (`security/quotas/mutations.py`)

Each broker counts for itself, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.broker.config.config import Config
from moldau.security.quotas.entity import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from moldau.security.quotas.limits import QuotaLimits
from moldau.security.quotas.sampled_rate import Windows
from moldau.security.quotas.throttling import ClientThrottle


def quota_windows(config: Config) -> Windows:
    """The windows of client quotas, from the settings quota.window.*."""
    return Windows(config.integer("quota.window.num"), 1000 * config.integer("quota.window.size.seconds"))


class ClientQuotas:
    """The client quotas of a node. `produce`, `fetch` and `request` are None while no entity has a quota of that kind;
    nothing is counted then.
    """

    def __init__(self, windows: Windows) -> None:
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
        """Whether a client's changes of topics may be throttled by the controller."""

    @property
    def is_idle(self) -> bool:
        """Whether no request of any client can be throttled."""
        return self.produce is self.fetch is self.request is None and not self.bounds_mutations

    def changed(self, entities: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """Apply changed quotas of entities; None for an entity without quotas."""
        self.limits.changed(entities)
        self.produce = self._if_set(PRODUCER_BYTE_RATE)
        self.fetch = self._if_set(CONSUMER_BYTE_RATE)
        self.request = self._if_set(REQUEST_PERCENTAGE)
        self.bounds_mutations = self.limits.are_set(CONTROLLER_MUTATION_RATE)

    def _if_set(self, key: str) -> ClientThrottle | None:
        return self.by_key[key] if self.limits.are_set(key) else None
