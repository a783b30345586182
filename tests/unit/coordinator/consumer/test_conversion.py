"""Groups that turn from the classic protocol into the consumer protocol and back, member by member."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import pytest

from moldau.coordinator.classic.events import Heartbeat, Join, Leave, Sync
from moldau.coordinator.classic.group import NO_ASSIGNMENT, ClassicGroup
from moldau.coordinator.consumer.embedded_protocol import read_assignment
from moldau.coordinator.consumer.member import MemberState
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.kind_settings import ConsumerGroupSettings, MigrationPolicy
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from moldau.protocol.records.offsets import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from tests.support.consumer_stage import ConsumerStage, assigned

NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS
A = b"a" * 16


class Classic:
    """Requests of the classic protocol to a stage, each with an answer at once or None."""

    def __init__(self, **settings: object) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=0,
            consumer=ConsumerGroupSettings(**settings),  # type: ignore[arg-type]
        )
        self.stage = ConsumerStage(config=config)

    def join(
        self,
        member_id: str,
        *,
        owned: Mapping[str, Iterable[int]] | None = None,
        instance_id: str | None = None,
        topics: Iterable[str] = ("a",),
        user_data: bytes = b"",
        protocol_type: str = "consumer",
        protocol: str = "range",
        version: int = 9,
    ) -> JoinGroupResponse | None:
        subscription = ConsumerProtocolSubscription(
            topics=[*topics],
            owned_partitions=[
                TopicPartition(topic=name, partitions=[*indexes]) for name, indexes in (owned or {}).items()
            ],
        )
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=b"\0\1" + encode(subscription, 1))],
        )
        event = Join(self.stage.waiter(version), request, "client", "/host", f"fresh-{self.stage.token}")
        response = self.stage.ask(event)
        if response is None:
            self.stage.wait(0)  # the initial delay of a first rebalance
            response = self.stage.replies.pop(event.waiter.token, None)
        assert response is None or isinstance(response, JoinGroupResponse)
        return response

    def sync(
        self,
        member_id: str,
        epoch: int,
        assignments: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
    ) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=key, assignment=value)
                for key, value in (assignments or {}).items()
            ],
        )
        response = self.stage.ask(Sync(self.stage.waiter(4), request))
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(self, member_id: str, epoch: int, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id="g", generation_id=epoch, member_id=member_id, group_instance_id=instance_id
        )
        response = self.stage.ask(Heartbeat(self.stage.waiter(4), request))
        assert isinstance(response, HeartbeatResponse)
        return response.error_code

    def leave(self, *identities: tuple[str, str | None]) -> list[int]:
        members = [
            MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in identities
        ]
        response = self.stage.ask(Leave(self.stage.waiter(5), LeaveGroupRequest(group_id="g", members=members)))
        assert isinstance(response, LeaveGroupResponse)
        return [result.error_code for result in response.members]

    def stable_group(self, user_data: bytes = b"", protocol_type: str = "consumer") -> str:
        """A stable classic group of one member that has all partitions. Returns the member's id."""
        asked = self.join("", protocol_type=protocol_type)
        assert asked is not None and asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = self.join(asked.member_id, protocol_type=protocol_type)
        assert joined is not None and joined.error_code == NONE
        self.sync(joined.member_id, joined.generation_id, {joined.member_id: written("a", range(4), user_data)})
        return joined.member_id

    @property
    def classic_group(self) -> ClassicGroup:
        group = self.stage.shard.group("g")
        assert isinstance(group, ClassicGroup)
        return group


def written(topic: str, partitions: Iterable[int], user_data: bytes = b"") -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=topic, partitions=[*partitions])], user_data=user_data
    )
    return struct.pack(">h", 1) + encode(assignment, 1)


def given(response: SyncGroupResponse) -> dict[str, list[int]]:
    return {topic.topic: topic.partitions for topic in read_assignment(response.assignment).assigned_partitions}


def upgraded() -> tuple[Classic, str]:
    """A classic member with all partitions, and m2 of the consumer protocol, which turned the group."""
    classic = Classic()
    member_id = classic.stable_group()
    classic.stage.join("m2")
    return classic, member_id


# Upgrade


def test_the_first_member_of_the_consumer_protocol_turns_the_group() -> None:
    classic, member_id = upgraded()
    group = classic.stage.group
    assert (group.epoch, group.assignment_epoch, group.classic_members_count) == (2, 2, 1)
    member = group.members[member_id]
    assert (member.epoch, member.assigned) == (1, {A: {0: 1, 1: 1, 2: 1, 3: 1}})
    assert classic.stage.written[0] == "-GroupMetadata"


def test_classic_and_other_members_share_the_partitions() -> None:
    classic, member_id = upgraded()
    assert classic.heartbeat(member_id, 1) == REBALANCE
    joined = classic.join(member_id, owned={"a": range(4)})
    assert joined is not None
    assert (joined.error_code, joined.generation_id, joined.protocol_name, joined.members) == (NONE, 1, "range", [])
    assert given(classic.sync(member_id, 1)) == {"a": [0, 1]}
    assert classic.stage.group.members[member_id].state is MemberState.UNREVOKED_PARTITIONS
    assert classic.heartbeat(member_id, 1) == REBALANCE, "it has to come without what it revoked"
    joined = classic.join(member_id, owned={"a": [0, 1]})
    assert joined is not None and joined.generation_id == 2
    assert given(classic.sync(member_id, 2)) == {"a": [0, 1]}
    assert classic.heartbeat(member_id, 2) == NONE
    assert assigned(classic.stage.stay("m2")) == {"a": [2, 3]}
    assert classic.stage.group.state.value == "Stable"


def test_a_classic_member_that_waits_for_partitions_hears_when_they_are_free() -> None:
    classic, member_id = upgraded()
    stage = classic.stage
    classic.join(member_id, owned={"a": range(4)})
    classic.join(member_id, owned={"a": [0, 1]})
    stage.stay("m2")
    stage.now_ms += 1_000
    asked = classic.join("")
    assert asked is not None and asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    third = classic.join(asked.member_id)
    assert third is not None and third.error_code == NONE
    assert given(classic.sync(third.member_id, third.generation_id)) == {}
    assert classic.heartbeat(third.member_id, third.generation_id) == NONE
    stage.stay("m2")
    stage.stay("m2", owned={"a": [2]})
    classic.join(member_id, owned={"a": [0, 1]})
    classic.join(member_id, owned={"a": [0]})
    stage.stay("m2", owned={"a": [2]})
    assert classic.heartbeat(third.member_id, third.generation_id) == REBALANCE


@pytest.mark.parametrize(
    ("settings", "user_data", "protocol_type", "reason"),
    [
        ({"migration_policy": MigrationPolicy.DOWNGRADE}, b"", "consumer", "online upgrade is disabled."),
        ({"migration_policy": MigrationPolicy.DISABLED}, b"", "consumer", "online upgrade is disabled."),
        ({"max_size": 0}, b"", "consumer", "the group size exceeds the consumer group maximum size."),
        ({}, b"of an own assignor", "consumer", "an unsupported custom assignor is in use. "),
        ({}, b"", "connect", "the group does not use the consumer embedded protocol."),
    ],
)
def test_a_group_that_may_not_turn_is_not_found(
    settings: dict[str, object], user_data: bytes, protocol_type: str, reason: str
) -> None:
    classic = Classic(**settings)
    classic.stable_group(user_data, protocol_type)
    refused = classic.stage.join("m2")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (refused.error_message or "").startswith(
        f"Cannot upgrade classic group g to consumer group because {reason}"
    )
    assert classic.stage.heartbeat("m2", 1).error_message == "Group g is not a consumer group."
    assert classic.classic_group.state_name == "Stable"


def test_parked_requests_of_the_classic_group_are_told_to_rejoin() -> None:
    classic = Classic()
    member_id = classic.stable_group()
    asked = classic.join("")
    assert asked is not None
    assert classic.join(asked.member_id) is None, "parked"
    waiting = classic.stage.token
    classic.stage.join("m2")
    parked = classic.stage.replies[waiting]
    assert isinstance(parked, JoinGroupResponse) and parked.error_code == REBALANCE
    assert sorted(classic.stage.group.members) == sorted(["m2", member_id, asked.member_id])


def test_what_a_cooperative_member_still_owns_is_not_given_to_others() -> None:
    """The group turns in the middle of a rebalance that took the assignment of the generation before: m2 would get
    two partitions at once, and m1 has all.
    """
    classic = Classic()
    member_id = classic.stable_group()
    asked = classic.join("")
    assert asked is not None
    assert classic.join(asked.member_id) is None, "parked until the other one joins"
    joined = classic.join(member_id, owned={"a": range(4)})
    assert joined is not None and joined.generation_id == 2
    classic.leave((asked.member_id, None))
    assert classic.classic_group.members[member_id].assignment == NO_ASSIGNMENT
    response = classic.stage.join("m2")
    assert assigned(response) == {}
    group = classic.stage.group
    assert group.targets["m2"] == {A: frozenset({2, 3})}
    assert group.members[member_id].assigned == {A: {0: 2, 1: 2, 2: 2, 3: 2}}


def test_of_two_that_say_that_they_own_a_partition_one_keeps_it() -> None:
    """The one that has it in its assignment."""
    classic = Classic()
    member_id = classic.stable_group()
    asked = classic.join("")
    assert asked is not None
    assert classic.join(asked.member_id, owned={"a": [0]}) is None
    classic.stage.join("m2")
    group = classic.stage.group
    assert group.members[member_id].assigned == {A: dict.fromkeys(range(4), 1)}
    assert group.members[asked.member_id].assigned == {}


def test_an_empty_group_of_one_kind_gives_its_place_to_the_other() -> None:
    classic = Classic()
    member_id = classic.stable_group()
    classic.leave((member_id, None))
    assert classic.stage.join("m2").member_epoch == 2
    classic.stage.heartbeat("m2", -1)
    asked = classic.join("")
    assert asked is not None and asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert classic.classic_group.state_name == "Empty"
    assert classic.join(asked.member_id) is not None
    assert classic.classic_group.state_name == "CompletingRebalance"


def test_a_join_that_is_refused_leaves_the_empty_group_as_it_is() -> None:
    classic = Classic()
    classic.stage.join("m1")
    classic.stage.heartbeat("m1", -1)
    refused = classic.join("a stranger")
    assert refused is not None and refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.stage.group.epoch == 3


# Downgrade


def test_the_group_turns_back_when_the_last_other_member_leaves() -> None:
    classic, member_id = upgraded()
    classic.stage.heartbeat("m2", -1)
    group = classic.classic_group
    assert (group.state_name, group.generation, [*group.members]) == ("PreparingRebalance", 2, [member_id])
    assert classic.stage.written[-1] == "GroupMetadata"
    assert given_of(group, member_id) == {"a": [0, 1]}, "its share of the last target"
    assert classic.heartbeat(member_id, 2) == REBALANCE
    joined = classic.join(member_id)
    assert joined is not None and (joined.error_code, joined.generation_id) == (NONE, 3)


def given_of(group: ClassicGroup, member_id: str) -> dict[str, list[int]]:
    assignment = read_assignment(group.members[member_id].assignment)
    return {topic.topic: topic.partitions for topic in assignment.assigned_partitions}


def test_a_downgrade_that_the_log_refuses_leaves_the_consumer_group() -> None:
    classic, _ = upgraded()
    classic.stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert classic.stage.heartbeat("m2", -1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "m2" in classic.stage.group.members


def test_without_downgrades_the_group_stays_a_consumer_group() -> None:
    classic = Classic(migration_policy=MigrationPolicy.UPGRADE)
    member_id = classic.stable_group()
    classic.stage.join("m2")
    classic.stage.heartbeat("m2", -1)
    assert [*classic.stage.group.members] == [member_id]


def test_members_of_the_classic_protocol_alone_get_what_one_of_the_consumer_protocol_had() -> None:
    """A group that may not turn back: only their heartbeats can compute a target."""
    classic = Classic(migration_policy=MigrationPolicy.UPGRADE, assignment_interval_ms=0)
    member_id = classic.stable_group()
    stage = classic.stage
    stage.join("m2")
    classic.join(member_id, owned={"a": range(4)})
    classic.join(member_id, owned={"a": [0, 1]})
    classic.sync(member_id, 2)
    assert classic.heartbeat(member_id, 2) == NONE
    stage.heartbeat("m2", -1)
    assert stage.group.state.value == "Assigning"
    settle_alone(classic, member_id, [0, 1])
    assert stage.group.members[member_id].assigned.keys() == {A}
    assert stage.group.members[member_id].assigned[A].keys() == {0, 1, 2, 3}


def test_members_of_the_classic_protocol_alone_get_new_partitions() -> None:
    classic = Classic(migration_policy=MigrationPolicy.UPGRADE, assignment_interval_ms=0)
    member_id = classic.stable_group()
    stage = classic.stage
    stage.join("m2")
    stage.heartbeat("m2", -1)
    settle_alone(classic, member_id, range(4))
    epoch = stage.group.epoch
    assert classic.heartbeat(member_id, epoch) == NONE
    stage.topics(a=6)
    settle_alone(classic, member_id, range(4))
    assert stage.group.epoch == epoch + 1
    assert stage.group.members[member_id].assigned[A].keys() == {*range(6)}


def settle_alone(classic: Classic, member_id: str, owned: Iterable[int]) -> None:
    """The heartbeats of the only member tell it to rejoin, and then that nothing is left to do."""
    group = classic.stage.group
    answers = [classic.heartbeat(member_id, group.members[member_id].epoch) for _ in range(2)]
    assert answers[-1] == REBALANCE
    joined = classic.join(member_id, owned={"a": owned})
    assert joined is not None
    classic.sync(member_id, joined.generation_id)
    assert classic.heartbeat(member_id, joined.generation_id) == NONE
    assert group.state.value == "Stable"


def test_a_static_member_changes_its_protocol_in_place() -> None:
    classic, _ = upgraded()
    stage = classic.stage
    stage.now_ms += 1_000
    stage.join("m3", instance_id="i3")
    stage.heartbeat("m2", -1)
    stage.now_ms += 1_000
    stage.stay("m3")
    stage.heartbeat("m3", -2, instance_id="i3")
    joined = classic.join("", instance_id="i3")
    assert joined is not None and joined.error_code == NONE
    group = classic.classic_group
    assert set(group.static_members) == {"i3"}
    assert group.static_members["i3"] == joined.member_id != "m3"


def test_a_classic_static_member_turns_into_one_of_the_consumer_protocol() -> None:
    classic, _ = upgraded()
    joined = classic.join("", instance_id="i3")
    assert joined is not None and joined.error_code == NONE
    back = classic.stage.join("m4", instance_id="i3")
    assert back.error_code == NONE, "it need not have left first"
    assert classic.stage.group.static_members == {"i3": "m4"}


# Requests of classic members


def test_a_classic_static_member_comes_back_to_a_full_group() -> None:
    classic = Classic(max_size=1)
    classic.stage.join("m1", instance_id="i1")
    refused, joined = classic.join("", instance_id="i2"), classic.join("", instance_id="i1")
    assert refused is not None and refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined is not None and joined.error_code == NONE


def test_the_join_of_a_classic_member_is_refused_where_migration_is_off() -> None:
    classic = Classic(migration_policy=MigrationPolicy.DISABLED)
    classic.stage.join("m1")
    joined = classic.join("")
    assert joined is not None and joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocol"), [("connect", "range"), ("consumer", "own")])
def test_a_classic_member_needs_a_protocol_of_the_others(protocol_type: str, protocol: str) -> None:
    classic, _ = upgraded()
    joined = classic.join("", protocol_type=protocol_type, protocol=protocol)
    assert joined is not None and joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_unknown_members_and_wrong_generations_are_refused() -> None:
    classic, member_id = upgraded()
    assert classic.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.heartbeat("m2", 2) == ErrorCode.UNKNOWN_MEMBER_ID, "m2 uses the consumer protocol"
    assert classic.heartbeat(member_id, 2) == ErrorCode.ILLEGAL_GENERATION
    assert classic.sync(member_id, 2).error_code == ErrorCode.ILLEGAL_GENERATION
    assert classic.sync("m2", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert classic.sync(member_id, 1).error_code == REBALANCE


def test_members_of_either_protocol_leave_by_leave_group() -> None:
    classic, member_id = upgraded()
    assert classic.leave(("m2", None), ("nobody", None)) == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert [*classic.classic_group.members] == [member_id]


def test_a_classic_member_must_sync_within_its_rebalance_timeout() -> None:
    classic, member_id = upgraded()
    classic.join(member_id, owned={"a": range(4)})
    for _ in range(4):
        classic.stage.wait(4_999)
        assert classic.heartbeat(member_id, 1) == REBALANCE
    classic.stage.wait(4)
    assert [*classic.stage.group.members] == ["m2"]


def test_a_classic_member_must_rejoin_within_its_rebalance_timeout() -> None:
    classic, member_id = upgraded()
    for _ in range(4):
        assert classic.heartbeat(member_id, 1) == REBALANCE
        classic.stage.wait(4_999)
    classic.stage.wait(4)
    assert [*classic.stage.group.members] == ["m2"]


def test_a_classic_member_has_the_session_of_its_join() -> None:
    classic, _ = upgraded()
    classic.stage.wait(9_999)
    assert len(classic.stage.group.members) == 2
    classic.stage.wait(1)
    assert [*classic.stage.group.members] == ["m2"]


def test_a_classic_member_whose_join_is_committed_too_late_has_a_session() -> None:
    """Otherwise a member that does not come back would keep its partitions."""
    classic, member_id = upgraded()
    stage = classic.stage
    stage.is_held = True
    assert classic.join("late") is None
    stage.wait(GroupConfig().offsets_commit_timeout_ms)
    stage.release()
    assert "late" in stage.group.members
    assert classic.heartbeat(member_id, 1) == REBALANCE
    stage.wait(10_000)
    assert "late" not in stage.group.members


def test_a_classic_member_commits_with_its_generation() -> None:
    classic, member_id = upgraded()
    stage = classic.stage
    assert stage.commit(member_id, 1, "a", 0, version=8) == NONE
    assert stage.commit(member_id, 2, "a", 0) == ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(member_id, 0, "a", 0) == ErrorCode.ILLEGAL_GENERATION
