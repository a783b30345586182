"""Access to the classic groups of a group shard, by id."""

from __future__ import annotations

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.shard.shard import GroupShard


def classic_groups(shard: GroupShard) -> dict[str, ClassicGroup]:
    return {name: group for name, group in shard._groups.items() if isinstance(group, ClassicGroup)}
