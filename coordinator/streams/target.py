"""The target assignment of a streams group: when it may be computed, and which records it changes."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.group.records import Change
from moldau.coordinator.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.streams.group import StreamsGroup
from moldau.coordinator.streams.member import Member
from moldau.coordinator.streams.records import target_change, target_epoch_change
from moldau.coordinator.streams.task_assignor import MemberSpec, SubtopologySpec, assign_tasks
from moldau.coordinator.streams.tasks import NO_TASKS, Tasks


def is_too_early(group: StreamsGroup, settings: StreamsGroupSettings, wall_ms: int) -> bool:
    """Whether the next target has to wait. The interval counts from the last target, if its time is known."""
    interval_ms = settings.assignment_interval_ms
    return group.assignment_ms != 0 and interval_ms != 0 and wall_ms < group.assignment_ms + interval_ms


def compute_targets(
    targets: Mapping[str, Tasks], members: Mapping[str, Member], configured: ConfiguredTopology, standby_replicas: int
) -> dict[str, Tasks]:
    """The tasks of each member, from those of the last target. There is at least one member.

    While topics are missing, no member has tasks.
    """
    if not configured.is_ready or configured.subtopologies is None:
        return dict.fromkeys(members, NO_TASKS)
    specs = {}
    for member_id, member in members.items():
        had = targets.get(member_id, NO_TASKS)
        specs[member_id] = MemberSpec(member.process_id, had.active, had.standby)
    subtopologies = {
        key: SubtopologySpec(each.tasks_count, each.is_stateful) for key, each in configured.subtopologies.items()
    }
    return assign_tasks(specs, subtopologies, standby_replicas)


def target_changes(group: StreamsGroup, epoch: int, targets: Mapping[str, Tasks], wall_ms: int) -> list[Change]:
    """The records of the targets that differ from the last, and the epoch for which they are computed."""
    changed = [key for key in sorted(targets) if key not in group.targets or targets[key] != group.targets[key]]
    return [
        *(target_change(group.group_id, key, targets[key]) for key in changed),
        target_epoch_change(group.group_id, epoch, wall_ms),
    ]
