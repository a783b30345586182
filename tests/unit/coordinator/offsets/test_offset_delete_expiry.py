"""Expiry of more than one batch can hold."""

from __future__ import annotations

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.records import CommittedOffset, OffsetChange
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.machine import Waiter
from moldau.coordinator.shard.shard import EXPIRED_RECORDS_MAX, GroupShard
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest

GROUPS = EXPIRED_RECORDS_MAX + 100


def test_it_goes_on_in_the_next_step_and_lets_others_come_between() -> None:
    config = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    shard = GroupShard(config, GROUPS)
    for number in range(GROUPS):
        shard.replay(OffsetChange(f"group {number}", "t", 0, CommittedOffset(1, commit_ms=0)), number + 1)
    shard.step(machine.Loaded(), 0, 0)
    assert shard.next_deadline_ms() == 1000
    end_offset = GROUPS
    sizes = []
    while shard.next_deadline_ms() == 1000:
        effects = shard.step(machine.Tick(), 1000, 60_000)
        sizes.append(len(effects.records))
        if effects.records:
            end_offset += len(effects.records)
            shard.step(machine.Appended(end_offset), 1000, 60_000)
            shard.step(machine.Committed(end_offset), 1000, 60_000)
        heartbeat = HeartbeatRequest(group_id="group 0", generation_id=-1, member_id="")
        assert shard.step(classic_events.Heartbeat(Waiter("it", 4), heartbeat), 1000, 60_000).replies
    assert len(sizes) > 1 and max(sizes) <= EXPIRED_RECORDS_MAX + 1
    assert sum(sizes) == 2 * GROUPS, "a tombstone for each offset and each group"
    assert not any(shard.list_groups([], []))
    assert shard.next_deadline_ms() == 2000


def test_it_waits_for_the_next_interval_if_the_log_refuses_the_tombstones() -> None:
    """The log refuses them as long as too few replicas are in sync."""
    config = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    shard = GroupShard(config, GROUPS)
    for number in range(GROUPS):
        shard.replay(OffsetChange(f"group {number}", "t", 0, CommittedOffset(1, commit_ms=0)), number + 1)
    shard.step(machine.Loaded(), 0, 0)
    for now_ms in (1000, 2000):
        assert shard.next_deadline_ms() == now_ms
        assert shard.step(machine.Tick(), now_ms, 60_000).records
        shard.step(machine.AppendRefused(ErrorCode.NOT_ENOUGH_REPLICAS), now_ms, 60_000)
    assert shard.next_deadline_ms() == 3000
