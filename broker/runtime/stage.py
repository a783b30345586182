"""What a broker is doing with its life, in Kafka's numbers."""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """The value is that of Kafka's metric BrokerState."""

    STARTING = 1
    RUNNING = 3
    STOPPING = 7
