"""The history of a group, which its coordinator gives to DescribeConfigs as the read-only setting `moldau.history`.

DIVERGES: Apache Kafka has no such setting. It is given only to a request that names it, so that no tool shows it that
does not ask; no API key is added, so that clients of any kind go on as before. The request goes to the coordinator of
the group, as OffsetFetch does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.needs import on_group, on_topic
from moldau.broker.config.describing import ConfigEntry
from moldau.broker.config.layers import ConfigSource
from moldau.broker.reasons.facts import HISTORY_SETTING, History
from moldau.protocol.errors import ErrorCode
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext

PARTITIONS_MAX: Final = 250
"""The most partitions whose commits are told."""
MEMBERS_MAX: Final = 250
"""The most members whose last heartbeat is told."""
STRING: Final = 2
"""The type of a setting that is text."""
DOCUMENTATION: Final = "What happened to the group, as its coordinator remembers it: JSON, for `moldau group explain`."


def history_entry(services: Services, context: RequestContext, group_id: str) -> ConfigEntry | ErrorCode:
    """The setting `moldau.history` of a group, or the error of a broker that is not its coordinator."""
    if not on_group(AclOperation.DESCRIBE, group_id).is_met(context.access):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    runner = services.groups.runner_of(group_id)
    if isinstance(runner, ErrorCode):
        return runner
    environment, shard = services.environment, runner.shard
    now_ms, wall_ms = environment.monotonic_ms(), environment.wall_ms()
    commits_ms = {
        (topic, partition): commit_ms
        for (topic, partition), commit_ms in shard.commit_times(group_id, PARTITIONS_MAX).items()
        if on_topic(AclOperation.DESCRIBE, topic).is_met_quietly(context.access)
    }
    history = History(
        wall_ms,
        shard.history.since_ms,
        shard.history.of(group_id),
        {
            member_id: wall_ms - (now_ms - heard_ms)
            for member_id, heard_ms in shard.heard(group_id, MEMBERS_MAX).items()
        },
        commits_ms,
    )
    return ConfigEntry(
        HISTORY_SETTING,
        history.to_json(),
        ConfigSource.DEFAULT,
        is_sensitive=False,
        is_read_only=True,
        type=STRING,
        documentation=DOCUMENTATION,
        synonyms=(),
    )
