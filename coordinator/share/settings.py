"""The settings of one share group: those of the broker, save what the group's own settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.coordinator.group.config import ShareConfig


class ShareSettings(NamedTuple):
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def settings_of(config: ShareConfig, own: Mapping[str, str]) -> ShareSettings:
    """The settings of a group from the broker's and its own. A group's value is moved into the broker's bounds, which
    may be narrower now than they were when the value was set.
    """
    return ShareSettings(
        _bounded(
            own.get("share.session.timeout.ms"),
            config.session_timeout_ms,
            config.min_session_timeout_ms,
            config.max_session_timeout_ms,
        ),
        _bounded(
            own.get("share.heartbeat.interval.ms"),
            config.heartbeat_interval_ms,
            config.min_heartbeat_interval_ms,
            config.max_heartbeat_interval_ms,
        ),
        _bounded(
            own.get("share.assignment.interval.ms"),
            config.assignment_interval_ms,
            config.min_assignment_interval_ms,
            config.max_assignment_interval_ms,
        ),
    )


def _bounded(own: str | None, default: int, least: int, most: int) -> int:
    return default if own is None else min(max(int(own), least), most)
