"""The target of a large streams group, which a thread computes."""

from __future__ import annotations

import pytest

from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.group.target import ComputeTarget, TargetComputed
from tests.support.streams_stage import GROUP, StreamsStage, tasks


class LargeStage(StreamsStage):
    """A thread computes every target of a group with more than three tasks and members."""

    def __init__(self, delay_ms: int = 0) -> None:
        super().__init__({"in": 3}, StreamsGroupSettings(initial_rebalance_delay_ms=delay_ms, assignment_interval_ms=0))
        self.shard.config = self.config._replace(target_size_at_once=3)

    def take_target(self) -> TargetComputed:
        command = self.commands.pop(0)
        assert isinstance(command, ComputeTarget)
        event = TargetComputed(command.group_id, command.epoch, command.compute())
        self.step(event)
        return event


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_the_answer_does_not_wait_for_the_target_of_a_large_group(delay_ms: int) -> None:
    """The first target may follow from a timer."""
    stage = LargeStage(delay_ms)
    joined = stage.join("a")
    assert joined.active_tasks == []
    stage.heartbeat("a", joined.member_epoch)
    stage.wait(delay_ms)
    stage.take_target()
    stayed = stage.heartbeat("a", joined.member_epoch)
    assert stayed.active_tasks == tasks(0, 1, 2)


def test_a_member_that_has_left_meanwhile_gets_none() -> None:
    stage = LargeStage()
    stage.join("a")
    joined = stage.join("b")
    stage.take_target()
    stage.heartbeat("b", joined.member_epoch)
    stage.heartbeat("b", -1)
    late = stage.take_target()
    group = stage.shard.group(GROUP)
    assert group is not None and late.targets.keys() == {"a", "b"}
    assert stage.group.targets.keys() == {"a"}
