"""Random members of two Streams groups (KIP-1071), whose internal topics are created late."""

from __future__ import annotations

from random import Random
from typing import Any, Final, NamedTuple

from moldau.coordinator.group import events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.streams.events import HeartbeatReply, StreamsHeartbeat
from moldau.coordinator.streams.member import MemberState
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from moldau.protocol.records.streams_groups import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey,
)
from tests.simulation.groups.heartbeat_rules import HeartbeatRules, KindOfRecords, LoggedGroup
from tests.simulation.groups.heartbeat_swarm import AT_ONCE, GROUPS, HeartbeatSwarm, Topics
from tests.simulation.groups.streams_member import JOIN, OwnedTasks, StreamsMember, TaskKeys, keys_of
from tests.support.drawn_stage import Asked
from tests.support.drawn_steps import Violation
from tests.support.streams_stage import subtopology, topology

INPUTS: Final = ("in", "other")
CHANGELOG: Final = "log"
"""The changelog of the subtopology 0, in each group with the name of the group before it."""
INPUT_OF: Final = {"0": "in", "1": "other"}
STANDBYS_MAX: Final = 2


class StreamsPlace(NamedTuple):
    epoch: int
    previous_epoch: int
    assigned: OwnedTasks = OwnedTasks()
    revoking: OwnedTasks = OwnedTasks()
    state: int = 0
    since: frozenset[tuple[str, int, int]] = frozenset()
    """The active tasks that it has, with the epoch in which it got each."""


class StreamsRules(HeartbeatRules[StreamsPlace]):
    kind = KindOfRecords(
        StreamsHeartbeat,
        StreamsGroupMetadataKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupMemberMetadataKey,
        StreamsGroupCurrentMemberAssignmentKey,
    )

    def __init__(self, members: list[StreamsMember]) -> None:
        super().__init__()
        self.members = members

    def place_of(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsPlace:
        with_epochs = [*value.active_tasks, *value.active_tasks_pending_revocation]
        return StreamsPlace(
            value.member_epoch,
            value.previous_member_epoch,
            OwnedTasks(tasks_of(value.active_tasks), tasks_of(value.standby_tasks)),
            OwnedTasks(
                tasks_of(value.active_tasks_pending_revocation), tasks_of(value.standby_tasks_pending_revocation)
            ),
            value.state,
            frozenset(
                (each.subtopology_id, partition, epoch)
                for each in with_epochs
                for partition, epoch in zip(each.partitions, each.assignment_epochs or (), strict=True)
            ),
        )

    def check_group(self, group_id: str, group: LoggedGroup[StreamsPlace]) -> None:
        """A task is active on one member at most, and a process has it in one role."""
        active: dict[tuple[str, int], str] = {}
        roles: dict[tuple[str, tuple[str, int]], str] = {}
        for member_id, place in group.places.items():
            process = self.process_of(group, member_id)
            for task in place.assigned.active | place.revoking.active:
                other = active.setdefault(task, member_id)
                if other != member_id:
                    raise Violation(f"the task {task} of group {group_id} is active on {other} and on {member_id}")
            for tasks in (*place.assigned, *place.revoking):
                for task in tasks:
                    other = roles.setdefault((process, task), member_id)
                    if other != member_id or task in place.assigned.active & place.assigned.standby:
                        raise Violation(f"the process {process} of group {group_id} has the task {task} twice")

    def process_of(self, group: LoggedGroup[StreamsPlace], member_id: str) -> str:
        value = group.members[member_id]
        assert isinstance(value, StreamsGroupMemberMetadataValue)
        return value.process_id

    def check_answer(self, asked: Asked, response: StreamsGroupHeartbeatResponse, before: StreamsPlace | None) -> None:
        event = asked.event
        assert isinstance(event, StreamsHeartbeat)
        request = event.request
        if before is not None and request.member_epoch not in (JOIN, before.epoch):
            # Of a heartbeat of the epoch before, the coordinator knows that its answer was lost: the member has no task
            # that it may not have.
            owned = OwnedTasks(keys_of(request.active_tasks or ()), keys_of(request.standby_tasks or ()))
            is_former = request.member_epoch == before.previous_epoch and request.active_tasks is not None
            if not is_former or owned.active - before.assigned.active or owned.standby - before.assigned.standby:
                raise Violation(f"{request.member_id} is at {before}, and epoch {request.member_epoch} is taken")
        if response.active_tasks is not None:
            told = OwnedTasks(keys_of(response.active_tasks), keys_of(response.standby_tasks or ()))
            committed = self.committed_of(request.group_id, request.member_id)
            if not any((each.epoch, each.assigned) == (response.member_epoch, told) for each in committed):
                raise Violation(f"{request.member_id} was given {told}, which is not committed")

    def may_commit(self, place: StreamsPlace, epoch: int, event: events.CommitOffsets) -> bool:
        """With an earlier epoch, the input of what the member has got in it or before, and still has."""
        since = {(INPUT_OF[key], partition): since for key, partition, since in place.since}
        wanted = [(topic.name, each.partition_index) for topic in event.request.topics for each in topic.partitions]
        return epoch < place.epoch and all(key in since and since[key] <= epoch for key in wanted)

    def revocation_ms(self, group: LoggedGroup[StreamsPlace], member_id: str) -> int | None:
        member = group.members[member_id]
        is_revoking = group.places[member_id].state == MemberState.UNREVOKED_TASKS
        return member.rebalance_timeout_ms if is_revoking else None

    # Members

    def takes(self, member: StreamsMember, taken: TaskKeys) -> None:
        """A member begins to process tasks. Nobody else who is still a member may process them."""
        group = self.group(member.group_id)
        if member.member_id not in group.members:
            return  # Its tasks were given to others, and it does not know yet.
        for other in self.members:
            is_member = other.group_id == member.group_id and other.member_id in group.members
            if other is not member and is_member and other.owned.active & taken:
                raise Violation(f"{member.member_id} and {other.member_id} process {other.owned.active & taken}")

    def is_settled(self, sizes: dict[str, int], standbys: int) -> str:
        """Why the groups are not settled; nothing if they are. `sizes`: partitions of each topic."""
        for group_id, group in self.latest.items():
            members = [each for each in self.members if each.group_id == group_id]
            if group.members and group.target_epoch != group.epoch:
                return f"group {group_id} is at epoch {group.epoch}, its target at {group.target_epoch}"
            if group.members.keys() != {each.member_id for each in members}:
                return f"group {group_id} has {sorted(group.members)}"
            is_ready = all(name in sizes for name in INPUTS) and sizes.get(f"{group_id}-{CHANGELOG}") == sizes["in"]
            tasks = ((key, index) for key, name in INPUT_OF.items() for index in range(sizes[name] if is_ready else 0))
            wanted = set(tasks)
            active: dict[tuple[str, int], int] = {}
            copies: dict[tuple[str, int], int] = {}
            for member in members:
                place = group.places[member.member_id]
                if place.epoch != group.epoch or place.state != MemberState.STABLE:
                    return f"{member.member_id} is at {place}, group {group_id} at epoch {group.epoch}"
                if member.owned != place.assigned:
                    return f"{member.member_id} has {member.owned}, and the log says {place.assigned}"
                for task in place.assigned.active:
                    active[task] = active.get(task, 0) + 1
                for task in place.assigned.standby:
                    copies[task] = copies.get(task, 0) + 1
            if members and active != dict.fromkeys(wanted, 1):
                return f"group {group_id} has {active} of {wanted}"
            processes = {self.process_of(group, each.member_id) for each in members}
            count = min(standbys, len(processes) - 1)
            expected = {task: count for task in wanted if task[0] == "0"} if count > 0 else {}
            if copies != expected:
                return f"group {group_id} has the standbys {copies}, not {expected}"
        return ""


def tasks_of(listed: list[Any]) -> TaskKeys:
    return frozenset((each.subtopology_id, partition) for each in listed for partition in each.partitions)


class StreamsSwarm(HeartbeatSwarm[StreamsMember]):
    def __init__(self, seed: int, target_size_at_once: int = AT_ONCE) -> None:
        random = Random(f"{seed}/streams groups")
        topics = Topics(random, INPUTS)
        for name in INPUTS:
            topics.set_partitions(name, random.randint(1, 5))
        topics.may_go = random.random() < 0.3
        self.members = []
        for number in range(random.randint(2, 6)):
            group_id = random.choice((*GROUPS, GROUPS[0]))
            own = topology(subtopology("0", ["in"], f"{group_id}-{CHANGELOG}"), subtopology("1", ["other"]))
            process = f"{group_id}{random.randrange(3)}"
            self.members.append(StreamsMember(f"c{number}", group_id, process, own, random))
        self.streams_rules = StreamsRules(self.members)
        settings = StreamsGroupSettings(
            assignment_interval_ms=random.choice((0, 1_000)), initial_rebalance_delay_ms=random.choice((0, 3_000))
        )
        config = GroupConfig(streams=settings, target_size_at_once=target_size_at_once)
        super().__init__(random, topics, self.streams_rules, config)
        self._commits = 0
        self._to_create: dict[str, int] = {}
        """The internal topics that the last heartbeats asked for, with their partitions."""
        self._former: list[tuple[StreamsMember, int]] = []
        self.standbys = 0
        self.steps = [
            *self.steps,
            (self.reconcile, 40),
            (self.create_topics, 15),
            (self.change_standbys, random.choice((0, 3))),
            (self.commit, random.choice((0, 10))),
            (self.commit_late, random.choice((0, 4))),
        ]

    def replied(self, asked: Asked, response: object) -> None:
        super().replied(asked, response)
        if isinstance(response, HeartbeatReply):
            for name, topic in response.topics_to_create.items():
                self._to_create[name] = topic.partitions

    def create_topics(self) -> None:
        for name, count in self._to_create.items():
            if name not in self.topics.by_name and self.random.random() < 0.7:
                self.topics.set_partitions(name, count)
        self._to_create.clear()
        self.stage.image = self.topics.image()

    def change_topics(self) -> None:
        """If an input grows, its changelog is too small: an operator makes it anew."""
        super().change_topics()
        for group_id in GROUPS:
            changelog = self.topics.by_name.get(f"{group_id}-{CHANGELOG}")
            source = self.topics.by_name.get("in")
            is_wrong = changelog and source and changelog.partitions_count != source.partitions_count
            if is_wrong and self.random.random() < 0.7:
                del self.topics.by_name[f"{group_id}-{CHANGELOG}"]
        self.stage.image = self.topics.image()

    def change_standbys(self) -> None:
        self.set_standbys(self.random.randint(0, STANDBYS_MAX))

    def set_standbys(self, count: int) -> None:
        self.standbys = count
        self.topics.settings = {"streams.num.standby.replicas": str(self.standbys)}
        self.stage.image = self.topics.image()

    def end(self) -> None:
        """The groups settle; then the number of standbys changes, and nothing else that would move a task."""
        super().end()
        self.set_standbys((self.standbys + 1) % (STANDBYS_MAX + 1))
        self.settle()

    def quieten(self) -> None:
        """All topics are there. A member that was not told its assignment is not told it again, as in Apache Kafka: all
        members join again.
        """
        for name in INPUTS:
            if name not in self.topics.by_name:
                self.topics.set_partitions(name, 2)
        for group_id in GROUPS:
            self.topics.by_name.pop(f"{group_id}-{CHANGELOG}", None)
        self.stage.image = self.topics.image()
        for member in self.members:
            member.drop()

    def follow(self, member: StreamsMember) -> bool:
        missing = self._to_create.keys() - self.topics.by_name.keys()
        for name in sorted(missing):
            self.topics.set_partitions(name, self._to_create[name])
        self._to_create.clear()
        if missing:
            self.stage.image = self.topics.image()
        if member.owned == member.target:
            return False
        self._reconcile(member)
        return True

    def why_unsettled(self) -> str:
        sizes = {topic.name: topic.partitions_count for topic in self.topics.by_name.values()}
        return self.streams_rules.is_settled(sizes, self.standbys)

    def reconcile(self) -> None:
        self._reconcile(self.random.choice(self.members))

    def _reconcile(self, member: StreamsMember) -> None:
        self.streams_rules.takes(member, member.target.active - member.owned.active)
        member.owned = member.target

    def commit(self) -> None:
        """Of the input of a task, with the member's epoch."""
        member = self.random.choice(self.members)
        if member.owned.active:
            key, partition = self.random.choice(sorted(member.owned.active))
            self._commits += 1
            self.ask(member.commit(INPUT_OF[key], partition, self._commits), None)
            self._former = [*self._former[-4:], (member, member.epoch)]

    def commit_late(self) -> None:
        """With an epoch that the member had, of an input that it may have or not."""
        if self._former:
            member, epoch = self.random.choice(self._former)
            current, member.epoch = member.epoch, epoch
            self._commits += 1
            self.ask(member.commit(self.random.choice(INPUTS), self.random.randint(0, 3), self._commits), None)
            member.epoch = current
