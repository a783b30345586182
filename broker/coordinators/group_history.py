"""The history of a group as its coordinator reports it: events, the last heartbeats of the members, the times of
commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.reasons.facts import History
from moldau.broker.runtime.environment import Environment
from moldau.security.access import Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.coordinator.shard.shard import GroupShard

PARTITIONS_MAX: Final = 250
"""The most partitions whose commits a history reports."""
MEMBERS_MAX: Final = 250
"""The most members whose last heartbeat a history reports."""


def reported_history(environment: Environment, shard: GroupShard, group_id: str, access: Access) -> History:
    """Collect the history of a group that this broker coordinates. All times are of the wall clock (ms). A commit is
    included only if the user of `access` may describe its topic.
    """
    now_ms, wall_ms = environment.monotonic_ms(), environment.wall_ms()
    commits_ms = {
        key: commit_ms
        for key, commit_ms in shard.commit_times(group_id, PARTITIONS_MAX).items()
        if access.allows(AclOperation.DESCRIBE, ResourceKind.TOPIC, key[0], logs_denied=False)
    }
    return History(
        wall_ms,
        shard.history.since_ms,
        shard.history.events_of(group_id),
        {
            each: wall_ms - (now_ms - heard_ms)
            for each, heard_ms in shard.last_request_times(group_id, MEMBERS_MAX).items()
        },
        commits_ms,
    )
