"""Random members of two share groups (KIP-932): who has which share partition. What they have in flight of it is in
`share_records`.

The share coordinator is a list of commands that are carried out late, in part, or never.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

from moldau.coordinator.group import events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ShareGroupSettings
from moldau.coordinator.runtime.machine import Effects, Waiter
from moldau.coordinator.share.events import (
    AlterOffsets,
    DeleteOffsets,
    InitializeStates,
    OffsetsToAlter,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
    StatesToDelete,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from moldau.protocol.records.share_groups import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    TopicPartitionsInfo,
)
from tests.simulation.groups.client import Sent
from tests.simulation.groups.consumer_member import Owned
from tests.simulation.groups.heartbeat_rules import HeartbeatRules, KindOfRecords, LoggedGroup
from tests.simulation.groups.heartbeat_swarm import AT_ONCE, GROUPS, TOPICS, HeartbeatSwarm, Topics
from tests.support.drawn_stage import Asked
from tests.support.drawn_steps import Violation
from tests.support.machine_stage import Batch

JOIN: Final = 0
LEAVE: Final = -1
LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
STATE: Final = ShareGroupStatePartitionMetadataKey.__name__
RETRY_MS: Final = 30_000
"""group.share.initialize.retry.interval.ms"""
NOTHING: Final[Owned] = frozenset()


class ShareMember:
    def __init__(self, name: str, group_id: str, topics: list[str]) -> None:
        self.name = name
        self.group_id = group_id
        self.topics = topics
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.drop()

    def drop(self) -> None:
        """It has no share partition, and joins with its next heartbeat."""
        self.epoch = JOIN
        self.assigned: Owned = NOTHING
        self.says_nothing_new = False
        self._said: list[str] | None = None
        """The topics that the coordinator was told last; None: it has to be told everything."""

    def say_everything(self) -> None:
        self._said = None

    def subscribe(self, topics: list[str]) -> None:
        self.topics = topics

    def heartbeat(self) -> Sent:
        request = partial(
            ShareGroupHeartbeatRequest, group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        self.says_nothing_new = self.epoch != JOIN and self._said == self.topics
        if not self.says_nothing_new:
            request = partial(request, subscribed_topic_names=[*self.topics])
        self._said = self.topics
        return self._made(request)

    def leave(self) -> Sent:
        request = partial(
            ShareGroupHeartbeatRequest, group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE
        )
        self.begin()
        return self._made(request)

    def claim(self, epoch: int) -> Sent:
        """A heartbeat of this epoch, whatever the member's is."""
        return self._made(
            partial(ShareGroupHeartbeatRequest, group_id=self.group_id, member_id=self.member_id, member_epoch=epoch)
        )

    def _made(self, request: partial[ShareGroupHeartbeatRequest]) -> Sent:
        name = self.name
        return lambda waiter: ShareHeartbeat(waiter, request(), name, "/10.0.0.1"), 1

    def hear(self, response: object) -> None:
        assert isinstance(response, ShareGroupHeartbeatResponse)
        error = ErrorCode(response.error_code)
        if error in LOST:
            self.drop()
        elif error is not ErrorCode.NONE:
            self._said = None
        elif response.member_epoch >= JOIN:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = frozenset(
                    (each.topic_id, index) for each in response.assignment.topic_partitions for index in each.partitions
                )


class SharePlace(NamedTuple):
    epoch: int
    previous_epoch: int
    assigned: Owned


def partitions_of(infos: Iterable[TopicPartitionsInfo]) -> Owned:
    return frozenset((each.topic_id, index) for each in infos for index in each.partitions)


class ShareRules(HeartbeatRules[SharePlace]):
    kind = KindOfRecords(
        ShareHeartbeat,
        ShareGroupMetadataKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupMemberMetadataKey,
        ShareGroupCurrentMemberAssignmentKey,
    )

    def __init__(self) -> None:
        super().__init__()
        self.carried_out: dict[str, set[tuple[bytes, int]]] = {}
        """The share partitions of each group whose initialization the share coordinator has reported."""
        self.commanded_ms: dict[tuple[str, bytes, int], int] = {}
        """When the last command came to initialize a share partition, by this coordinator."""

    def place_of(self, value: ShareGroupCurrentMemberAssignmentValue) -> SharePlace:
        assigned = [(each.topic_id, index) for each in value.assigned_partitions for index in each.partitions]
        return SharePlace(value.member_epoch, value.previous_member_epoch, frozenset(assigned))

    def initialized(self, group_id: str) -> Owned:
        value: ShareGroupStatePartitionMetadataValue | None = self.group(group_id).others.get(STATE)
        return NOTHING if value is None else partitions_of(value.initialized_topics)

    def loaded(self) -> None:
        super().loaded()
        self.commanded_ms.clear()

    def check_group(self, group_id: str, group: LoggedGroup[SharePlace]) -> None:
        """Only what the share coordinator has initialized may be assigned; a topic that is deleted is forgotten."""
        self.check_subscriptions(group_id, group)
        if isinstance(self._event, events.TopicsDeleted):
            gone = {topic_id for topic_id, _ in self.initialized(group_id)} & self._event.topic_ids
            if gone:
                raise Violation(f"the deleted topics {sorted(gone)} are still initialized in group {group_id}")
        unreported = self.initialized(group_id) - self.carried_out.get(group_id, set())
        if unreported:
            raise Violation(f"{sorted(unreported)} of group {group_id} count as initialized, and nobody reported it")

    def check_target(self, group_id: str, value: ShareGroupTargetAssignmentMemberValue) -> None:
        target = frozenset((each.topic_id, index) for each in value.topic_partitions for index in each.partitions)
        early = target - self.initialized(group_id)
        if early:
            raise Violation(f"{sorted(early)} of group {group_id} are a target, and not initialized")

    def commanded(self, command: InitializeStates) -> None:
        for topic_id, index, _ in command.offsets:
            key = (command.group_id, topic_id, index)
            if (topic_id, index) in self.initialized(command.group_id):
                raise Violation(f"{key} is initialized, and a command would make it begin anew")
            since_ms = self.stage.now_ms - self.commanded_ms.get(key, -RETRY_MS)
            if since_ms < RETRY_MS:
                raise Violation(f"{key} is initialized again after {since_ms} ms")
            self.commanded_ms[key] = self.stage.now_ms

    def reported(self, group_id: str, done: frozenset[tuple[bytes, int]], failed: Iterable[tuple[bytes, int]]) -> None:
        """What has failed may be initialized again at once."""
        self.carried_out.setdefault(group_id, set()).update(done)
        for topic_id, index in failed:
            self.commanded_ms.pop((group_id, topic_id, index), None)

    def check_answer(self, asked: Asked, response: ShareGroupHeartbeatResponse, before: SharePlace | None) -> None:
        event = asked.event
        assert isinstance(event, ShareHeartbeat)
        request = event.request
        if before is not None and request.member_epoch not in (JOIN, before.epoch, before.previous_epoch):
            raise Violation(f"{request.member_id} is at {before}, and epoch {request.member_epoch} is taken")
        if response.assignment is None:
            return
        told = frozenset(
            (each.topic_id, index) for each in response.assignment.topic_partitions for index in each.partitions
        )
        committed = self.committed_of(request.group_id, request.member_id)
        if not any((each.epoch, each.assigned) == (response.member_epoch, told) for each in committed):
            raise Violation(f"{request.member_id} was given {sorted(told)}, which is not committed")


class ShareSwarm(HeartbeatSwarm[ShareMember]):
    def __init__(self, seed: int, target_size_at_once: int = AT_ONCE) -> None:
        random = Random(f"{seed}/share groups")
        topics = Topics(random, TOPICS)
        self.members = [
            ShareMember(f"c{number}", random.choice((*GROUPS, GROUPS[0])), topics.some())
            for number in range(random.randint(2, 6))
        ]
        self.share_rules = ShareRules()
        settings = ShareGroupSettings(assignment_interval_ms=random.choice((0, 1_000)))
        config = GroupConfig(share=settings, target_size_at_once=target_size_at_once)
        super().__init__(random, topics, self.share_rules, config)
        self._commands: list[InitializeStates] = []
        self._is_live: dict[int, bool] = {}
        """Whether the group had members when an administrator's request came, by the identity of the request."""
        self._to_delete: list[tuple[str, StatesToDelete]] = []
        self.steps = [
            *self.steps,
            (self.carry_out, random.choice((10, 30))),
            (self.subscribe, random.choice((0, 2, 4))),
            (self.claim, random.choice((0, 2))),
            (self.administer, random.choice((0, 0, 4))),
        ]

    # The share coordinator

    def stepped(self, event: events.Event, effects: Effects) -> None:
        super().stepped(event, effects)
        if isinstance(event, AlterOffsets | DeleteOffsets):
            self._is_live[id(event.waiter.token)] = bool(self.rules.group(event.group_id).members)

    def take_command(self, command: Any) -> None:
        assert isinstance(command, InitializeStates)
        self.share_rules.commanded(command)
        self._commands.append(command)

    def appended(self, batch: Batch, cause: object) -> None:
        super().appended(batch, cause)
        for change in batch.changes:
            if isinstance(change.key, ShareGroupTargetAssignmentMemberKey) and change.value is not None:
                self.share_rules.check_target(change.group_id, change.value)

    def carry_out(self) -> None:
        """All that a command says, a part of it, or nothing; the report may get lost with the coordinator."""
        if not self._commands:
            return
        command = self._commands.pop(self.random.randrange(len(self._commands)))
        share = self.random.choice((0.0, 0.6, 1.0, 1.0, 1.0))
        done = {each[:2] for each in command.offsets if self.random.random() < share}
        has_failed = self.random.random() < 0.5  # else the rest has no answer
        self._report(command.group_id, done, {each[:2] for each in command.offsets} - done if has_failed else ())

    def _report(
        self, group_id: str, done: Iterable[tuple[bytes, int]], failed: Iterable[tuple[bytes, int]] = ()
    ) -> None:
        """The share coordinator knows no partition of a topic that is gone."""
        partitions = frozenset(done) & frozenset().union(*self.topics.partitions().values())
        if partitions or failed:
            self.share_rules.reported(group_id, partitions, failed)
            self.stage.step(StatesInitialized(group_id, partitions, frozenset(failed)))

    def change_topics(self) -> None:
        """A coordinator that loads while a topic goes is not told."""
        before = {topic.id: topic.name for topic in self.topics.by_name.values()}
        super().change_topics()
        gone = before.keys() - {topic.id for topic in self.topics.by_name.values()}
        if gone and self.random.random() < 0.8:
            self.stage.step(events.TopicsDeleted(frozenset(before[each] for each in gone), frozenset(gone)))

    def loaded(self) -> None:
        super().loaded()
        self._commands.clear()

    # An administrator

    def administer(self) -> None:
        """The offsets of a group that may have members: then it is refused."""
        group_id, name = self.random.choice(GROUPS), self.random.choice(TOPICS)
        match self.random.randrange(3):
            case 0:
                offsets = tuple((name, index, 5) for index in range(self.random.randint(1, 4)))
                self.ask((partial(alteration, group_id, offsets), 0), None)
            case 1:
                self.ask((partial(deletion, group_id, (name,)), 0), None)
            case _ if self._to_delete:
                group_id, states = self._to_delete.pop()
                topic_ids = frozenset(states.states)
                self.ask((lambda waiter: StatesDeleted(waiter, group_id, topic_ids), 0), None)

    def replied(self, asked: Asked, response: object) -> None:
        super().replied(asked, response)
        event = asked.event
        if not isinstance(event, AlterOffsets | DeleteOffsets):
            return
        is_live = self._is_live.pop(id(event.waiter.token))
        if is_live and isinstance(response, OffsetsToAlter | StatesToDelete):
            raise Violation(f"{event} is done, and group {event.group_id} has members")
        if isinstance(response, StatesToDelete) and response.states:
            self._to_delete.append((event.group_id, response))
        if isinstance(response, OffsetsToAlter) and response.offsets and self.random.random() < 0.8:
            command = InitializeStates(event.group_id, response.state_epoch, response.offsets)
            self._commands.append(command)

    # Members

    def subscribe(self) -> None:
        self.random.choice(self.members).subscribe(self.topics.some())

    def claim(self) -> None:
        """A member says an epoch that its group has not reached: it must be fenced."""
        member = self.random.choice(self.members)
        epoch = self.rules.group(member.group_id).epoch + self.random.choice((1, 10, 1_000))
        self.ask(member.claim(epoch), None)

    def follow(self, member: ShareMember) -> bool:
        while self._commands:
            command = self._commands.pop(0)
            self._report(command.group_id, {each[:2] for each in command.offsets})
        return False

    def why_unsettled(self) -> str:
        partitions = self.topics.partitions()
        for group_id, group in self.rules.latest.items():
            members = [each for each in self.members if each.group_id == group_id]
            if group.members and group.target_epoch != group.epoch:
                return f"group {group_id} is at epoch {group.epoch}, its target at {group.target_epoch}"
            if group.members.keys() != {each.member_id for each in members}:
                return f"group {group_id} has {sorted(group.members)}"
            wanted: set[tuple[bytes, int]] = set()
            for member in members:
                place = group.places[member.member_id]
                if place.epoch != group.epoch or member.epoch != place.epoch:
                    return f"{member.member_id} is at {member.epoch} and {place}, group {group_id} at {group.epoch}"
                if member.assigned != place.assigned:
                    return f"{member.member_id} has {sorted(member.assigned)}, the log says {sorted(place.assigned)}"
                mine = frozenset().union(*(partitions.get(topic, NOTHING) for topic in member.topics))
                if member.assigned - mine:
                    return f"{member.member_id} has {sorted(member.assigned - mine)}, and is not subscribed"
                wanted |= mine
            missing = wanted - {each for member in members for each in member.assigned}
            if missing:
                return f"no member of group {group_id} has {sorted(missing)}"
        return ""


def alteration(group_id: str, offsets: tuple[tuple[str, int, int], ...], waiter: Waiter) -> events.Event:
    return AlterOffsets(waiter, group_id, offsets)


def deletion(group_id: str, topics: tuple[str, ...], waiter: Waiter) -> events.Event:
    return DeleteOffsets(waiter, group_id, topics)
