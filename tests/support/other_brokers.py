"""Other brokers without a network: what is asked of any of them goes to a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers


def brokers_behind(cluster: ClusterView, ask: Callable[[Any, Callable[[object], None]], None]) -> OtherBrokers:
    """The brokers of a cluster at the listener PLAINTEXT. `ask` gets each request, and what takes its response."""
    channel = SimpleNamespace(ask=lambda request, reply, *_: ask(request, reply))
    channels = SimpleNamespace(to=lambda *_: channel, loop=asyncio.get_running_loop())
    return OtherBrokers(cluster, cast(Any, channels), "PLAINTEXT", 1_000)
