"""Whether a node serves clients: its stage, the reasons why it does not serve them, and its problems while it does."""

from __future__ import annotations

from enum import IntEnum

from moldau.broker.config.config import Config
from moldau.broker.metadata.quorum import Quorum
from moldau.broker.metadata.registration import Registration
from moldau.broker.replicas.local_logs import LocalLogs


class Stage(IntEnum):
    """A stage in the life of a node. The value is that of Kafka's metric BrokerState."""

    STARTING = 1
    RUNNING = 3
    STOPPING = 7


class Readiness:
    """The readiness of a node, as the probe /readyz reports it."""

    def __init__(self, config: Config, quorum: Quorum, registration: Registration, logs: LocalLogs) -> None:
        self.stage = Stage.STARTING
        self._is_broker = config.is_broker
        self._quorum = quorum
        self._registration = registration
        self._logs = logs

    def enter(self, stage: Stage) -> None:
        """Begin a stage."""
        self.stage = stage

    def not_ready(self) -> list[str]:
        """Why this node does not serve clients; empty where it does."""
        if self.stage is not Stage.RUNNING:
            return [f"the node is {self.stage.name.lower()}"]
        reasons = [] if self._quorum.leader_id >= 0 else ["the metadata quorum has no leader"]
        if self._is_broker and self._registration.is_fenced:
            reasons.append("the controller has fenced this broker")
        return reasons

    def impaired(self) -> list[str]:
        """The problems of the log directories of a broker that serves clients."""
        offline = [f"log directory {path} is offline: {why}" for path, why in self._logs.offline.items()]
        return offline + [f"log directory {path} is full" for path in self._logs.space.full]
