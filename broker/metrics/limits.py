"""Metrics of the node's limits: their use, and how often they were reached.

The parts that enforce the limits provide them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.metrics.exposition import Page

if TYPE_CHECKING:
    from moldau.broker.metrics.observed import Observed

SERVER: Final = "kafka_network_socketserver_"


def collect_limits(page: Page, node: Observed) -> None:
    memory = node.request_memory
    page.add(f"{SERVER}memorypoolused", memory.used_size)
    if memory.size_max is not None:
        page.add(f"{SERVER}memorypoolavailable", memory.size_max - memory.used_size)
    page.add("moldau_request_memory_waiting_connections", memory.waiting_count)
    page.add("moldau_request_memory_waits_total", memory.waits_count)
    page.add("moldau_request_memory_stalled_total", memory.stalled_count)
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
