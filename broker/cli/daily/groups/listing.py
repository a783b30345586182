"""The groups of a cluster, and their committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from moldau.broker.cli.daily.client import Client, Partition
from moldau.broker.cli.daily.failures import Failure, refused, unknown_failure
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from moldau.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponsePartition

T = TypeVar("T")
SHARE = "share"
STREAMS = "streams"
CONSUMER = "consumer"
CLASSIC = "classic"


class Group(NamedTuple):
    """A group as ListGroups lists it, with the node id of its coordinator."""

    name: str
    kind: str
    """One of `classic`, `consumer`, `share` and `streams`."""
    state: str
    protocol_type: str
    coordinator: int


def all_groups(client: Client) -> dict[str, Group]:
    """List the groups of all brokers that the user may see, by name. Raises `Failure`."""
    client.topics([])

    def ask(broker: int) -> ListGroupsResponse:
        reply = client.ask_broker(broker, ListGroupsRequest(), ListGroupsResponse)
        client.check(reply.error_code, None, f"the groups of broker {broker}")
        return reply

    found: dict[str, Group] = {}
    for broker in sorted(client.brokers):
        for each in client.retry(f"the groups of broker {broker}", lambda broker=broker: ask(broker)).groups:  # type: ignore[misc]
            kind = (each.group_type or CLASSIC).lower()
            found[each.group_id] = Group(each.group_id, kind, each.group_state, each.protocol_type, broker)
    return found


def known_groups(client: Client, names: Iterable[str]) -> list[Group]:
    """Return groups that must exist, by their names. Raises `Failure`, which names an existing group that was probably
    meant.
    """
    groups = all_groups(client)
    wanted = sorted(set(names))
    for name in wanted:
        if name not in groups:
            raise unknown_group(client, name, groups)
    return [groups[name] for name in wanted]


def unknown_group(client: Client, name: str, groups: Iterable[str]) -> Failure:
    """The failure for a group that is not in the list of groups: either it does not exist, or the user may not describe
    it. The reply of any broker to DescribeGroups distinguishes the two.
    """
    from moldau.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    (described,) = client.ask(DescribeGroupsRequest(groups=[name]), DescribeGroupsResponse).groups
    if described.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return refused(described.error_code, None, f"group {name}")
    return unknown_failure("group", name, groups)


def at_coordinator(client: Client, group: str, attempt: Callable[[], T]) -> T:
    """Call `attempt` and return its result. It is called again while the coordinator of the group moves. Raises
    `Failure`.
    """
    return client.retry(f"group {group}", attempt)


def committed_offsets(client: Client, group: Group) -> dict[Partition, int]:
    """The committed offsets of a group; for a share group its start offsets. A partition without an offset is left out.
    Raises `Failure`.
    """
    ask = _share_offsets if group.kind == SHARE else _committed
    return at_coordinator(client, group.name, lambda: ask(client, group.name))


def _committed(client: Client, group: str) -> dict[Partition, int]:
    from moldau.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchResponse,
    )

    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    reply = client.ask_coordinator(group, request, OffsetFetchResponse, version=9)
    (answer,) = reply.groups
    client.check(answer.error_code, None, f"group {group}")
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


def share_lags(client: Client, group: str) -> dict[Partition, int]:
    """The lag of each partition of a share group, as its coordinator reports it: the number of records from the
    share-partition start offset to the end of the partition that are not acknowledged. A partition without a known lag
    is left out. Raises `Failure`.
    """
    found = at_coordinator(client, group, lambda: _share_partitions(client, group))
    return {key: each.lag for key, each in found.items() if each.lag >= 0}


def _share_offsets(client: Client, group: str) -> dict[Partition, int]:
    return {key: each.start_offset for key, each in _share_partitions(client, group).items() if each.start_offset >= 0}


def _share_partitions(client: Client, group: str) -> dict[Partition, DescribeShareGroupOffsetsResponsePartition]:
    from moldau.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsResponse,
    )

    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    )
    (answer,) = client.ask_coordinator(group, request, DescribeShareGroupOffsetsResponse).groups
    client.check(answer.error_code, answer.error_message, f"group {group}")
    found: dict[Partition, DescribeShareGroupOffsetsResponsePartition] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            client.check(each.error_code, each.error_message, f"{topic.topic_name}-{each.partition_index}")
            found[topic.topic_name, each.partition_index] = each
    return found
