"""A conversation about consumer groups, held with ours and with Apache Kafka's: every request in every state.

`python -m tests.support.consumer_conversation PORT` holds it with a fresh broker on that port, which has
`group.initial.rebalance.delay.ms` 0 and `group.consumer.assignment.interval.ms` 0, and prints the replies as the test
keeps them. A group of its own is brought into each state for each request; then it is described.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, NamedTuple

from moldau.protocol.compiler import encode
from moldau.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.records.offsets import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from tests.support.group_conversation import MAIN, Question, Wire, ordered, prepare

Talk = Generator[Question, object, None]
Asked = tuple[object, int]
"""A request and its version."""
MESSAGE = re.compile(r"error_message=(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")


class Known(NamedTuple):
    """The members of a group in a state, as a request names them."""

    member: str = "a"
    epoch: int = 1
    instance: str | None = None
    classic: str = "nobody"
    """A member of the classic protocol."""
    generation: int = 1


class ConsumerConversation:
    """Writes questions and answers down, without what is random and without the words of error messages."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self._ids: dict[str, str] = {}
        self.lines: list[str] = []

    def ask(self, request: object, version: int, text: str = "") -> Generator[Question, object, object]:
        """Ask; write it down if there is a text."""
        response = yield MAIN, request, version
        if isinstance(response, JoinGroupResponse) and response.member_id:
            self._ids.setdefault(response.member_id, f"ID{len(self._ids) + 1}")
        if text:
            self.lines += [text, f"    {self.shown(response)}"]
        return response

    def shown(self, response: object) -> str:
        text = repr(ordered(response, lambda member_id: 0)).replace(repr(self.topic_id), "TOPIC_ID")
        for member_id, name in self._ids.items():
            text = text.replace(member_id, name)
        return MESSAGE.sub("error_message=TEXT", text).replace("throttle_time_ms=0, ", "")

    def state(self, group: str) -> Talk:
        """Write down what the group is."""
        response = yield MAIN, ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1
        assert isinstance(response, ConsumerGroupDescribeResponse)
        self.lines.append(f"    is {self._summary(response.groups[0])}")

    def _summary(self, group: DescribedGroup) -> str:
        if group.error_code:
            return f"error {group.error_code}"
        members = []
        for member in group.members:
            name = self._ids.get(member.member_id, member.member_id)
            owned, target = (
                sorted(index for topic in assignment.topic_partitions for index in topic.partitions)
                for assignment in (member.assignment, member.target_assignment)
            )
            kind = "" if member.member_type else " classic"
            members.append(f"{name}{kind} {member.instance_id} @{member.member_epoch} {owned} → {target}")
        epochs = f"{group.group_epoch}/{group.assignment_epoch}"
        return f"{group.group_state} {epochs} {group.assignor_name} {sorted(members)}"

    # Requests

    def beat(self, group: str, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Asked:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
        for name, value in fields.items():
            setattr(request, name, value)
        return request, version

    def joining(self, group: str, member: str, instance: str | None = None, **fields: Any) -> Asked:
        said: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "topic_partitions": [],
            "subscribed_topic_names": ["t"],
            "instance_id": instance,
        }
        return self.beat(group, member, 0, **{**said, **fields})

    def owning(self, *partitions: int) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=self.topic_id, partitions=[*partitions])] if partitions else []

    def said(self, question: Asked, text: str = "") -> Generator[Question, object, object]:
        request, version = question
        return (yield from self.ask(request, version, text))


def classic_join(
    group: str, member: str, *, instance: str | None = None, owned: Iterable[int] = ()
) -> JoinGroupRequest:
    subscription = ConsumerProtocolSubscription(
        topics=["t"], owned_partitions=[TopicPartition(topic="t", partitions=[*owned])] if owned else []
    )
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\1" + encode(subscription, 1))],
    )


def sync(group: str, member: str, generation: int, plan: Mapping[str, Iterable[int]] | None = None) -> SyncGroupRequest:
    assignments = []
    for each, partitions in (plan or {}).items():
        assigned = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[*partitions])])
        data = struct.pack(">h", 1) + encode(assigned, 1)
        assignments.append(SyncGroupRequestAssignment(member_id=each, assignment=data))
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )


def commit(group: str, member: str, epoch: int, partition: int = 0) -> OffsetCommitRequest:
    topic = OffsetCommitRequestTopic(
        name="t", partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=3)]
    )
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=epoch, member_id=member, topics=[topic])


def fetch(group: str, member: str | None, epoch: int, *, stable: bool = True) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    asked = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)
    return OffsetFetchRequest(groups=[asked], require_stable=stable)


# The states


Setup = Callable[[ConsumerConversation, str], Generator[Question, object, Known]]


def absent(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    yield from ()
    return Known()


def with_offsets(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    yield from talk.ask(commit(group, "", -1), 9)
    return Known()


def classic_stable(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    asked = yield from talk.ask(classic_join(group, ""), 9)
    assert isinstance(asked, JoinGroupResponse)
    joined = yield from talk.ask(classic_join(group, asked.member_id), 9)
    assert isinstance(joined, JoinGroupResponse) and joined.error_code == 0, joined
    yield from talk.ask(sync(group, joined.member_id, joined.generation_id, {joined.member_id: [0, 1]}), 5)
    return Known(classic=joined.member_id, generation=joined.generation_id)


def classic_empty(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    known = yield from classic_stable(talk, group)
    yield from talk.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=known.classic)]), 5)
    return known


def stable(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    joined = yield from talk.said(talk.joining(group, "a"))
    assert isinstance(joined, ConsumerGroupHeartbeatResponse) and joined.error_code == 0, joined
    return Known("a", joined.member_epoch)


def empty(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    known = yield from stable(talk, group)
    yield from talk.said(talk.beat(group, "a", -1))
    return known


def reconciling(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    """a has to revoke a partition, b waits for it."""
    known = yield from stable(talk, group)
    yield from talk.said(talk.joining(group, "b"))
    yield from talk.said(talk.beat(group, "a", known.epoch))
    return known


def moved(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    """a is one epoch further, and b has its partition."""
    known = yield from reconciling(talk, group)
    yield from talk.said(talk.beat(group, "a", known.epoch, topic_partitions=talk.owning(0)))
    yield from talk.said(talk.beat(group, "b", known.epoch + 1, topic_partitions=[]))
    return known._replace(epoch=known.epoch + 1)


def static(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    joined = yield from talk.said(talk.joining(group, "a", "i1"))
    assert isinstance(joined, ConsumerGroupHeartbeatResponse) and joined.error_code == 0, joined
    return Known("a", joined.member_epoch, "i1")


def away(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    known = yield from static(talk, group)
    yield from talk.said(talk.beat(group, "a", -2, instance_id="i1"))
    return known


def mixed(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    """A classic member that has to revoke a partition, and b, which waits for it."""
    known = yield from classic_stable(talk, group)
    joined = yield from talk.said(talk.joining(group, "b"))
    assert isinstance(joined, ConsumerGroupHeartbeatResponse) and joined.error_code == 0, joined
    return known._replace(member="b", epoch=joined.member_epoch)


def mixed_stable(talk: ConsumerConversation, group: str) -> Generator[Question, object, Known]:
    known = yield from mixed(talk, group)
    yield from talk.ask(classic_join(group, known.classic, owned=[0, 1]), 9)
    yield from talk.ask(classic_join(group, known.classic, owned=[0]), 9)
    yield from talk.ask(sync(group, known.classic, known.epoch), 5)
    yield from talk.said(talk.beat(group, "b", known.epoch))
    return known._replace(generation=known.epoch)


STATES: dict[str, Setup] = {
    setup.__name__: setup
    for setup in (
        absent,
        with_offsets,
        classic_empty,
        classic_stable,
        empty,
        stable,
        reconciling,
        moved,
        static,
        away,
        mixed,
        mixed_stable,
    )
}

DIVERGING: Final[dict[str, str]] = {}
"""Questions that are answered otherwise here, with the reason."""

# The requests


def questions(talk: ConsumerConversation, group: str, known: Known) -> Iterable[tuple[str, Asked]]:
    """Every request, with its version."""
    member, epoch, instance = known.member, known.epoch, known.instance
    yield "join of a new member", talk.joining(group, "n")
    yield (
        "join of a new member by an expression",
        talk.joining(group, "n", subscribed_topic_names=None, subscribed_topic_regex=""),
    )
    yield "join of a new static member", talk.joining(group, "n", "i9")
    yield "join in place of a static member", talk.joining(group, "n", "i1")
    yield "join of a member", talk.joining(group, member, instance)
    yield "join with range", talk.joining(group, "n", server_assignor="range")
    yield "join with an assignor that is not there", talk.joining(group, "n", server_assignor="x")
    yield "heartbeat", talk.beat(group, member, epoch, instance_id=instance)
    yield (
        "heartbeat with partitions",
        talk.beat(group, member, epoch, instance_id=instance, topic_partitions=talk.owning(0)),
    )
    yield (
        "heartbeat with other topics",
        talk.beat(group, member, epoch, instance_id=instance, subscribed_topic_names=["u"], topic_partitions=[]),
    )
    yield (
        "heartbeat with an invalid expression",
        talk.beat(group, member, epoch, instance_id=instance, subscribed_topic_regex="("),
    )
    yield "heartbeat of the epoch before", talk.beat(group, member, epoch - 1, topic_partitions=talk.owning(0))
    yield (
        "heartbeat of the epoch before with too much",
        talk.beat(group, member, epoch - 1, topic_partitions=talk.owning(0, 1)),
    )
    yield "heartbeat of a later epoch", talk.beat(group, member, epoch + 5, instance_id=instance)
    yield "heartbeat of nobody", talk.beat(group, "nobody", 1)
    yield "heartbeat of another instance", talk.beat(group, member, epoch, instance_id="i9")
    yield "heartbeat of another member as the instance", talk.beat(group, "x", epoch, instance_id="i1")
    yield "leave", talk.beat(group, member, -1, instance_id=instance)
    yield "leave of nobody", talk.beat(group, "nobody", -1)
    yield "leave for a while", talk.beat(group, member, -2, instance_id=instance)
    yield "leave for a while as i1", talk.beat(group, member, -2, instance_id="i1")
    yield "DescribeGroups", (DescribeGroupsRequest(groups=[group]), 6)
    yield "DeleteGroups", (DeleteGroupsRequest(groups_names=[group]), 2)
    yield "commit without member", (commit(group, "", -1), 9)
    yield "commit", (commit(group, member, epoch), 9)
    yield "commit of an old version", (commit(group, member, epoch), 8)
    yield "commit of the epoch before", (commit(group, member, epoch - 1), 9)
    yield "commit of the epoch before, of another partition", (commit(group, member, epoch - 1, 1), 9)
    yield "commit of a later epoch", (commit(group, member, epoch + 1), 9)
    yield "commit of nobody", (commit(group, "nobody", epoch), 9)
    yield "commit of the classic member", (commit(group, known.classic, known.generation), 9)
    yield "commit of the classic member, a later generation", (commit(group, known.classic, known.generation + 1), 9)
    yield "fetch", (fetch(group, member, epoch), 9)
    yield "fetch of committed offsets", (fetch(group, member, epoch, stable=False), 9)
    yield "fetch of another epoch", (fetch(group, member, epoch + 1), 9)
    yield "fetch of nobody", (fetch(group, "nobody", epoch), 9)
    yield "fetch without member", (fetch(group, None, -1), 9)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    yield "OffsetDelete", (OffsetDeleteRequest(group_id=group, topics=[topic]), 0)
    yield "classic join", (classic_join(group, ""), 9)
    yield "classic join of nobody", (classic_join(group, "nobody"), 9)
    yield "classic sync", (sync(group, known.classic, known.generation), 5)
    yield "classic sync of another generation", (sync(group, known.classic, known.generation + 1), 5)
    beat = HeartbeatRequest(group_id=group, generation_id=known.generation, member_id=known.classic)
    yield "classic heartbeat", (beat, 4)
    yield (
        "classic heartbeat of a member",
        (
            HeartbeatRequest(group_id=group, generation_id=epoch, member_id=member),
            4,
        ),
    )
    identities = [MemberIdentity(member_id=each) for each in (known.classic, "nobody")]
    yield "classic leave", (LeaveGroupRequest(group_id=group, members=identities), 5)
    yield (
        "classic leave of a member",
        (
            LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member, group_instance_id=instance)]),
            5,
        ),
    )


def converse(topic_id: bytes) -> Generator[Question, object, list[str]]:
    """Every request in every state. Returns the lines."""
    talk = ConsumerConversation(topic_id)
    for name, setup in STATES.items():
        count = sum(1 for _ in questions(talk, "", Known()))
        for place in range(count):
            group = f"{name} {place}"
            known = yield from setup(talk, group)
            text, question = [*questions(talk, group, known)][place]
            yield from talk.said(question, f"{name}: {text}")
            yield from talk.state(group)
    return talk.lines


def hold(port: int) -> list[str]:
    """The conversation with a broker on this machine."""
    wire = Wire(port)
    talk = converse(prepare(wire))
    try:
        _, request, version = next(talk)
        while True:
            _, request, version = talk.send(wire.call(request, version))
    except StopIteration as end:
        lines: list[str] = end.value
        return lines


if __name__ == "__main__":
    print("\n".join(hold(int(sys.argv[1]))))
