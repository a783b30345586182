"""How near the node is to its limits, and who met them: gathered from what enforces them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.metrics.exposition import Page

if TYPE_CHECKING:
    from broker.node import Broker

SERVER: Final = "kafka_network_socketserver_"


def collect_limits(page: Page, broker: Broker) -> None:
    memory = broker.request_memory
    page.add(f"{SERVER}memorypoolused", memory.used_size)
    if memory.size_max is not None:
        page.add(f"{SERVER}memorypoolavailable", memory.size_max - memory.used_size)
    page.add("moldau_request_memory_waiting_connections", memory.waiting_count)
    page.add("moldau_request_memory_waits_total", memory.waits_count)
    page.add("moldau_request_memory_stalled_total", memory.stalled_count)
