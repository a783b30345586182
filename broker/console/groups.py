"""Reads from coordinators: the list of groups, committed offsets, and the state of share partitions.

list_groups, committed_offsets ──▶ group coordinators ──▶ groups; committed offsets, start offsets of share groups
share_states ──▶ share coordinators ──▶ the delivery states of the records after a start offset
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.console.decoding.counting import OffsetSet
from moldau.broker.console.kafka_client import TIMEOUT_MS, KafkaClient, Unanswered
from moldau.broker.console.page import Refusal, error_name, gather_results
from moldau.broker.console.partitions import READ_COMMITTED, READ_UNCOMMITTED, Partition
from moldau.broker.coordinators.share_state_persister import NO_WAITER
from moldau.coordinator.share_coordinator.events import NO_EPOCH, ReadState, StateAnswer
from moldau.coordinator.share_coordinator.state import ShareKey, StateBatch
from moldau.kraft.image.topics import Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from moldau.replication.share.in_flight import RecordState
from moldau.security.access import AclOperation, ResourceKind

SHARE: Final = "share"
BY_NAME_VERSION: Final = 9
"""The last version of OffsetFetch that names topics by their names."""
GROUPS_ASKED_MAX: Final = 16
"""The most groups in one OffsetFetch. The coordinator looks up their offsets in one iteration of its event loop."""
STATES_ASKED_MAX: Final = 32
"""The most share partitions whose state is requested at the same time."""


class Group(NamedTuple):
    """A group as its coordinator lists it, with the coordinator's node id."""

    id: str
    kind: str
    state: str
    protocol_type: str
    coordinator: int


def _group(listed: ListedGroup, broker_id: int) -> Group:
    return Group(listed.group_id, listed.group_type, listed.group_state, listed.protocol_type, broker_id)


async def list_groups(client: KafkaClient) -> tuple[list[Group], list[str]]:
    """List the groups that the user may describe. The second value has the errors of brokers that did not list their
    groups.
    """
    found: list[Group] = []
    errors: list[str] = []

    async def ask(broker_id: int) -> None:
        try:
            answer = await client.ask(ListGroupsRequest(), ListGroupsResponse, broker_id=broker_id)
        except Unanswered as unanswered:
            errors.append(str(unanswered))
            return
        if answer.error_code:
            errors.append(f"broker {broker_id}: {error_name(answer.error_code)}")
        found.extend(_group(each, broker_id) for each in answer.groups)

    brokers = client.ports.cluster.image.cluster.brokers
    await gather_results(*(ask(broker_id) for broker_id in sorted(brokers) if not brokers[broker_id].fenced))
    return found, errors


async def group_of(client: KafkaClient, group_id: str, coordinator: int) -> Group:
    """Find a group in the list of its coordinator. Raises `Refusal` if it is not there, and `Unanswered`."""
    listed = await client.ask(ListGroupsRequest(), ListGroupsResponse, broker_id=coordinator)
    for each in listed.groups:
        if each.group_id == group_id:
            return _group(each, coordinator)
    raise Refusal(404, f"there is no group {group_id}")


async def coordinator_of(client: KafkaClient, group_id: str) -> int:
    """The node id of a group's coordinator. Raises `Refusal`.

    If `__consumer_offsets` does not exist, there are no groups. The coordinator is not asked for then, because that
    would create the topic.
    """
    if client.ports.cluster.image.topics.by_name(GROUP_METADATA_TOPIC) is None:
        raise Refusal(404, f"there is no group {group_id}")
    answer = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), FindCoordinatorResponse)
    (found,) = answer.coordinators
    if found.error_code:
        raise Refusal(503, f"the coordinator of the group is not known: {error_name(found.error_code)}")
    return found.node_id


@dataclass(slots=True)
class CommittedOffsets:
    """The committed offsets of one group; for a share group its start offsets. An offset is None if the partition has
    none.
    """

    offsets: dict[Partition, int | None] = field(default_factory=dict)
    metadata: dict[Partition, str] = field(default_factory=dict)
    is_share: bool = False
    isolation: int = READ_COMMITTED
    error: str = ""


async def committed_offsets(
    client: KafkaClient, groups: Iterable[Group], topic: Topic | None = None
) -> dict[str, CommittedOffsets]:
    """The offsets of groups, by group id. They are limited to topics that the user may describe, and to `topic` if it
    is given.
    """
    found: dict[str, CommittedOffsets] = {}
    by_coordinator: dict[tuple[int, bool], list[str]] = {}
    for group in groups:
        found[group.id] = CommittedOffsets()
        by_coordinator.setdefault((group.coordinator, group.kind == SHARE), []).append(group.id)

    async def ask(coordinator: int, is_share: bool) -> None:
        ids = by_coordinator[coordinator, is_share]
        read = _share_offsets if is_share else _consumer_offsets
        try:
            for begin in range(0, len(ids), GROUPS_ASKED_MAX):
                await read(client, coordinator, ids[begin : begin + GROUPS_ASKED_MAX], found, topic)
        except Unanswered as unanswered:
            for group_id in ids:
                found[group_id].error = str(unanswered)

    await gather_results(*(ask(*key) for key in by_coordinator))
    return found


async def _consumer_offsets(
    client: KafkaClient,
    coordinator: int,
    group_ids: list[str],
    found: dict[str, CommittedOffsets],
    topic: Topic | None,
) -> None:
    named = (
        None if topic is None else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=[*topic.partitions])]
    )
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=named) for group_id in group_ids]
    answer = await client.ask(
        OffsetFetchRequest(groups=groups), OffsetFetchResponse, broker_id=coordinator, version=BY_NAME_VERSION
    )
    for group in answer.groups:
        of = found[group.group_id]
        of.error = error_name(group.error_code)
        for of_topic in group.topics:
            for each in of_topic.partitions:
                key = (of_topic.name, each.partition_index)
                of.offsets[key] = each.committed_offset if each.committed_offset >= 0 else None
                of.metadata[key] = each.metadata or ""


async def _share_offsets(
    client: KafkaClient,
    coordinator: int,
    group_ids: list[str],
    found: dict[str, CommittedOffsets],
    topic: Topic | None,
) -> None:
    named = (
        None
        if topic is None
        else [DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[*topic.partitions])]
    )
    allowed = [each for each in group_ids if client.may(AclOperation.DESCRIBE, ResourceKind.GROUP, each)]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=named) for group_id in allowed]
    answer = await client.ask(
        DescribeShareGroupOffsetsRequest(groups=groups), DescribeShareGroupOffsetsResponse, broker_id=coordinator
    )
    settings_of = client.ports.services.share_partitions.settings_of
    for group in answer.groups:
        of = found[group.group_id]
        of.is_share, of.error = True, error_name(group.error_code)
        of.isolation = READ_COMMITTED if settings_of(group.group_id).reads_committed else READ_UNCOMMITTED
        for of_topic in group.topics:
            if not client.may(AclOperation.DESCRIBE, ResourceKind.TOPIC, of_topic.topic_name):
                continue
            for each in of_topic.partitions:
                of.offsets[of_topic.topic_name, each.partition_index] = (
                    each.start_offset if each.start_offset >= 0 else None
                )


ShareStates = Mapping[Partition, Sequence[StateBatch] | None]


async def share_states(
    client: KafkaClient, group_id: str, of: CommittedOffsets, ends: Mapping[Partition, int]
) -> ShareStates:
    """For each partition of a share group, the delivery states of the records after the start offset, as the share
    coordinator stores them; None if the coordinator does not answer. Partitions that the group has read to the end are
    left out. Empty for a group of another type.
    """
    topics = client.ports.cluster.image.topics
    keys = []
    for key, start in of.offsets.items() if of.is_share else ():
        topic = topics.by_name(key[0])
        if topic is not None and start is not None and start < ends.get(key, start):
            keys.append((key, ShareKey(group_id, topic.id, key[1])))
    found: dict[Partition, Sequence[StateBatch] | None] = {key: None for key, _ in keys}

    async def ask(key: Partition, share_key: ShareKey) -> None:
        found[key] = await _state(client, share_key)

    for begin in range(0, len(keys), STATES_ASKED_MAX):
        await gather_results(*(ask(*each) for each in keys[begin : begin + STATES_ASKED_MAX]))
    return found


def finished_offsets(states: ShareStates) -> dict[Partition, OffsetSet | None]:
    """The offsets of each share partition that are acknowledged or archived, so that they are not delivered again; None
    if the state is not known.
    """
    return {
        key: None
        if batches is None
        else OffsetSet(
            [
                (each.first_offset, each.last_offset + 1)
                for each in batches
                if each.delivery_state != RecordState.AVAILABLE
            ]
        )
        for key, batches in states.items()
    }


async def _state(client: KafkaClient, key: ShareKey) -> Sequence[StateBatch] | None:
    """The state batches of a share partition; None if there is no answer. The request has no leader epoch, so that none
    is compared or stored.
    """
    waiting: asyncio.Future[StateAnswer] = asyncio.get_running_loop().create_future()

    def answered(answer: StateAnswer) -> None:
        if not waiting.done():
            waiting.set_result(answer)

    client.ports.services.share_persister.ask(ReadState(NO_WAITER, key, NO_EPOCH), answered)
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            answer = await waiting
    except TimeoutError:
        return None
    return answer.batches if answer.error is ErrorCode.NONE else None
