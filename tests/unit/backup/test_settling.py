"""Settling: each transaction is whole or absent, whatever happened while the logs were asked for their ends."""

from __future__ import annotations

from random import Random

import pytest

from moldau.backup.observed import RestoreMoment
from moldau.coordinator.transaction.transaction import ONGOING
from moldau.protocol.record_batch import parse_header
from tests.support.transaction_histories import START_MS, Truth, World, ask, batches_below
from tests.unit.backup.settled import Restored


def check_whole(restored: Restored) -> set[Truth]:
    """What must hold after every settlement. Returns the committed transactions."""
    world = restored.world
    committed = {truth for truth in world.truths if restored.committed(truth)}
    for truth in committed:
        assert truth.is_commit, "no transaction becomes committed that was not"
        unread = {read for read in truth.has_read if read not in committed}
        assert not unread, f"transaction {truth.number} has read {[each.number for each in unread]}, which are undone"
        for earlier in world.truths[: truth.number]:
            if earlier.transactional_id == truth.transactional_id and earlier.is_commit and earlier.records:
                assert earlier in committed, "the transactions of an id are kept from its first to its last"
    known = {
        name: each.transaction
        for states in restored.states.values()
        for name, each in states.state_by_transactional_id.items()
    }
    for name, state in restored.final_states().items():
        is_fenced = state.producer_epoch > known[name].producer_epoch
        assert is_fenced or known[name].state is not ONGOING, f"the producer of {name} cannot go on"
        assert not state.is_prepared and state.state is not ONGOING, f"{name} has nothing left to do"
        for producers in restored.producers.values():
            entry = producers.entries.get(state.producer_id)
            assert entry is None or entry.producer_epoch <= state.producer_epoch, "the next epoch is a new one"
    assert all(
        entry.producer_id < restored.settlement.next_producer_id
        for producers in restored.producers.values()
        for entry in producers.entries.values()
    )
    return committed


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_between_the_questions_every_transaction_is_whole_or_absent(seed: int) -> None:
    world = World(seed)
    random = Random(seed)
    world.run(random.randint(0, 300))
    early = {index: random.randint(0, log.end_offset) for index, log in world.states.items()}
    vector = ask(world, random.choice((0, 3, 12, 40)))
    world.run(50)

    restored = Restored(world, vector, RestoreMoment(vector.first_ms), early if random.random() < 0.5 else {})

    committed = check_whole(restored)
    for truth in world.truths:
        if truth.is_commit and truth.records and truth.decided_ms is not None and truth.decided_ms <= vector.first_ms:
            assert truth in committed, f"transaction {truth.number} was decided before the first question"


@pytest.mark.parametrize("seed", range(60))
def test_a_source_that_asks_for_the_decisions_last_alone_has_every_transaction_whole(seed: int) -> None:
    world = World(seed)
    world.run(150)
    complete = {truth for truth in world.truths if truth.completed_ms is not None}
    vector = ask(world, 12)
    world.run(50)

    restored = Restored(
        world, vector._replace(decided=dict.fromkeys(vector.states)), RestoreMoment(vector.first_ms), {}
    )

    committed = check_whole(restored)
    reads_complete = {truth for truth in complete if truth.is_commit and truth.records and all_read(truth) <= complete}
    assert reads_complete <= committed


def all_read(truth: Truth) -> set[Truth]:
    """The transactions on which one rests: those whose records it has read, those of its id before it, and theirs."""
    found: set[Truth] = set()
    todo = [truth]
    while todo:
        for read in todo.pop().rests_on:
            if read not in found:
                found.add(read)
                todo.append(read)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_moment_has_what_was_decided_before_it(seed: int) -> None:
    world = World(seed, skew_ms=0)
    restored, time_ms = taken_back(world, Random(seed))

    committed = check_whole(restored)

    for truth in world.truths:
        if truth.records and truth.decided_ms is not None:
            assert (truth in committed) is (truth.is_commit and truth.decided_ms <= time_ms)


@pytest.mark.parametrize("seed", range(60))
def test_clocks_of_clients_that_are_wrong_cut_transactions_whole(seed: int) -> None:
    world = World(seed, client_skew_ms=3000)
    restored, time_ms = taken_back(world, Random(seed))

    check_whole(restored)

    for key, log in restored.logs.items():
        batches = batches_below(world.logs[key], log.end_offset)
        assert all(parse_header(batch).max_timestamp <= time_ms for batch in batches)


def taken_back(world: World, random: Random) -> tuple[Restored, int]:
    """The logs at a random moment of a history, and the moment (ms)."""
    world.run(random.randint(100, 400))
    vector = ask(world, random.choice((0, 12)))
    time_ms = random.randint(START_MS, vector.first_ms)
    return Restored(
        world, vector, RestoreMoment(time_ms, is_requested_time=True, ends_known_ms=vector.last_ms), {}
    ), time_ms
