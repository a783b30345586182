"""Kafka for tests: clusters whose nodes are processes. They start in a fraction of a second, and end with the test.

    from moldau.testing import Cluster

    with Cluster() as kafka:
        kafka.produce("orders", "one")
        assert [record.value for record in kafka.records("orders")] == [b"one"]

The package starts `moldau serve` and imports nothing of the broker. It needs no other library; conveniences such as
`Cluster.produce` use the Kafka client that is installed. Names are imported at their first use, because pytest loads
`moldau.testing.plugin` in every project of the environment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from moldau.testing.async_cluster import AsyncCluster
    from moldau.testing.clients.port import NoClient, Partition, Record
    from moldau.testing.cluster import Cluster
    from moldau.testing.container import KafkaContainer
    from moldau.testing.faults import FaultRefused
    from moldau.testing.node import Node, NodeFailed
    from moldau.testing.simulation.simulate import Simulation, explore, simulate

__all__ = [
    "AsyncCluster",
    "Cluster",
    "FaultRefused",
    "KafkaContainer",
    "NoClient",
    "Node",
    "NodeFailed",
    "Partition",
    "Record",
    "Simulation",
    "explore",
    "simulate",
]

_MODULES: Final = {
    "AsyncCluster": "async_cluster",
    "Cluster": "cluster",
    "FaultRefused": "faults",
    "Node": "node",
    "KafkaContainer": "container",
    "NoClient": "clients.port",
    "NodeFailed": "node",
    "Partition": "clients.port",
    "Record": "clients.port",
    "Simulation": "simulation.simulate",
    "explore": "simulation.simulate",
    "simulate": "simulation.simulate",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
