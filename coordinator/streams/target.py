"""The target assignment of a streams group: the inputs of its computation, and the records of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.coordinator.group.group import GroupStep
from moldau.coordinator.group.records import Change
from moldau.coordinator.group.target import TargetComputed, usable_targets
from moldau.coordinator.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.streams.events import StreamsTimer
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.member import Member
from moldau.coordinator.streams.records import target_change, target_epoch_change
from moldau.coordinator.streams.task_assignor import MemberSpec, SubtopologySpec, assign_tasks
from moldau.coordinator.streams.tasks import NO_TASKS, Tasks


class StreamsTargetInputs(NamedTuple):
    """The inputs of the target assignment of a streams group, copied so that a thread can compute it."""

    before: Mapping[str, Tasks]
    """The last target assignment of each member, by member id."""
    members: Mapping[str, Member]
    """The members by member id; at least one."""
    configured: ConfiguredTopology
    standby_replicas: int

    @property
    def size(self) -> int:
        """The sum of the number of tasks, with their standbys, and the number of members."""
        tasks_count = sum(each.tasks_count for each in (self.configured.subtopologies or {}).values())
        return tasks_count * (1 + self.standby_replicas) + len(self.members)

    def compute(self) -> dict[str, Tasks]:
        """Compute the tasks of each member, by member id. While topics are missing, the members get no tasks."""
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


def on_target_computed(step: GroupStep, group: StreamsGroup, event: TargetComputed) -> None:
    """Store a target assignment that a thread has computed. A member that has left since the computation began gets
    none."""
    step.cancel(StreamsTimer.TARGET, group)
    targets = usable_targets(event, group)
    if targets is not None:
        step.write(*target_changes(group, event.epoch, targets, step.wall_ms))


def target_changes(group: StreamsGroup, epoch: int, targets: Mapping[str, Tasks], wall_ms: int) -> list[Change]:
    """Return one record for each target assignment that is new or differs from the group's stored target. The last
    record stores the group epoch for which the targets were computed.
    """
    changed = [key for key in sorted(targets) if key not in group.targets or targets[key] != group.targets[key]]
    return [
        *(target_change(group.group_id, key, targets[key]) for key in changed),
        target_epoch_change(group.group_id, epoch, wall_ms),
    ]
