"""The target of a large consumer group: a thread computes it, and the members follow the one before meanwhile."""

from __future__ import annotations

from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.target import ComputeTarget, TargetComputed
from moldau.protocol.errors import ErrorCode
from tests.support.consumer_stage import GROUP_ID, ConsumerStage, assigned

EPOCHS = ["ConsumerGroupTargetAssignmentMember", "ConsumerGroupTargetAssignmentMetadata"]


def large(size_at_once: int = 0) -> ConsumerStage:
    """A stage on which a thread computes every target."""
    return ConsumerStage(config=GroupConfig(target_size_at_once=size_at_once))


def computed(stage: ConsumerStage) -> TargetComputed:
    """The outcome of the next command."""
    command = stage.commands.pop(0)
    assert isinstance(command, ComputeTarget)
    return TargetComputed(command.group_id, command.epoch, command.compute())


def report(stage: ConsumerStage, event: TargetComputed | None = None) -> None:
    stage.step(computed(stage) if event is None else event)


def test_the_answer_does_not_wait_for_the_target_of_a_large_group() -> None:
    stage = large()
    joined = stage.join("m1")
    assert (assigned(joined), joined.member_epoch, stage.group.epoch, stage.group.assignment_epoch) == ({}, 1, 2, 1)
    report(stage)
    assert stage.written == EPOCHS
    stayed = stage.stay("m1")
    assert (assigned(stayed), stayed.member_epoch) == ({"a": [0, 1, 2, 3]}, 2)


def test_the_size_decides() -> None:
    """Four partitions, and a subscription of the first member."""
    assert assigned(large(5).join("m1")) == {"a": [0, 1, 2, 3]}
    assert assigned(large(4).join("m1")) == {}


def test_topics_of_a_regular_expression_count_for_each_of_its_members() -> None:
    stage = large(6)
    stage.join("m1", subscribed_topic_regex="a")
    stage.resolve()
    stage.now_ms += 1_000
    assert assigned(stage.stay("m1")) == {"a": [0, 1, 2, 3]}
    stage.join("m2", subscribed_topic_regex="a")
    stage.now_ms += 1_000
    stage.stay("m2")
    assert stage.commands == []
    stage.join("m3", subscribed_topic_regex="a")
    stage.now_ms += 1_000
    stage.stay("m3")
    assert len(stage.commands) == 1


def test_the_target_is_that_of_a_step() -> None:
    stages = large(), large(1_000)
    for stage in stages:
        for member_id in ("m1", "m2", "m3"):
            stage.join(member_id)
            stage.now_ms += 1_000
            stage.stay(member_id)
            if stage is stages[0]:
                report(stage)
                stage.now_ms += 1_000
    assert stages[0].group.targets == stages[1].group.targets
    assert stages[0].group.epoch == stages[0].group.assignment_epoch


def test_one_target_of_a_group_is_computed_at_a_time() -> None:
    stage = large()
    stage.join("m1")
    stage.join("m2")
    assert len(stage.commands) == 1
    report(stage)
    assert (stage.group.epoch, stage.group.assignment_epoch) == (3, 2)
    stage.now_ms += 1_000
    stage.stay("m2")
    report(stage)
    assert (stage.group.assignment_epoch, [*stage.group.targets["m2"]]) == (3, [b"a" * 16])


def test_a_target_that_does_not_come_is_given_up() -> None:
    stage = large()
    stage.join("m1")
    stage.wait(40_000)
    stage.stay("m1")
    stage.wait(19_999)
    stage.stay("m1")
    assert len(stage.commands) == 1
    stage.wait(1)
    stage.stay("m1")
    assert len(stage.commands) == 2


def test_a_member_that_has_left_meanwhile_gets_none() -> None:
    stage = large()
    stage.join("m1")
    stage.join("m2")
    report(stage)
    stage.now_ms += 1_000
    stage.stay("m2")
    stage.heartbeat("m2", -1)
    report(stage)
    assert ([*stage.group.targets], stage.group.epoch, stage.group.assignment_epoch) == (["m1"], 4, 3)


def test_a_target_for_a_static_member_that_is_replaced_is_dropped() -> None:
    """No epoch tells it from the group's: the member that came would never get the partitions."""
    stage = large()
    stage.join("m1", instance_id="i")
    late = computed(stage)
    stage.heartbeat("m1", -2, instance_id="i")
    stage.join("m2", instance_id="i")
    assert stage.group.epoch == late.epoch
    report(stage, late)
    assert stage.written == []
    stage.stay("m2")
    report(stage)
    assert assigned(stage.stay("m2")) == {"a": [0, 1, 2, 3]}


def test_a_target_of_a_group_that_is_gone_is_dropped() -> None:
    stage = large()
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.join("m1").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    report(stage)
    assert (stage.written, stage.shard.group(GROUP_ID)) == ([], None)


def test_a_target_that_the_log_refuses_is_computed_again() -> None:
    stage = large()
    stage.join("m1")
    stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    report(stage)
    assert (stage.written, stage.group.assignment_epoch) == ([], 1)
    stage.refusal = ErrorCode.NONE
    stage.stay("m1")
    report(stage)
    assert stage.group.assignment_epoch == 2
