"""A node on the event loop of this process."""

from __future__ import annotations

import asyncio

from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.storage_format import format_directories
from moldau.broker.node.node import Node
from moldau.broker.runtime.environment import LocalEnvironment
from tests.conformance.brokers import CLUSTER_ID


def formatted_node(properties: dict[str, str]) -> Node:
    """A node that is not started, on directories that this formats."""
    config, loop = checked_config(properties), asyncio.get_running_loop()
    environment = LocalEnvironment(loop)
    format_directories(
        environment.fs,
        config,
        cluster_id=CLUSTER_ID,
        features={},
        ignore_formatted=False,
        standalone=False,
        entropy=environment.entropy,
        now_ms=environment.wall_ms(),
    )
    return Node(config, environment, loop)
