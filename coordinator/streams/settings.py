"""The settings of one streams group: those of the broker, save what the group's own settings say (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.coordinator.group.config import StreamsConfig


class StreamsSettings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    standby_replicas: int
    initial_rebalance_delay_ms: int
    assignment_interval_ms: int

    @property
    def assignment_configs(self) -> dict[str, str]:
        """What the assignor is told, as the record of the group keeps it."""
        return {"num.standby.replicas": str(self.standby_replicas)}


def settings_of(config: StreamsConfig, own: Mapping[str, str]) -> StreamsSettings:
    """The settings of a group from the broker's and its own. A group's value is moved into the broker's bounds, which
    may be narrower now than they were when the value was set.
    """
    return StreamsSettings(
        _bounded(
            own.get("streams.session.timeout.ms"),
            config.session_timeout_ms,
            config.min_session_timeout_ms,
            config.max_session_timeout_ms,
        ),
        _bounded(
            own.get("streams.heartbeat.interval.ms"),
            config.heartbeat_interval_ms,
            config.min_heartbeat_interval_ms,
            config.max_heartbeat_interval_ms,
        ),
        _bounded(own.get("streams.num.standby.replicas"), config.num_standby_replicas, 0, config.max_standby_replicas),
        int(own.get("streams.initial.rebalance.delay.ms", config.initial_rebalance_delay_ms)),
        _bounded(
            own.get("streams.assignment.interval.ms"),
            config.assignment_interval_ms,
            config.min_assignment_interval_ms,
            config.max_assignment_interval_ms,
        ),
    )


def _bounded(own: str | None, default: int, least: int, most: int) -> int:
    return default if own is None else min(max(int(own), least), most)
