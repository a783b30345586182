"""What the coordinator of a group remembers of it, which it gives to DescribeConfigs as read-only settings:

    moldau.history       what happened to the group
    moldau.lag.history   its lag in the last hour, if the user may describe all topics

DIVERGES: Apache Kafka has no such settings. They are given only to a request that names them, so that no tool shows
them that does not ask; no API key is added, so that clients of any kind go on as before. The request goes to the
coordinator of the group, as OffsetFetch does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from moldau.broker.apis.needs import on_group, on_topic
from moldau.broker.config.describing import ConfigEntry
from moldau.broker.config.layers import ConfigSource
from moldau.broker.coordinators.lag_history import LAG_SETTING
from moldau.broker.reasons.facts import HISTORY_SETTING, History
from moldau.protocol.errors import ErrorCode
from moldau.security.access import AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext
    from moldau.coordinator.shard.shard import GroupShard

PARTITIONS_MAX: Final = 250
"""The most partitions whose commits are told."""
MEMBERS_MAX: Final = 250
"""The most members whose last heartbeat is told."""
STRING: Final = 2
"""The type of a setting that is text."""
DOCUMENTATION: Final = {
    HISTORY_SETTING: "What happened to the group, as its coordinator remembers it: JSON, for `moldau group explain`.",
    LAG_SETTING: "Records that the group had not read, a point each minute of the last hour: JSON, for the console.",
}


def remembered(
    services: Services, context: RequestContext, group_id: str, names: Iterable[str]
) -> list[ConfigEntry] | ErrorCode:
    """Those of the settings that a request names, or the error of a broker that is not the group's coordinator."""
    wanted = [name for name in DOCUMENTATION if name in names]
    if not wanted:
        return []
    if not on_group(AclOperation.DESCRIBE, group_id).is_met(context.access):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    runner = services.groups.runner_of(group_id)
    if isinstance(runner, ErrorCode):
        return runner
    values = {}
    if HISTORY_SETTING in wanted:
        values[HISTORY_SETTING] = _history(services, context, runner.shard, group_id).to_json()
    if LAG_SETTING in wanted and context.access.decision_for_all(AclOperation.DESCRIBE, ResourceKind.TOPIC):
        values[LAG_SETTING] = json.dumps(services.lag_history.of(group_id))
    return [_entry(name, value) for name, value in values.items()]


def _history(services: Services, context: RequestContext, shard: GroupShard, group_id: str) -> History:
    environment = services.environment
    now_ms, wall_ms = environment.monotonic_ms(), environment.wall_ms()
    commits_ms = {
        (topic, partition): commit_ms
        for (topic, partition), commit_ms in shard.commit_times(group_id, PARTITIONS_MAX).items()
        if on_topic(AclOperation.DESCRIBE, topic).is_met_quietly(context.access)
    }
    return History(
        wall_ms,
        shard.history.since_ms,
        shard.history.of(group_id),
        {
            member_id: wall_ms - (now_ms - heard_ms)
            for member_id, heard_ms in shard.heard(group_id, MEMBERS_MAX).items()
        },
        commits_ms,
    )


def _entry(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(
        name,
        value,
        ConfigSource.DEFAULT,
        is_sensitive=False,
        is_read_only=True,
        type=STRING,
        documentation=DOCUMENTATION[name],
        synonyms=(),
    )
