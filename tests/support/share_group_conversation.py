"""A conversation about share groups, held with ours and with Apache Kafka's: every request in every state.

`python -m tests.support.share_group_conversation PORT` holds it with a fresh broker on that port, which has
`group.share.assignment.interval.ms` 0, and prints the replies as the test keeps them. A group of its own is brought
into each state for each request; then it is described, with its start offsets.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, NamedTuple

from moldau.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.offset_commit import OffsetCommitResponse
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.produce import ProduceResponse
from moldau.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.consumer_conversation import MESSAGE, classic_join, commit, fetch
from tests.support.group_conversation import Wire
from tests.support.node import batch, produce_request

PAUSE_S: Final = 0.1
"""Long enough for the share coordinator to initialize share partitions."""
PAUSE: Final = None
Asked = tuple[object, int]
"""A request and its version."""
Talk = Generator[Asked | None, object, None]
"""What is asked, or a pause."""
CLIENT_HOST: Final = re.compile("client_host='[^']*'")
TOPICS: Final = ("t", "u")
"""Two partitions each; each partition of `t` has three records."""


class Known(NamedTuple):
    """A member of a group in a state."""

    member: str = "a"
    epoch: int = 1


Setup = Callable[["ShareTalk", str], Generator[Asked | None, object, Known]]


class ShareTalk:
    """Writes questions and answers down, without what is random and without the words of error messages."""

    def __init__(self, topic_ids: dict[str, bytes]) -> None:
        self._topic_ids = topic_ids
        self.lines: list[str] = []

    def ask(self, asked: Asked, text: str = "") -> Generator[Asked | None, object, object]:
        """Ask, and wait; write it down if there is a text."""
        response = yield asked
        yield PAUSE
        if text:
            self.lines += [text, f"    {self.shown(response)}"]
        return response

    def shown(self, response: object) -> str:
        text = repr(ordered(response))
        for name, topic_id in self._topic_ids.items():
            text = text.replace(repr(topic_id), f"ID_OF_{name}")
        text = MESSAGE.sub("error_message=TEXT", text).replace("throttle_time_ms=0, ", "")
        return CLIENT_HOST.sub("client_host=HOST", text)

    def state(self, group: str) -> Talk:
        """Write down what the group is, and where its share partitions start."""
        response = yield describe(group)
        assert isinstance(response, ShareGroupDescribeResponse)
        self.lines.append(f"    is {summary(response.groups[0])}")
        response = yield offsets_of(group, None)
        assert isinstance(response, DescribeShareGroupOffsetsResponse)
        (described,) = response.groups
        starts = {
            f"{topic.topic_name}-{each.partition_index}": (each.start_offset, each.lag)
            for topic in described.topics
            for each in topic.partitions
        }
        self.lines.append(f"    starts {described.error_code} {dict(sorted(starts.items()))}")


def ordered(response: object) -> object:
    """If the order of a reply says nothing, one order."""
    match response:
        case ShareGroupHeartbeatResponse(assignment=assignment) if assignment is not None:
            assignment.topic_partitions.sort(key=lambda topic: topic.topic_id)
        case DescribeShareGroupOffsetsResponse():
            for group in response.groups:
                group.topics.sort(key=lambda topic: topic.topic_name)
                for topic in group.topics:
                    topic.partitions.sort(key=lambda each: each.partition_index)
        case AlterShareGroupOffsetsResponse():
            response.responses.sort(key=lambda topic: topic.topic_name)
        case DeleteShareGroupOffsetsResponse():
            response.responses.sort(key=lambda topic: topic.topic_name)
        case ShareGroupDescribeResponse():
            for described in response.groups:
                described.members.sort(key=lambda member: member.member_id)
    return response


def summary(group: DescribedGroup) -> str:
    """The group. Which partitions a member has depends on the order of members, so that their number is shown."""
    if group.error_code:
        return f"error {group.error_code}"
    members = [
        f"{each.member_id} @{each.member_epoch} {each.subscribed_topic_names} "
        f"{sum(len(topic.partitions) for topic in each.assignment.topic_partitions)}"
        for each in group.members
    ]
    return f"{group.group_state} {group.group_epoch}/{group.assignment_epoch} {group.assignor_name} {sorted(members)}"


# Requests


def beat(group: str, member: str, epoch: int, *topics: str, **fields: Any) -> Asked:
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request, 1


def describe(*groups: str) -> Asked:
    return ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False), 1


def offsets_of(group: str, topics: dict[str, list[int]] | None, version: int = 1) -> Asked:
    named = None
    if topics is not None:
        named = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named)
    return DescribeShareGroupOffsetsRequest(groups=[asked]), version


def alter(group: str, **topics: dict[int, int]) -> Asked:
    """Start offsets by partition, by topic."""
    named = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index, offset in starts.items()
            ],
        )
        for name, starts in topics.items()
    ]
    return AlterShareGroupOffsetsRequest(group_id=group, topics=named), 0


def delete(group: str, *topics: str) -> Asked:
    named = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=named), 0


# The states


def absent(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    yield from ()
    return Known()


def with_offsets(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """A group of offsets, as consumers without membership have it."""
    answer = yield from talk.ask((commit(group, "", -1), 9))
    assert isinstance(answer, OffsetCommitResponse) and not answer.topics[0].partitions[0].error_code, answer
    return Known()


def consumers(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """A consumer group with a member."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = yield from talk.ask((request, 1))
    assert isinstance(answer, ConsumerGroupHeartbeatResponse) and not answer.error_code, answer
    return Known()


def settled(
    talk: ShareTalk, group: str, members: dict[str, tuple[str, ...]], rounds: int = 4
) -> Generator[Asked | None, object, dict[str, int]]:
    """Members of a group with their topics, after so many heartbeats. Returns their epochs."""
    epochs = dict.fromkeys(members, 0)
    for place in range(rounds):
        for member, topics in members.items():
            answer = yield from talk.ask(beat(group, member, epochs[member], *(() if place else topics)))
            assert isinstance(answer, ShareGroupHeartbeatResponse) and not answer.error_code, answer
            epochs[member] = answer.member_epoch
    return epochs


def joined(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """A member that has not heard of its partitions yet."""
    epochs = yield from settled(talk, group, {"a": ("t",)}, rounds=1)
    return Known(epoch=epochs["a"])


def stable(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    epochs = yield from settled(talk, group, {"a": ("t",)})
    return Known(epoch=epochs["a"])


def shared(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """Three members of two partitions."""
    epochs = yield from settled(talk, group, dict.fromkeys("abc", ("t",)))
    return Known(epoch=epochs["a"])


def behind(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """A member that does not know the epoch with which another one joined."""
    epochs = yield from settled(talk, group, {"a": ("t",)})
    yield from talk.ask(beat(group, "b", 0, "t"))
    return Known(epoch=epochs["a"])


def several_topics(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """Members with different topics, one of which does not exist."""
    epochs = yield from settled(talk, group, {"a": ("t", "u"), "b": ("u", "x")})
    return Known(epoch=epochs["a"])


def without_topics(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    epochs = yield from settled(talk, group, {"a": ("x",)}, rounds=2)
    return Known(epoch=epochs["a"])


def empty(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """A group that its only member has left."""
    known = yield from stable(talk, group)
    yield from talk.ask(beat(group, "a", -1))
    return known


def altered(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """A group that never had members, and starts at given offsets."""
    yield from talk.ask(alter(group, t={0: 1, 1: 0}))
    return Known()


def forgotten(talk: ShareTalk, group: str) -> Generator[Asked | None, object, Known]:
    """A group without members whose start offsets were deleted."""
    known = yield from empty(talk, group)
    yield from talk.ask(delete(group, "t"))
    return known


STATES: Final[dict[str, Setup]] = {
    setup.__name__: setup
    for setup in (
        absent,
        with_offsets,
        consumers,
        joined,
        stable,
        shared,
        behind,
        several_topics,
        without_topics,
        empty,
        altered,
        forgotten,
    )
}
DIVERGING: Final = frozenset(
    {"joined: join of a new member", "several_topics: join of a new member", "shared: ShareGroupDescribe"}
)
"""Questions that are answered otherwise here: members get other partitions, as many (`assignor.py`)."""


def heartbeats(group: str, known: Known) -> Iterable[tuple[str, Asked]]:
    member, epoch = known
    yield "join of a new member", beat(group, "n", 0, "t")
    yield "join of a new member, other topics", beat(group, "n", 0, "u", "x")
    yield "join of a member", beat(group, member, 0, "t")
    yield "join without topics", beat(group, "n", 0)
    yield "join with an empty list of topics", beat(group, "n", 0, subscribed_topic_names=[])
    yield "join without an id", beat(group, "", 0, "t")
    yield "join in a rack without a name", beat(group, "n", 0, "t", rack_id="")
    yield "heartbeat", beat(group, member, epoch)
    yield "heartbeat in a rack", beat(group, member, epoch, rack_id="r")
    yield "heartbeat with its topics", beat(group, member, epoch, "t")
    yield "heartbeat with other topics", beat(group, member, epoch, "u")
    yield "heartbeat with no topics", beat(group, member, epoch, subscribed_topic_names=[])
    yield "heartbeat of the epoch before", beat(group, member, epoch - 1)
    yield "heartbeat of two epochs before", beat(group, member, epoch - 2)
    yield "heartbeat of a later epoch", beat(group, member, epoch + 5)
    yield "heartbeat of nobody", beat(group, "nobody", epoch)
    yield "leave", beat(group, member, -1)
    yield "leave of nobody", beat(group, "nobody", -1)
    yield "leave for a while", beat(group, member, -2)


def offsets(group: str) -> Iterable[tuple[str, Asked]]:
    yield "offsets", offsets_of(group, {"t": [0, 1]})
    yield "offsets without lag", offsets_of(group, {"t": [0]}, version=0)
    yield "offsets of partitions that do not exist", offsets_of(group, {"t": [0, 7], "x": [0]})
    yield "offsets of no topics", offsets_of(group, {})
    yield "all offsets", offsets_of(group, None)
    yield "AlterShareGroupOffsets", alter(group, t={0: 2})
    yield "AlterShareGroupOffsets of another topic", alter(group, u={0: 0, 1: 0})
    yield "AlterShareGroupOffsets of partitions that do not exist", alter(group, t={0: 2, 9: 2}, x={0: 1})
    yield "AlterShareGroupOffsets of a topic that does not exist", alter(group, x={0: 1})
    yield "AlterShareGroupOffsets to where nothing is", alter(group, t={0: 100})
    yield "AlterShareGroupOffsets to nowhere", alter(group, t={0: -1})
    yield "AlterShareGroupOffsets of nothing", alter(group)
    yield "DeleteShareGroupOffsets", delete(group, "t")
    yield "DeleteShareGroupOffsets of another topic", delete(group, "u")
    yield "DeleteShareGroupOffsets of topics that do not exist", delete(group, "t", "x")
    yield "DeleteShareGroupOffsets of nothing", delete(group)


def others(group: str, known: Known) -> Iterable[tuple[str, Asked]]:
    yield "ShareGroupDescribe", describe(group)
    yield "DescribeGroups", (DescribeGroupsRequest(groups=[group]), 6)
    yield "DeleteGroups", (DeleteGroupsRequest(groups_names=[group]), 2)
    yield "commit", (commit(group, "", -1), 9)
    yield "commit of a member", (commit(group, known.member, known.epoch), 9)
    yield "fetch", (fetch(group, None, -1), 9)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    yield "OffsetDelete", (OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
    yield "classic join", (classic_join(group, "nobody"), 9)
    yield "classic heartbeat", (HeartbeatRequest(group_id=group, generation_id=1, member_id=known.member), 4)
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=known.member, member_epoch=known.epoch)
    yield "heartbeat of a consumer", (request, 1)


def questions(group: str, known: Known) -> list[tuple[str, Asked]]:
    """Every request, with its version."""
    return [*heartbeats(group, known), *offsets(group), *others(group, known)]


def prepared() -> Generator[Asked | None, object, dict[str, bytes]]:
    """Create the topics, their records and the coordinators' internal topics. Returns the ids of the topics."""
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
    created = yield CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7
    assert isinstance(created, CreateTopicsResponse) and not any(each.error_code for each in created.topics), created
    for partition in (0, 1):
        request = produce_request("t", batch("a", "b", "c"), partition=partition)
        while True:
            produced = yield request, 9
            assert isinstance(produced, ProduceResponse)
            if not produced.responses[0].partition_responses[0].error_code:
                break
            yield PAUSE
    ids = {topic.name: topic.topic_id for topic in created.topics}
    for number in range(1_000):
        found = yield FindCoordinatorRequest(key="g"), 2
        assert isinstance(found, FindCoordinatorResponse)
        answer = yield describe(f"group {number}")
        assert isinstance(answer, ShareGroupDescribeResponse)
        if found.error_code or answer.groups[0].error_code not in (0, 69):
            yield PAUSE
    yield from settled(ShareTalk(ids), "first", {"a": TOPICS}, rounds=30)
    return ids


def converse() -> Generator[Asked | None, object, list[str]]:
    """Every request in every state. Returns the lines."""
    talk = ShareTalk((yield from prepared()))
    for name, setup in STATES.items():
        for place in range(len(questions("", Known()))):
            group = f"{name} {place}"
            known = yield from setup(talk, group)
            text, question = questions(group, known)[place]
            yield from talk.ask(question, f"{name}: {text}")
            yield from talk.state(group)
    return talk.lines


def hold(port: int) -> list[str]:
    """The conversation with a broker on this machine."""
    wire, talk = Wire(port), converse()
    answer: object = None
    try:
        asked = next(talk)
        while True:
            if asked is PAUSE:
                time.sleep(PAUSE_S)
            else:
                answer = wire.call(*asked)
            asked = talk.send(answer)
    except StopIteration as end:
        lines: list[str] = end.value
        return lines


if __name__ == "__main__":
    print("\n".join(hold(int(sys.argv[1]))))
