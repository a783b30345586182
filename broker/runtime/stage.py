"""The stages in the life of a broker, with Kafka's numbers."""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """A stage. The value is that of Kafka's metric BrokerState."""

    STARTING = 1
    RUNNING = 3
    STOPPING = 7
