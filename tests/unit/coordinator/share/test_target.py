"""The target of a large share group, which a thread computes."""

from __future__ import annotations

from moldau.coordinator.group.events import TopicsDeleted
from moldau.coordinator.group.target import TargetComputed
from tests.support.share_group_stage import ShareGroupStage
from tests.support.topics_image import topic_id_of


def large() -> ShareGroupStage:
    """A group with one member that has no target yet, and whose share partitions are initialized."""
    stage = ShareGroupStage({"t": 2})
    stage.beat("a", 0, "t")
    stage.shard.config = stage.config._replace(target_size_at_once=0)
    assert stage.beat("a", stage.share_group.members["a"].epoch).assignment is None
    return stage


def test_the_answer_does_not_wait_for_the_target_of_a_large_group() -> None:
    stage = large()
    (command,) = stage.targets
    stage.step(TargetComputed(command.group_id, command.epoch, command.compute()))
    stayed = stage.beat("a", stage.share_group.members["a"].epoch)
    assert stayed.assignment is not None
    assert [each.partitions for each in stayed.assignment.topic_partitions] == [[0, 1]]


def test_what_has_gone_meanwhile_is_left_out() -> None:
    stage = large()
    (command,) = stage.targets
    targets = {**command.compute(), "gone": frozenset({(topic_id_of("t"), 0)})}
    stage.stores = False
    stage.step(TopicsDeleted(frozenset({"t"}), frozenset({topic_id_of("t")})))
    stage.beat("b", 0, "t")
    assert stage.share_group.epoch > command.epoch
    stage.step(TargetComputed(command.group_id, command.epoch, targets))
    assert (stage.share_group.targets, stage.share_group.assignment_epoch) == ({"a": frozenset()}, command.epoch)
