"""The start offsets of a share group, which an administrator describes, sets and deletes.

The share coordinator stores the start offsets. The group finds the share partitions that a request concerns, the broker
sends requests to the share coordinator, and the group stores the result (`StatesInitialized`, `StatesDeleted`).
"""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.group import Group, GroupStep
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.membership import Refusal, answer_when_committed, group_not_found, wrong_group_kind
from moldau.coordinator.share.events import (
    AlterOffsets,
    DeleteOffsets,
    DeleteStates,
    InitialOffset,
    ListStates,
    OffsetsToAlter,
    StatesDeleted,
    StatesToDelete,
)
from moldau.coordinator.share.group import ShareGroup
from moldau.coordinator.share.records import StateTopics, TopicState, state_topics_change
from moldau.coordinator.share.state_topics import merged_topics
from moldau.protocol.errors import ErrorCode

NOT_EMPTY: Final = Refusal(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def list_states(step: GroupStep, group: Group | None, event: ListStates) -> None:
    """Reply with the initialized share partitions of the group; the reply is empty if the group does not exist."""
    topics = group.state_topics.initialized if isinstance(group, ShareGroup) else {}
    answer = {topic_id: topic.partitions for topic_id, topic in topics.items()}
    answer_when_committed(step, event.waiter, answer)


def alter_offsets(step: GroupStep, group: Group | None, event: AlterOffsets) -> None:
    """Handle an AlterShareGroupOffsets: note the named share partitions that exist as initializing, and reply with
    them. A group that does not exist is created."""
    if group is not None and not isinstance(group, ShareGroup):
        step.reply(event.waiter, wrong_group_kind(event.group_id, "share"))
        return
    own = ShareGroup(event.group_id) if group is None else group
    if own.members:
        step.reply(event.waiter, NOT_EMPTY)
        return
    offsets: list[InitialOffset] = []
    named: dict[bytes, tuple[str, set[int]]] = {}
    for name, partition, start_offset in event.offsets:
        topic = step.image.topic_of_name(name)
        if topic is not None and 0 <= partition < topic.partitions_count:
            offsets.append(InitialOffset(topic.id, partition, start_offset))
            named.setdefault(topic.id, (name, set()))[1].add(partition)
    if named:
        new = {topic_id: TopicState(name, frozenset(partitions)) for topic_id, (name, partitions) in named.items()}
        known = own.state_topics
        deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in new}
        changed = StateTopics(merged_topics(known.initializing, new), known.initialized, deleting)
        step.write(state_topics_change(event.group_id, changed))
        step.add_to_history(event.group_id, Cause.OFFSETS_SET, number=len(offsets))
    answer = OffsetsToAlter(own.epoch, tuple(offsets))
    answer_when_committed(step, event.waiter, answer)


def delete_offsets(step: GroupStep, group: Group | None, event: DeleteOffsets) -> None:
    """Handle a DeleteShareGroupOffsets: note the topics as deleting, and reply with their partitions. The partitions of
    these topics are not assigned any more.

    DIVERGES: nothing is written if nothing changes; Apache Kafka writes the group's record again.
    """
    if not isinstance(group, ShareGroup):
        refusal = group_not_found(event.group_id) if group is None else wrong_group_kind(event.group_id, "share")
        step.reply(event.waiter, refusal)
        return
    if group.members:
        step.reply(event.waiter, NOT_EMPTY)
        return
    known = group.state_topics
    initialized, deleting = dict(known.initialized), dict(known.deleting)
    states: dict[bytes, frozenset[int]] = {}
    for name in event.topics:
        topic = step.image.topic_of_name(name)
        if topic is None:
            continue
        if topic.id in initialized:
            states[topic.id] = initialized.pop(topic.id).partitions
            deleting[topic.id] = name
        elif topic.id in deleting:
            states[topic.id] = frozenset(range(topic.partitions_count))
    if states:
        step.write(state_topics_change(event.group_id, StateTopics(known.initializing, initialized, deleting)))
        step.add_to_history(event.group_id, Cause.OFFSETS_DELETED, number=sum(map(len, states.values())))
    answer_when_committed(step, event.waiter, StatesToDelete(states))


def delete_states(step: GroupStep, group: Group | None, event: DeleteStates) -> None:
    """Note all topics of the group as deleting, before a DeleteGroups deletes the group, and reply with their
    partitions. Topics whose deletion failed before are included if they exist. If the deletion fails, the states are
    initialized again."""
    states: dict[bytes, frozenset[int]] = {}
    if isinstance(group, ShareGroup) and not group.members:
        known = group.state_topics
        found = [topic for topic_id in known.deleting if (topic := step.image.topic_of_id(topic_id)) is not None]
        again = {topic.id: TopicState(topic.name, frozenset(range(topic.partitions_count))) for topic in found}
        topics = merged_topics(merged_topics(known.initialized, known.initializing), again)
        states = {topic_id: topic.partitions for topic_id, topic in topics.items()}
        changed = StateTopics(deleting={topic_id: topic.name for topic_id, topic in topics.items()})
        if changed != known:
            step.write(state_topics_change(event.group_id, changed))
    answer_when_committed(step, event.waiter, StatesToDelete(states))


def on_states_deleted(step: GroupStep, group: Group | None, event: StatesDeleted) -> None:
    """Remove topics from the group's record, because the share coordinator has deleted the state of all their
    partitions."""
    if isinstance(group, ShareGroup) and event.topic_ids & group.state_topics.deleting.keys():
        known = group.state_topics
        deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in event.topic_ids}
        step.write(state_topics_change(event.group_id, known._replace(deleting=deleting)))
    answer_when_committed(step, event.waiter, StatesToDelete({}))
