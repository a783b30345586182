"""What a coordinator tells of the history of a group: its events, the last heartbeats of its members, its commits."""

from __future__ import annotations

from typing import Final

from moldau.broker.reasons.facts import History
from moldau.broker.runtime.environment import Environment
from moldau.coordinator.shard.shard import GroupShard
from moldau.security.access import Access, AclOperation, ResourceKind

PARTITIONS_MAX: Final = 250
"""The most partitions whose commits are reported."""
MEMBERS_MAX: Final = 250
"""The most members whose last heartbeat is reported."""


def told_history(environment: Environment, shard: GroupShard, group_id: str, access: Access) -> History:
    """The history of a group, with the commits to topics that the user may describe."""
    now_ms, wall_ms = environment.monotonic_ms(), environment.wall_ms()
    commits_ms = {
        key: commit_ms
        for key, commit_ms in shard.commit_times(group_id, PARTITIONS_MAX).items()
        if access.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, key[0], logs_denied=False)
    }
    return History(
        wall_ms,
        shard.history.since_ms,
        shard.history.of(group_id),
        {
            each: wall_ms - (now_ms - heard_ms)
            for each, heard_ms in shard.last_request_times(group_id, MEMBERS_MAX).items()
        },
        commits_ms,
    )
