"""TxnOffsetCommit in every state of a group, from every kind of client, answered as Apache Kafka 4.3.1 answered it."""

from __future__ import annotations

from copy import copy

import pytest

from moldau.coordinator.classic.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, GroupState
from moldau.coordinator.group import events
from moldau.coordinator.group.config import GroupConfig
from moldau.coordinator.group.history import Cause
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.machine import TransactionEnd, TransactionWrite, Waiter
from moldau.coordinator.shard.shard import GroupShard
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.group_scribe import GroupScribe
from tests.support.group_stage import classic_groups
from tests.support.transcripts import Command

JOINED = ["join g client=a v=3", "join g client=s instance=s", "wait 0"]
SYNCED = ["sync g member=a-1 generation=1", "sync g member=s-2 instance=s generation=1"]
WAYS = {
    DEAD: [],
    EMPTY: ["join g client=a v=3", "wait 0", "leave g members=a-1"],
    PREPARING: [*JOINED, *SYNCED, "join g client=c v=3"],
    COMPLETING: JOINED,
    STABLE: [*JOINED, *SYNCED],
}
"""How a group comes into each state; if it has members, a-1 leads, and s-2 is static."""

FINE, GENERATION, MEMBER, FENCED = "NONE", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"
ANSWERS = {
    "": (FINE, FINE, FINE),
    "generation=0": (GENERATION, MEMBER, MEMBER),
    "member=a-1 generation=1": (GENERATION, MEMBER, FINE),
    "member=a-1 generation=2": (GENERATION, MEMBER, GENERATION),
    "member=a-1": (FINE, FINE, GENERATION),
    "member=z generation=1": (GENERATION, MEMBER, MEMBER),
    "member=s-2 instance=s generation=1": (GENERATION, MEMBER, FINE),
    "member=a-1 instance=s generation=1": (GENERATION, MEMBER, FENCED),
    "member=a-1 instance=z generation=1": (GENERATION, MEMBER, MEMBER),
    "instance=z": (FINE, FINE, MEMBER),
}
"""By what the producer says: the answer if the group does not exist, if it is empty, and if it has members."""


def in_state(state: GroupState) -> GroupScribe:
    scribe = GroupScribe()
    for text in ("config initial_rebalance_delay_ms=0", *WAYS[state]):
        scribe.respond(Command(text))
    group = classic_groups(scribe.shard).get("g")
    assert (DEAD if group is None else group.state) is state
    return scribe


@pytest.mark.parametrize("said", ANSWERS)
@pytest.mark.parametrize("state", WAYS)
def test_each_client_in_each_state(state: GroupState, said: str) -> None:
    scribe = in_state(state)
    lines = scribe.respond(Command(f"txn-commit g producer=7 t-0=5 {said} as=me"))
    answer = ANSWERS[said][0 if state is DEAD else 1 if state is EMPTY else 2]
    written = ["write offset of g in t-0: 5 in the transaction of 7"] if answer == FINE else []
    assert lines == [*written, f"tell me: t-0:{answer}"]
    group = classic_groups(scribe.shard).get("g")
    assert (DEAD if group is None else group.state) is (EMPTY if state is DEAD and answer == FINE else state)


@pytest.mark.parametrize(("version", "answer"), [(5, GENERATION), (6, "GROUP_ID_NOT_FOUND")])
def test_a_generation_of_a_group_that_does_not_exist(version: int, answer: str) -> None:
    """As Apache Kafka 4.4.0 answers."""
    asked = Command(f"txn-commit g producer=7 t-0=5 member=a generation=1 as=me v={version}")
    assert GroupScribe().respond(asked) == [f"tell me: t-0:{answer}"]


@pytest.mark.parametrize("group_id", ["", "x" * 40_000])
def test_a_group_needs_a_name_that_can_be_stored(group_id: str) -> None:
    answer = "tell me: t-0:INVALID_GROUP_ID"
    assert GroupScribe().respond(Command(f"txn-commit {group_id} producer=7 t-0=5 as=me")) == [answer]


def test_a_commit_does_not_prolong_the_session_of_a_member() -> None:
    scribe = in_state(STABLE)
    scribe.respond(Command("wait 9000"))
    scribe.respond(Command("txn-commit g producer=7 t-0=5 member=a-1 generation=1"))
    scribe.respond(Command("wait 1000"))
    assert "a-1" not in classic_groups(scribe.shard)["g"].members


def test_a_commit_without_offsets_that_can_be_stored_leaves_no_group() -> None:
    scribe = GroupScribe()
    scribe.respond(Command("config offset_metadata_max_bytes=1"))
    lines = scribe.respond(Command("txn-commit g producer=7 t-0=5 metadata=2 as=me"))
    assert lines == ["tell me: t-0:OFFSET_METADATA_TOO_LARGE"]
    assert classic_groups(scribe.shard) == {}


def test_a_refused_commit_of_a_group_is_told_in_its_history() -> None:
    shard = GroupShard(GroupConfig())
    shard.step(machine.Loaded(), 0, 0)
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, committed_metadata=None
    )
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=7, producer_epoch=2, topics=topics)
    shard.step(events.CommitTransactionalOffsets(Waiter("me", 3), request), 0, 0)
    shard.step(machine.Appended(1, 1), 0, 0)
    for group_id in ("g", "unknown"):
        wrong = copy(request)
        wrong.group_id, wrong.member_id, wrong.generation_id_or_member_epoch = group_id, "ghost", 4
        shard.step(events.CommitTransactionalOffsets(Waiter("me", 3), wrong), 0, 8_000)
    (told,) = shard.history.events_of("g")
    assert (told.cause, told.member_id, told.detail) == (Cause.COMMIT_REFUSED, "ghost", "UNKNOWN_MEMBER_ID")
    assert shard.history.events_of("unknown") == (), "made-up names of groups push nothing out"


def test_what_is_written_is_part_of_the_transaction_and_a_marker_has_no_record() -> None:
    shard = GroupShard(GroupConfig())
    shard.step(machine.Loaded(), 0, 0)
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, committed_metadata=None
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=7,
        producer_epoch=2,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    effects = shard.step(events.CommitTransactionalOffsets(Waiter("me", 3), request), 0, 0)
    assert effects.transaction == TransactionWrite(7, 2)
    assert len(effects.records) == 1
    shard.step(machine.Appended(1), 0, 0)
    end = TransactionEnd(is_commit=True, coordinator_epoch=4)
    effects = shard.step(events.EndOffsetsTransaction(Waiter("me", 1), 7, 2, end), 0, 0)
    assert (effects.transaction, effects.records) == (TransactionWrite(7, 2, end), [])
