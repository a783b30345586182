"""Kafka's settings of consumer, share and Streams groups: the broker's values, and how a single group overrides them.

The group config resource of a group overrides settings of the broker. The controller has checked such a value against
the bounds in its own configuration. A broker with other bounds moves the value to the nearer bound, as Apache Kafka
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from moldau.protocol.late_tuple import NamedTuple

INT32_MAX = 0x7FFFFFFF
INTERVALS: Final = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
RECORD_LIMITS: Final = ("delivery_count_limit", "record_lock_duration_ms", "partition_max_record_locks")
"""The fields, named without prefix, for which the settings also have a `min_` field and a `max_` field. `INTERVALS` has
those of every kind of group, `RECORD_LIMITS` those of share groups."""


class MigrationPolicy(Enum):
    """group.consumer.migration.policy: the changes of protocol that a group of consumers may make."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    """The downgrade from the consumer protocol to the classic protocol is allowed."""
    UPGRADE = "upgrade"
    """The upgrade from the classic protocol to the consumer protocol is allowed."""
    BIDIRECTIONAL = "bidirectional"

    @property
    def is_upgrade_enabled(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def is_downgrade_enabled(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerGroupSettings(NamedTuple):
    """The settings group.consumer.*, with the defaults of 4.3.1. The name of a field is the end of its setting's
    name."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """The names of the assignors that a member may ask for. The first is used if no member asks for one."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    max_size: int = INT32_MAX
    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    regex_refresh_interval_ms: int = 600_000

    def of_group(self, overrides: Mapping[str, str]) -> ConsumerGroupSettings:
        """The settings of a group. `overrides` has the group's own values by Kafka's names
        (`consumer.session.timeout.ms`)."""
        if not overrides:
            return self
        return self._replace(
            **_bounded(self, "consumer.", overrides, INTERVALS),
        )


class ShareGroupSettings(NamedTuple):
    """The settings group.share.* and the settings that only a group's configuration has, with the defaults of 4.3.1.
    The name of a field is the end of its setting's name."""

    assignors: tuple[str, ...] = ("simple",)
    max_size: int = 200
    max_share_sessions: int = 2_000
    initialize_retry_interval_ms: int = 30_000
    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    delivery_count_limit: int = 5
    min_delivery_count_limit: int = 2
    max_delivery_count_limit: int = 10
    record_lock_duration_ms: int = 30_000
    min_record_lock_duration_ms: int = 15_000
    max_record_lock_duration_ms: int = 60_000
    partition_max_record_locks: int = 2_000
    min_partition_max_record_locks: int = 100
    max_partition_max_record_locks: int = 4_000
    auto_offset_reset: str = "latest"
    """share.auto.offset.reset: `earliest`, `latest`, or `by_duration:` with an ISO 8601 duration."""
    is_read_committed: bool = False
    """Whether share.isolation.level is `read_committed`."""
    is_renew_acknowledge_enabled: bool = True
    """share.renew.acknowledge.enable"""
    dead_letter_topic: str = ""
    """errors.deadletterqueue.topic.name; empty if the group has no dead-letter queue."""
    copies_dead_letters: bool = False
    """errors.deadletterqueue.copy.record.enable"""

    def of_group(self, overrides: Mapping[str, str]) -> ShareGroupSettings:
        """The settings of a group. `overrides` has the group's own values by Kafka's names
        (`share.session.timeout.ms`)."""
        if not overrides:
            return self
        isolation = overrides.get("share.isolation.level")
        renewal = overrides.get("share.renew.acknowledge.enable")
        return self._replace(
            **_bounded(self, "share.", overrides, (*INTERVALS, *RECORD_LIMITS)),
            auto_offset_reset=overrides.get("share.auto.offset.reset", self.auto_offset_reset).strip(),
            is_read_committed=self.is_read_committed if isolation is None else isolation.strip() == "read_committed",
            is_renew_acknowledge_enabled=(
                self.is_renew_acknowledge_enabled if renewal is None else renewal.strip().lower() == "true"
            ),
            dead_letter_topic=overrides.get("errors.deadletterqueue.topic.name", "").strip(),
            copies_dead_letters=overrides.get("errors.deadletterqueue.copy.record.enable", "").strip().lower()
            == "true",
        )


class StreamsGroupSettings(NamedTuple):
    """The settings group.streams.*, with the defaults of 4.3.1. The name of a field is the end of its setting's
    name."""

    max_size: int = INT32_MAX
    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    num_standby_replicas: int = 0
    max_standby_replicas: int = 2
    initial_rebalance_delay_ms: int = 3_000

    @property
    def assignment_configs(self) -> dict[str, str]:
        """The assignor's settings by name, in the form in which the group's record stores them."""
        return {"num.standby.replicas": str(self.num_standby_replicas)}

    def of_group(self, overrides: Mapping[str, str]) -> StreamsGroupSettings:
        """The settings of a group. `overrides` has the group's own values by Kafka's names
        (`streams.session.timeout.ms`)."""
        if not overrides:
            return self
        return self._replace(
            **_bounded(self, "streams.", overrides, INTERVALS),
            num_standby_replicas=_within(
                overrides.get("streams.num.standby.replicas"), self.num_standby_replicas, (0, self.max_standby_replicas)
            ),
            initial_rebalance_delay_ms=_within(
                overrides.get("streams.initial.rebalance.delay.ms"), self.initial_rebalance_delay_ms, (0, INT32_MAX)
            ),
        )


def _bounded(settings: object, prefix: str, overrides: Mapping[str, str], fields: tuple[str, ...]) -> dict[str, Any]:
    """The values of `fields` for a group with these overrides. Each is moved into the range from its `min_` field to
    its `max_` field."""
    return {
        field: _within(
            overrides.get(prefix + field.replace("_", ".")),
            getattr(settings, field),
            (getattr(settings, f"min_{field}"), getattr(settings, f"max_{field}")),
        )
        for field in fields
    }


def _within(text: str | None, broker_value: int, bounds: tuple[int, int]) -> int:
    """The value of a group's setting, moved into the bounds. The broker's value is used if `text` is None or not a
    number."""
    if text is None:
        return broker_value
    try:
        value = int(text)
    except ValueError:
        return broker_value
    lowest, highest = bounds
    return max(lowest, min(value, highest))
