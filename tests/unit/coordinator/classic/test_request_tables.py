"""Each cell of the tables of JoinGroup and SyncGroup, driven through a shard."""

from __future__ import annotations

from typing import Final

import pytest

from moldau.coordinator.classic.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, ClassicGroup, GroupState
from moldau.coordinator.classic.join import JOIN_ACTIONS, RETURN_ACTIONS, JoinAction, JoinerState
from moldau.coordinator.classic.sync import SYNC_ANSWERS, SyncAction
from moldau.protocol.errors import ErrorCode
from tests.support.group_scribe import GroupScribe
from tests.support.group_stage import classic_groups
from tests.support.transcripts import Command

JOINED: Final = ["join g client=a v=3", "join g client=b v=3", "join g client=s instance=s", "wait 0"]
SYNCED: Final = [
    "sync g member=a-1 generation=1",
    "sync g member=b-2 generation=1",
    "sync g member=s-3 instance=s generation=1",
]
WAYS: Final = {
    DEAD: [],
    EMPTY: ["join g client=a v=3", "wait 0", "leave g members=a-1"],
    PREPARING: [*JOINED, *SYNCED, "join g client=c v=3"],
    COMPLETING: JOINED,
    STABLE: [*JOINED, *SYNCED],
}
"""How a group comes into each state; if it has members, a-1 leads and b-2 follows, and s-3 is static."""

JOINS: Final = {
    JoinerState.UNNAMED: "join g client=n v=4",
    JoinerState.NEW: "join g client=n v=3",
    JoinerState.RESTARTED: "join g client=s instance=s",
    JoinerState.FOLLOWER_SAME: "join g member=b-2 v=3",
    JoinerState.FOLLOWER_CHANGED: "join g member=b-2 v=3 data=new",
    JoinerState.LEADER_SAME: "join g member=a-1 v=3",
    JoinerState.LEADER_CHANGED: "join g member=a-1 v=3 data=new",
}
JOIN_CELLS: Final = [(joiner, state) for joiner, states in JOIN_ACTIONS.items() for state in states]
SYNC_CELLS: Final = [(state, is_leader) for state in SYNC_ANSWERS for is_leader in (False, True)]


def in_state(state: GroupState) -> GroupScribe:
    scribe = GroupScribe()
    for text in ("config initial_rebalance_delay_ms=0", *WAYS[state]):
        scribe.respond(Command(text))
    assert state is DEAD or group_of(scribe).state is state
    return scribe


def group_of(scribe: GroupScribe) -> ClassicGroup:
    return classic_groups(scribe.shard)["g"]


def told(scribe: GroupScribe, text: str) -> str:
    """The answer to a request, empty if it is parked."""
    lines = scribe.respond(Command(f"{text} as=me"))
    return next((line.removeprefix("tell me: ") for line in lines if line.startswith("tell me: ")), "")


@pytest.mark.parametrize(("joiner", "state"), JOIN_CELLS)
def test_each_cell_of_the_table_of_joins(joiner: JoinerState, state: GroupState) -> None:
    scribe = in_state(state)
    group = group_of(scribe)
    members, generation = set(group.members), group.generation
    answer = told(scribe, JOINS[joiner])
    added = set(group.members) - members
    match JOIN_ACTIONS[joiner][state]:
        case JoinAction.GIVE_ID:
            assert answer.startswith("MEMBER_ID_REQUIRED member=n-")
            assert (group.state, added) == (state, set()) and len(group.pending_members) == 1
        case JoinAction.ENTER:
            assert answer == "" and len(added) == 1
            assert group.state is PREPARING and group.members[added.pop()].joining is not None
        case JoinAction.REPLACE:
            assert "s-3" not in group.members and len(added) == 1
        case JoinAction.REJOIN:
            assert answer == "" and group.state is PREPARING
            assert group.members["a-1" if joiner.name.startswith("LEADER") else "b-2"].joining is not None
        case JoinAction.REPEAT:
            assert answer.startswith(f"joined generation={generation} ")
            names = "members=[a-1,b-2,s-3]" if joiner is JoinerState.LEADER_SAME else "members=[]"
            assert answer.endswith(names) and group.state is state


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("joiner", JoinerState)
def test_what_the_table_leaves_out_cannot_happen(joiner: JoinerState, state: GroupState) -> None:
    """A group that is empty or does not exist has no members to join again."""
    if state not in JOIN_ACTIONS[joiner]:
        scribe = in_state(state)
        answer = told(scribe, JOINS[joiner])
        if joiner is JoinerState.RESTARTED:
            assert answer == "", "it is a new static member"
        elif joiner in (JoinerState.UNNAMED, JoinerState.NEW):
            assert state is DEAD and group_of(scribe).state in (EMPTY, PREPARING)
        else:
            assert answer.startswith("UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize("state", RETURN_ACTIONS)
def test_each_way_of_a_static_member_that_restarted(state: GroupState) -> None:
    scribe = in_state(state)
    group = group_of(scribe)
    generation = group.generation
    answer = told(scribe, "join g client=s instance=s")
    if state is STABLE:
        assert answer.startswith(f"joined generation={generation} ") and group.state is STABLE
    else:
        assert answer == "" and group.state is PREPARING
    changed = in_state(state)
    assert told(changed, "join g client=s instance=s protocols=range,other data=new").startswith(
        "joined generation=1 " if state is STABLE else ""
    )


def test_a_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    scribe = GroupScribe()
    for text in (
        "config initial_rebalance_delay_ms=0",
        "join g client=s instance=s protocols=range,sticky",
        "wait 0",
        "sync g member=s-1 instance=s generation=1",
    ):
        scribe.respond(Command(text))
    answer = told(scribe, "join g client=s instance=s protocols=sticky,range")
    assert answer.startswith("joined generation=2 protocol=sticky")


@pytest.mark.parametrize(("state", "is_leader"), SYNC_CELLS)
def test_each_cell_of_the_table_of_syncs(state: GroupState, is_leader: bool) -> None:
    scribe = in_state(state)
    member = "a-1" if is_leader else "b-2"
    answer = told(scribe, f"sync g member={member} generation=1 plan=a-1:t0,b-2:t1")
    expected = SYNC_ANSWERS[state][is_leader]
    if isinstance(expected, ErrorCode):
        assert answer.startswith(expected.name)
    elif expected is SyncAction.PARK:
        assert answer == "" and group_of(scribe).state is COMPLETING
        assert group_of(scribe).members[member].syncing is not None
    elif expected is SyncAction.STORE:
        assert answer == "NONE share=(t0)" and group_of(scribe).state is STABLE
    else:
        assert answer == "NONE share=()" and group_of(scribe).state is STABLE


def test_the_tables_know_every_state() -> None:
    assert list(SYNC_ANSWERS) == list(GroupState)
    assert list(JOIN_ACTIONS) == list(JoinerState)
    assert list(RETURN_ACTIONS) == [PREPARING, COMPLETING, STABLE]
