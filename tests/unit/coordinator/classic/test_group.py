"""What each state answers to each request, and that nothing else is a way between states."""

from __future__ import annotations

import pytest

from moldau.coordinator.classic import group as group_module
from moldau.coordinator.classic.group import FORMER_STATES, ClassicGroup, GroupState
from tests.support.group_scribe import GroupScribe
from tests.support.transcripts import Command

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

WAYS = {
    DEAD: [],
    EMPTY: ["join g client=a v=3", "wait 0", "leave g members=a-1"],
    PREPARING: ["join g client=a v=3", "wait 0", "sync g member=a-1 generation=1", "join g client=b v=3"],
    COMPLETING: ["join g client=a v=3", "wait 0"],
    STABLE: ["join g client=a v=3", "wait 0", "sync g member=a-1 generation=1"],
}
"""How a group comes into each state; if it has members, a-1 is one of them, in generation 1."""

ME = "member=a-1"
REQUESTS = {
    "heartbeat": f"heartbeat g {ME} generation=1",
    "sync": f"sync g {ME} generation=1",
    "commit": f"commit g {ME} generation=1 t-0=1",
    "commit without a group": "commit g t-0=1",
    "leave": "leave g members=a-1",
    "join again": f"join g {ME} protocols=range data=new",
    "join anew": "join g client=c v=4",
    "join with other protocols": "join g client=c v=4 protocols=sticky",
    "delete": "delete g",
    "delete offsets": "delete-offsets g topics=u-0",
    "describe": "describe g",
}

PARKED = ""
UNKNOWN = "UNKNOWN_MEMBER_ID"
REBALANCE = "REBALANCE_IN_PROGRESS"
NON_EMPTY = "g:NON_EMPTY_GROUP"
NEW_ID = "MEMBER_ID_REQUIRED"
INCONSISTENT = "INCONSISTENT_GROUP_PROTOCOL"
LEFT = "NONE a-1:NONE"

ANSWERS = {
    #                            Dead          Empty               Preparing     Completing    Stable
    "heartbeat": (UNKNOWN, UNKNOWN, REBALANCE, "NONE", "NONE"),
    "sync": (UNKNOWN, UNKNOWN, REBALANCE, "NONE share=()", "NONE share=()"),
    "commit": ("t-0:GROUP_ID_NOT_FOUND", f"t-0:{UNKNOWN}", "t-0:NONE", f"t-0:{REBALANCE}", "t-0:NONE"),
    "commit without a group": ("t-0:NONE", "t-0:NONE", f"t-0:{UNKNOWN}", f"t-0:{UNKNOWN}", f"t-0:{UNKNOWN}"),
    "leave": (f"NONE a-1:{UNKNOWN}", f"NONE a-1:{UNKNOWN}", LEFT, LEFT, LEFT),
    "join again": (UNKNOWN, UNKNOWN, "joined generation=2", "joined generation=2", "joined generation=2"),
    "join anew": (NEW_ID, NEW_ID, NEW_ID, NEW_ID, NEW_ID),
    "join with other protocols": (NEW_ID, NEW_ID, INCONSISTENT, INCONSISTENT, INCONSISTENT),
    "delete": ("g:GROUP_ID_NOT_FOUND", "g:NONE", NON_EMPTY, NON_EMPTY, NON_EMPTY),
    "delete offsets": ("GROUP_ID_NOT_FOUND", "NONE u-0:NONE", *["NONE u-0:NONE"] * 3),
    "describe": (
        "GROUP_ID_NOT_FOUND Dead",
        *(f"NONE {state.value}" for state in (EMPTY, PREPARING, COMPLETING, STABLE)),
    ),
}
"""How the answer begins. The empty one: there is none yet."""

ORDER = (DEAD, EMPTY, PREPARING, COMPLETING, STABLE)


def in_state(state: GroupState) -> GroupScribe:
    scribe = GroupScribe()
    for text in ("config initial_rebalance_delay_ms=0", *WAYS[state]):
        scribe.respond(Command(text))
    described = scribe.respond(Command("describe g"))[0]
    assert state.value in described.split()
    return scribe


@pytest.mark.parametrize("state", ORDER, ids=lambda state: state.value)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_each_state_answers_each_request(state: GroupState, request_name: str) -> None:
    lines = in_state(state).respond(Command(REQUESTS[request_name] + " as=me"))
    answers = [line.removeprefix("tell me: ") for line in lines if line.startswith("tell me: ")]
    answer = answers[0] if answers else lines[0] if request_name == "describe" else PARKED
    expected = ANSWERS[request_name][ORDER.index(state)]
    assert answer.startswith(expected) and (answer or not expected), lines


def test_every_table_knows_every_state() -> None:
    tables = [value for name, value in vars(group_module).items() if name.endswith(("_ANSWERS", "_STATES"))]
    assert len(tables) == 4
    for table in tables:
        assert list(table) == list(GroupState)


@pytest.mark.parametrize("source", GroupState)
@pytest.mark.parametrize("target", GroupState)
def test_there_are_no_other_ways_between_states(source: GroupState, target: GroupState) -> None:
    group = ClassicGroup("g", None)
    group.state = source
    if source in FORMER_STATES[target]:
        group.move_to(target, 7)
        assert (group.state, group.former_state, group.changed_ms) == (target, source, 7)
    else:
        with pytest.raises(AssertionError):
            group.move_to(target, 7)
