"""The share partitions of a group: which are to be initialized, and which may be assigned.

subscribed, in the metadata ──heartbeat──▶ initializing ──the share coordinator has stored it──▶ initialized
                                ▲               └ refused: at the next heartbeat; unanswered: after the retry interval
                                └───────────────┘
A topic that is deleted leaves the group's record at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from moldau.coordinator.group.group import Group, GroupStep
from moldau.coordinator.group.history import Cause
from moldau.coordinator.runtime.step import APPENDED
from moldau.coordinator.share.events import InitializeStates, InitialOffset, StatesInitialized
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.records import StateTopics, Topics, TopicState, state_topics_change
from moldau.protocol.errors import ErrorCode

NO_OFFSET = -1
NO_PARTITIONS: Final[frozenset[int]] = frozenset()


def initialize_new(step: GroupStep, group: ShareGroup, topics: Collection[str], epoch: int) -> bool:
    """Write that the uninitialized share partitions of these topics are initializing, and command the initialization
    when the record is committed. Returns whether there are such partitions."""
    new = partitions_to_initialize(step, group, topics)
    if not new:
        return False
    known = group.state_topics
    deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in new}
    changed = StateTopics(merged_topics(known.initializing, new), known.initialized, deleting)
    step.write(state_topics_change(group.group_id, changed))
    offsets = tuple(
        InitialOffset(topic_id, index, NO_OFFSET)
        for topic_id, topic in new.items()
        for index in sorted(topic.partitions)
    )
    former = {topic_id: group.initialized_ms[topic_id] for topic_id in new if topic_id in group.initialized_ms}
    for topic_id in new:
        group.initialized_ms[topic_id] = step.now_ms
    step.when_committed(Initialization(InitializeStates(group.group_id, epoch, offsets), former))
    return True


def partitions_to_initialize(step: GroupStep, group: ShareGroup, topics: Collection[str]) -> dict[bytes, TopicState]:
    """The share partitions of these topics that are to be initialized. A partition whose initialization began less than
    the retry interval ago is left out."""
    known, new = group.state_topics, {}
    interval_ms = step.config.share.initialize_retry_interval_ms
    for name in sorted(topics):
        topic = step.image.topic_of_name(name)
        if topic is None:
            continue
        done = known.initialized[topic.id].partitions if topic.id in known.initialized else frozenset[int]()
        if topic.id in known.initializing and topic.id in group.initialized_ms:
            began_ms = group.initialized_ms[topic.id]
            if began_ms is None:
                began_ms = group.initialized_ms[topic.id] = step.now_ms
            if step.now_ms - began_ms < interval_ms:
                done |= known.initializing[topic.id].partitions
        left = frozenset(range(topic.partitions_count)) - done
        if left:
            new[topic.id] = TopicState(name, left)
    return new


def partitions_by_topic(partitions: Iterable[tuple[bytes, int]]) -> dict[bytes, set[int]]:
    """Partition indexes by topic id."""
    result: dict[bytes, set[int]] = {}
    for topic_id, index in partitions:
        result.setdefault(topic_id, set()).add(index)
    return result


def merged_topics(one: Topics, other: Topics) -> dict[bytes, TopicState]:
    """The topics of both arguments, each with the partitions of both."""
    result = dict(one)
    for topic_id, (name, partitions) in other.items():
        before = result.get(topic_id)
        result[topic_id] = TopicState(name, partitions if before is None else before.partitions | partitions)
    return result


def on_states_initialized(step: GroupStep, group: Group | None, event: StatesInitialized) -> None:
    """Note the share partitions that the share coordinator has initialized, which may now be assigned, and those whose
    initialization failed.

    DIVERGES: if the initialization of one share partition fails, Apache Kafka begins that of all others anew too.
    """
    if not isinstance(group, ShareGroup):
        return
    known = group.state_topics
    all_done, all_failed = partitions_by_topic(event.partitions), partitions_by_topic(event.failed)
    initialized: dict[bytes, TopicState] = {}
    initializing: dict[bytes, TopicState] = {}
    for topic_id, (name, partitions) in known.initializing.items():
        done = partitions & all_done.get(topic_id, NO_PARTITIONS)
        failed = partitions & all_failed.get(topic_id, NO_PARTITIONS)
        if done:
            initialized[topic_id] = TopicState(name, done)
        if partitions - done - failed:
            initializing[topic_id] = TopicState(name, partitions - done - failed)
    changed = StateTopics(initializing, merged_topics(known.initialized, initialized), known.deleting)
    if changed != known:
        step.write(state_topics_change(group.group_id, changed))


def on_topics_deleted(step: GroupStep, group: ShareGroup, topic_ids: frozenset[bytes]) -> None:
    """Remove deleted topics from the group's record. The share coordinator deletes their state by itself."""
    known = group.state_topics
    if topic_ids.isdisjoint({*known.initializing, *known.initialized, *known.deleting}):
        return
    kept = StateTopics(
        {key: topic for key, topic in known.initializing.items() if key not in topic_ids},
        {key: topic for key, topic in known.initialized.items() if key not in topic_ids},
        {key: name for key, name in known.deleting.items() if key not in topic_ids},
    )
    step.write(state_topics_change(group.group_id, kept))
    for topic_id, topic in known.initialized.items():
        if topic_id in topic_ids:
            step.add_to_history(group.group_id, Cause.TOPIC_DELETED, number=len(topic.partitions), detail=topic.name)


class Initialization(NamedTuple):
    """The outcome of the record that notes share partitions as initializing: once it is committed, the initialization
    is commanded."""

    command: InitializeStates
    former_ms: Mapping[bytes, int | None]
    """The former value of `ShareGroup.initialized_ms` for each topic of the command that had one."""

    def on_committed(self, step: GroupStep) -> None:
        """Command the initialization. Share partitions that an earlier command has initialized meanwhile are left
        out, because their state would be lost.

        DIVERGES: Apache Kafka initializes them again, and forgets what was acknowledged in them.
        """
        group = step.groups.get(self.command.group_id)
        if not isinstance(group, ShareGroup):  # The record of its first member made it.
            return
        initializing = group.state_topics.initializing
        offsets = tuple(
            each
            for each in self.command.offsets
            if each.topic_id in initializing and each.partition in initializing[each.topic_id].partitions
        )
        for topic_id, _, _ in offsets:
            group.initialized_ms[topic_id] = step.now_ms
        if offsets:
            step.command(self.command._replace(offsets=offsets))

    def on_failed(self, step: GroupStep, error: ErrorCode) -> None:
        """If the log has no record of this initialization, restore the former times in `initialized_ms`, so that the
        next heartbeat tries again. If the log may have the record, a heartbeat after the retry interval tries again."""
        group = step.groups.get(self.command.group_id)
        if error in APPENDED or not isinstance(group, ShareGroup):
            return
        for topic_id, _, _ in self.command.offsets:
            group.initialized_ms.pop(topic_id, None)
        group.initialized_ms.update(self.former_ms)
