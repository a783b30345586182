"""The supervisor under simulated time: restarts with a backoff, stops in groups, nodes that leave, and what never
happens whatever the order of events.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.cli.processes.supervisor import (
    BACKOFF_FIRST_MS,
    BACKOFF_MAX_MS,
    STEADY_MS,
    STOP_PATIENCE_MS,
    AnnounceServing,
    Effect,
    ExitCommand,
    PrintLine,
    ProcessPolicy,
    RemoveDirectories,
    SignalProcess,
    StartProcess,
    Supervisor,
    ended_text,
)
from moldau.broker.runtime.place import EXIT_LEFT_CLUSTER

CORES = ProcessPolicy(restarts=True, stop_order=[[2, 3], [1]], stopping="stopping", remedies={})
CLUSTER = ProcessPolicy(
    restarts=False, stop_order=[[3], [2], [1]], stopping="stopping", remedies={1: "a", 2: "b", 3: "c"}
)
TERM, KILL = signal.SIGTERM, signal.SIGKILL


def done(effects: list[Effect]) -> list[Effect]:
    """The effects without the lines for the operator."""
    return [each for each in effects if not isinstance(each, PrintLine)]


def said(effects: list[Effect]) -> list[str]:
    return [each.text for each in effects if isinstance(each, PrintLine)]


def serving(policy: ProcessPolicy) -> Supervisor:
    supervisor = Supervisor(policy)
    assert supervisor.tick(0) == [StartProcess(1), StartProcess(2), StartProcess(3)]
    assert supervisor.on_serving(2, 10) == supervisor.on_serving(1, 20) == []
    assert supervisor.on_serving(3, 30) == [AnnounceServing()]
    assert supervisor.next_deadline_ms() is None
    return supervisor


def test_a_process_that_dies_is_started_again_alone_and_waits_longer_each_time() -> None:
    supervisor = serving(CORES)
    now_ms, wait_ms = 1_000, BACKOFF_FIRST_MS
    for _ in range(9):
        effects = supervisor.on_ended(2, -9, now_ms)
        assert said(effects) == [f"node 2 was ended by SIGKILL; it is started again in {wait_ms / 1000:g} s"]
        assert done(effects) == []
        assert supervisor.next_deadline_ms() == now_ms + wait_ms
        assert supervisor.tick(now_ms + wait_ms - 1) == []
        assert supervisor.tick(now_ms + wait_ms) == [StartProcess(2)]
        now_ms += wait_ms
        wait_ms = min(2 * wait_ms, BACKOFF_MAX_MS)
    assert wait_ms == BACKOFF_MAX_MS
    assert said(supervisor.on_serving(2, now_ms)) == ["node 2 serves again"]
    supervisor.on_ended(2, 1, now_ms + STEADY_MS)
    assert supervisor.next_deadline_ms() == now_ms + STEADY_MS + BACKOFF_FIRST_MS, "it has served for a minute"


def test_a_start_that_fails_stops_the_others_and_fails() -> None:
    supervisor = Supervisor(CORES)
    supervisor.tick(0)
    supervisor.on_serving(1, 10)
    effects = supervisor.on_ended(3, 1, 20)
    assert said(effects) == ["node 3 has ended with status 1 before it served"]
    assert done(effects) == [SignalProcess(2, TERM)]
    assert supervisor.on_ended(2, 0, 30) == [SignalProcess(1, TERM)]
    assert supervisor.on_ended(1, 0, 40) == [ExitCommand(1)]


def test_a_process_that_dies_while_another_starts_is_no_failed_start() -> None:
    supervisor = Supervisor(CORES)
    supervisor.tick(0)
    supervisor.on_serving(1, 10)
    supervisor.on_ended(1, -9, 20)
    assert supervisor.tick(20 + BACKOFF_FIRST_MS) == [StartProcess(1)]
    supervisor.on_serving(2, 600)
    assert done(supervisor.on_serving(3, 700)) == [AnnounceServing()], "each has served once"


def test_a_signal_stops_group_by_group_and_the_command_ends_with_0() -> None:
    supervisor = serving(CORES)
    assert supervisor.on_signal(100) == [PrintLine("stopping"), SignalProcess(2, TERM), SignalProcess(3, TERM)]
    assert supervisor.on_ended(3, 0, 200) == []
    assert supervisor.on_ended(2, 0, 300) == [SignalProcess(1, TERM)]
    assert supervisor.on_ended(1, 0, 400) == [ExitCommand(0)]


def test_a_process_that_waits_for_its_start_is_not_started_any_more_after_a_signal() -> None:
    supervisor = serving(CORES)
    supervisor.on_ended(2, -9, 100)
    assert done(supervisor.on_signal(150)) == [SignalProcess(3, TERM)]
    assert supervisor.tick(100 + BACKOFF_FIRST_MS) == []
    assert supervisor.on_ended(3, 0, 700) == [SignalProcess(1, TERM)]


def test_a_process_that_does_not_stop_is_killed_and_the_status_says_so() -> None:
    supervisor = serving(CORES)
    supervisor.on_signal(0)
    supervisor.on_ended(2, 0, 100)
    assert supervisor.next_deadline_ms() == STOP_PATIENCE_MS
    assert done(supervisor.tick(STOP_PATIENCE_MS)) == [SignalProcess(3, KILL)]
    assert done(supervisor.on_ended(3, -9, STOP_PATIENCE_MS + 1)) == [SignalProcess(1, TERM)]
    assert supervisor.on_ended(1, 0, STOP_PATIENCE_MS + 2) == [ExitCommand(1)]


def test_a_second_signal_kills_what_runs() -> None:
    supervisor = serving(CORES)
    supervisor.on_signal(0)
    supervisor.on_ended(3, 0, 10)
    assert done(supervisor.on_signal(20)) == [SignalProcess(1, KILL), SignalProcess(2, KILL)]


def test_a_node_that_has_left_is_not_started_again() -> None:
    supervisor = Supervisor(CORES)
    supervisor.tick(0)
    supervisor.on_serving(1, 10)
    assert supervisor.on_ended(3, EXIT_LEFT_CLUSTER, 20) == [RemoveDirectories(3)], (
        "it may have nothing to move, and leave at once"
    )
    assert supervisor.on_serving(2, 30) == [AnnounceServing()]
    assert supervisor.on_ended(2, EXIT_LEFT_CLUSTER, 40) == [RemoveDirectories(2)]
    assert supervisor.next_deadline_ms() is None
    assert done(supervisor.on_signal(50)) == [SignalProcess(1, TERM)]
    assert supervisor.on_ended(1, 0, 60) == [ExitCommand(0)]


def test_a_node_that_is_stopped_while_it_leaves_has_not_left() -> None:
    supervisor = serving(CORES)
    supervisor.on_signal(0)
    assert supervisor.on_ended(3, 0, 10) == []
    assert supervisor.on_ended(2, EXIT_LEFT_CLUSTER, 20) == [RemoveDirectories(2), SignalProcess(1, TERM)]


def test_the_nodes_of_a_cluster_stay_away_until_the_operator_starts_them() -> None:
    supervisor = serving(CLUSTER)
    assert said(supervisor.on_ended(2, -9, 100)) == ["node 2 was ended by SIGKILL; this starts it again: b"]
    assert supervisor.next_deadline_ms() is None
    assert supervisor.on_signal(200) == [PrintLine("stopping"), SignalProcess(3, TERM)]
    assert supervisor.on_ended(3, 0, 300) == [SignalProcess(1, TERM)]
    assert supervisor.on_ended(1, 0, 400) == [ExitCommand(1)], "a node failed"


def test_a_cluster_without_a_node_has_failed() -> None:
    supervisor = serving(CLUSTER)
    supervisor.on_ended(1, 0, 100)
    supervisor.on_ended(2, 0, 100)
    assert done(supervisor.on_ended(3, 0, 100)) == [ExitCommand(1)]


@pytest.mark.parametrize("policy", [CORES, CLUSTER])
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from([0, 1, 3, -9, -15]), st.integers(0, 50_000))
    )
)
def test_whatever_happens_each_process_lives_once_and_the_command_ends(
    policy: ProcessPolicy, events: list[tuple[int, int, int, int]]
) -> None:
    """A model of the shell: a process is alive from Start to its end, which comes at a random event or after a kill."""
    supervisor = Supervisor(policy)
    alive: set[int] = set()
    exits: list[int] = []

    def carry_out(effects: list[Effect], now_ms: int) -> None:
        for effect in effects:
            assert not exits, "nothing comes after the exit"
            if isinstance(effect, StartProcess):
                assert effect.node_id not in alive
                alive.add(effect.node_id)
            elif isinstance(effect, SignalProcess):
                assert effect.node_id in alive
            elif isinstance(effect, ExitCommand):
                assert not alive
                exits.append(effect.status)

    now_ms = 0
    carry_out(supervisor.tick(now_ms), now_ms)
    for kind, node_id, status, later_ms in events:
        if exits:
            break
        now_ms += later_ms
        if kind == 0 and node_id in alive:
            alive.discard(node_id)
            carry_out(supervisor.on_ended(node_id, status, now_ms), now_ms)
        elif kind == 1 and node_id in alive:
            carry_out(supervisor.on_serving(node_id, now_ms), now_ms)
        elif kind == 2:
            carry_out(supervisor.tick(now_ms), now_ms)
        elif kind == 3 and status == -9:
            carry_out(supervisor.on_signal(now_ms), now_ms)
        assert sorted(alive) == sorted(supervisor.alive)
    if not exits:
        carry_out(supervisor.on_signal(now_ms), now_ms)
    while not exits:
        node_id = min(alive)
        alive.discard(node_id)
        carry_out(supervisor.on_ended(node_id, -9, now_ms), now_ms)
    assert supervisor.next_deadline_ms() is None


def test_how_a_node_ended_is_said_in_words() -> None:
    assert ended_text(-9) == "was ended by SIGKILL"
    assert ended_text(1) == "has ended with status 1"
