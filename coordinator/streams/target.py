"""The target assignment of a streams group: when it may be computed, and which records it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from moldau.coordinator.group.background_target import TargetComputed, compute_later, is_of_use
from moldau.coordinator.group.group import GroupStep, TimerKey
from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.group.records import Change
from moldau.coordinator.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.streams.events import StreamsTimer
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.member import Member
from moldau.coordinator.streams.records import target_change, target_epoch_change
from moldau.coordinator.streams.task_assignor import MemberSpec, SubtopologySpec, assign_tasks
from moldau.coordinator.streams.tasks import NO_TASKS, Tasks


def is_too_early(group: StreamsGroup, settings: StreamsGroupSettings, wall_ms: int) -> bool:
    """Whether the next target has to wait. The interval counts from the last target, if its time is known."""
    interval_ms = settings.assignment_interval_ms
    return group.assignment_ms != 0 and interval_ms != 0 and wall_ms < group.assignment_ms + interval_ms


class TargetInputs(NamedTuple):
    """What the target of a group is computed from. Nothing of it changes, so that a thread may read it."""

    before: Mapping[str, Tasks]
    """The last target by member id."""
    members: Mapping[str, Member]
    """At least one member."""
    configured: ConfiguredTopology
    standby_replicas: int

    @property
    def size(self) -> int:
        """A measure of the work of the assignor: the tasks, with their standbys, and the members."""
        tasks_count = sum(each.tasks_count for each in (self.configured.subtopologies or {}).values())
        return tasks_count * (1 + self.standby_replicas) + len(self.members)

    def compute(self) -> dict[str, Tasks]:
        """The tasks of each member. While topics are missing, no member has tasks."""
        if not self.configured.is_ready or self.configured.subtopologies is None:
            return dict.fromkeys(self.members, NO_TASKS)
        specs = {}
        for member_id, member in self.members.items():
            had = self.before.get(member_id, NO_TASKS)
            specs[member_id] = MemberSpec(member.process_id, had.active, had.standby)
        subtopologies = {
            key: SubtopologySpec(each.tasks_count, each.is_stateful)
            for key, each in self.configured.subtopologies.items()
        }
        return assign_tasks(specs, subtopologies, self.standby_replicas)


def targets_at_once(step: GroupStep, group_id: str, epoch: int, inputs: TargetInputs) -> dict[str, Tasks] | None:
    """The tasks of each member; None where the group is large: then a thread computes them."""
    if inputs.size > step.config.target_size_at_once:
        compute_later(step, TimerKey(StreamsTimer.TARGET, group_id), epoch, inputs.compute)
        return None
    return inputs.compute()


def target_computed(step: GroupStep, group: StreamsGroup, event: TargetComputed) -> None:
    """Take over a target that a thread has computed. Members that have left meanwhile get none."""
    step.cancel(StreamsTimer.TARGET, group)
    if is_of_use(event, group):
        targets = cast("Mapping[str, Tasks]", event.targets)
        kept = {member_id: tasks for member_id, tasks in targets.items() if member_id in group.members}
        step.write(*target_changes(group, event.epoch, kept, step.wall_ms))


def target_changes(group: StreamsGroup, epoch: int, targets: Mapping[str, Tasks], wall_ms: int) -> list[Change]:
    """The records of the targets that differ from the last, and the epoch for which they are computed."""
    changed = [key for key in sorted(targets) if key not in group.targets or targets[key] != group.targets[key]]
    return [
        *(target_change(group.group_id, key, targets[key]) for key in changed),
        target_epoch_change(group.group_id, epoch, wall_ms),
    ]
