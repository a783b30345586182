"""A partition over an empty log of its own on a simulated disk."""

from __future__ import annotations

from moldau.replication.partition import Partition
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk


def partition(topic: str = "t", index: int = 0, topic_id: bytes = b"i" * 16) -> Partition:
    """A partition without a leader."""
    log = Log.open(SimulatedDisk(), f"/data/{topic}-{index}", LogConfig(), now_ms=0)
    return Partition(topic, topic_id, index, log, 0)
