"""Expiry of more offsets than one batch can hold or one step can examine, and deleted topics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.coordinator.classic import events as classic_events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.events import TopicsDeleted
from moldau.coordinator.group.records import CommittedOffset, OffsetChange, TopicPartition
from moldau.coordinator.offsets import offset_delete
from moldau.coordinator.offsets.offset_delete import EXAMINED_MAX, TOMBSTONES_MAX
from moldau.coordinator.offsets.offset_store import GroupOffsets
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.machine import Effects, Waiter
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest

GROUPS = TOMBSTONES_MAX + 100


def test_it_goes_on_in_the_next_step_and_lets_others_come_between() -> None:
    config = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    shard = GroupShard(config, GROUPS)
    for number in range(GROUPS):
        shard.replay(OffsetChange(f"group {number}", "t", 0, CommittedOffset(1, commit_ms=0)), number + 1)
    shard.step(machine.Loaded(), 0, 0)
    assert shard.next_deadline_ms() == 1000
    end_offset, now_ms = GROUPS, 999
    sizes = []
    while shard.next_deadline_ms() == now_ms + 1:
        now_ms += 1
        effects = shard.step(machine.Tick(), now_ms, 60_000)
        sizes.append(len(effects.records))
        if effects.records:
            end_offset += len(effects.records)
            shard.step(machine.Appended(end_offset), now_ms, 60_000)
            shard.step(machine.Committed(end_offset), now_ms, 60_000)
        heartbeat = HeartbeatRequest(group_id="group 0", generation_id=-1, member_id="")
        assert shard.step(classic_events.Heartbeat(Waiter("it", 4), heartbeat), now_ms, 60_000).replies
    assert len(sizes) > 1 and max(sizes) <= TOMBSTONES_MAX + 1
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


def shard_of(offsets: list[tuple[str, str, int]]) -> GroupShard:
    """A shard with an offset for each group, topic and partition. They expire after a minute."""
    config = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    shard = GroupShard(config, len(offsets))
    for number, (group_id, topic, partition) in enumerate(offsets):
        value = CommittedOffset(1, commit_ms=0)
        shard.replay(OffsetChange(group_id, topic, partition, value), number + 1)
    shard.step(machine.Loaded(), 0, 0)
    return shard


def written_by(shard: GroupShard, effects: Effects, end_offset: int, wall_ms: int) -> list[int]:
    """The sizes of the batches from the step with these effects on, until nothing more is due at once."""
    sizes, now_ms = [len(effects.records)], 1000
    while True:
        if effects.records:
            end_offset += len(effects.records)
            shard.step(machine.Appended(end_offset), now_ms, wall_ms)
            shard.step(machine.Committed(end_offset), now_ms, wall_ms)
        if (deadline_ms := shard.next_deadline_ms()) is None or deadline_ms > now_ms + 1:
            return sizes
        now_ms = deadline_ms
        effects = shard.step(machine.Tick(), now_ms, wall_ms)
        sizes.append(len(effects.records))


def test_a_group_with_more_expired_offsets_than_a_batch_holds_takes_several_batches() -> None:
    count = 2 * TOMBSTONES_MAX + 1
    shard = shard_of([("g", "t", partition) for partition in range(count)])
    sizes = written_by(shard, shard.step(machine.Tick(), 1000, 60_000), count, 60_000)
    assert [size for size in sizes if size] == [TOMBSTONES_MAX, TOMBSTONES_MAX, 2]
    assert not any(shard.list_groups([], [])) and shard.group_counts().offsets == 0


def test_offsets_that_have_not_expired_are_examined_a_limited_number_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = shard_of([(f"group {number}", "t", partition) for number in range(100) for partition in range(100)])
    examined = [0]

    def nothing_expired(step: object, group: object, latest: GroupOffsets) -> Iterator[TopicPartition]:
        examined[-1] += len(latest.offsets)
        return iter(())

    monkeypatch.setattr(offset_delete, "expired_offsets", nothing_expired)
    now_ms = 1000
    while (deadline_ms := shard.next_deadline_ms()) is not None and deadline_ms <= now_ms + 1:
        now_ms = deadline_ms
        assert not shard.step(machine.Tick(), now_ms, 1000).records
        examined.append(0)
    assert sum(examined) == 10_000 and max(examined) <= EXAMINED_MAX + 100


def test_the_offsets_of_a_deleted_topic_go_in_one_step() -> None:
    """A later commit may be for a new topic of the same name."""
    count = TOMBSTONES_MAX + 100
    offsets = [(f"group {number % 7}", topic, number) for number in range(count) for topic in ("t", "u")]
    shard = shard_of(offsets)
    sizes = written_by(shard, shard.step(TopicsDeleted(frozenset({"t"})), 500, 500), 2 * count, 500)
    assert sizes[0] == count and not any(sizes[1:])
    assert shard.group_counts().offsets == count
