"""The transaction coordinator without a network keeps every rule; a seed is one story; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from moldau.coordinator.transaction import lifecycle, shard, table
from moldau.coordinator.transaction.events import MarkersWritten
from moldau.coordinator.transaction.lifecycle import on_markers_written, producer_id_answer
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.coordinator.transaction.table import (
    ADD,
    ADD_ROWS,
    CLAIMS,
    CURRENT,
    PREVIOUS,
    ProducerClaim,
    RequestKind,
    claim_of,
)
from moldau.coordinator.transaction.transaction import (
    Transaction,
    as_fenced_transaction,
    as_prepared_transaction,
    with_next_epoch,
)
from moldau.coordinator.transaction.transactions import Transactions, TransactionStep
from tests.simulation.transactions.swarm import Swarm
from tests.support.drawn_steps import Violation

SEEDS: Final = 100
PLANTED_SEEDS: Final = 500


def test_seeds_keep_every_rule() -> None:
    endings = 0
    for seed in range(1_000, 1_000 + SEEDS):
        swarm = Swarm(seed)
        swarm.run()
        endings += swarm.rules.endings
    assert endings > SEEDS * 3, "hardly any transaction has ended"


def test_equal_seeds_tell_equal_stories() -> None:
    ends = []
    for _ in range(2):
        swarm = Swarm(7)
        swarm.run()
        ends.append(([stored.data for stored in swarm.stage.log], swarm.stage.epoch))
    assert ends[0] == ends[1]


Plant = Callable[[pytest.MonkeyPatch], None]


def epochs_that_stay(patch: pytest.MonkeyPatch) -> None:
    def same(before: Transaction, timeout_ms: int, wall_ms: int, *, goes_on: bool) -> Transaction:
        after = with_next_epoch(before, timeout_ms, wall_ms, goes_on=goes_on)
        return after._replace(producer_epoch=before.producer_epoch)

    patch.setattr(lifecycle, "with_next_epoch", same)


def fences_that_keep_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def same(before: Transaction, wall_ms: int) -> Transaction:
        return as_fenced_transaction(before, wall_ms)._replace(producer_epoch=before.producer_epoch)

    patch.setattr(lifecycle, "as_fenced_transaction", same)


def markers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    commit = Transactions.commit
    patch.setattr(Transactions, "commit", lambda self, _: commit(self, 1 << 60))


def completions_at_the_first_marker(patch: pytest.MonkeyPatch) -> None:
    def first(step: TransactionStep, event: MarkersWritten) -> None:
        on_markers_written(step, event._replace(partitions=frozenset(event.command.partitions)))

    patch.setattr(shard, "on_markers_written", first)


def reports_that_count_for_any_transaction(patch: pytest.MonkeyPatch) -> None:
    def any_of(step: TransactionStep, event: MarkersWritten) -> None:
        completion = step.transactions.completions.get(event.command.transactional_id)
        on_markers_written(step, event if completion is None else event._replace(command=completion.command))

    patch.setattr(shard, "on_markers_written", any_of)


def claims_of_requests(
    patch: pytest.MonkeyPatch, request: str, planted: Callable[[Transaction | None, int, int], ProducerClaim]
) -> None:
    """Let the function of this request, and no other one, compare claims by the planted function."""
    handle = getattr(lifecycle, request)

    def handled(step: TransactionStep, event: object) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(lifecycle, "claim_of", planted)
            handle(step, event)

    patch.setattr(shard, request, handled)


def ends_that_end_the_next(patch: pytest.MonkeyPatch) -> None:
    def current(transaction: Transaction | None, producer_id: int, epoch: int) -> ProducerClaim:
        claim = claim_of(transaction, producer_id, epoch)
        return CURRENT if claim is PREVIOUS else claim

    claims_of_requests(patch, "end_transaction", current)


def additions_of_fenced_producers(patch: pytest.MonkeyPatch) -> None:
    def current(transaction: Transaction | None, producer_id: int, epoch: int) -> ProducerClaim:
        claim = claim_of(transaction, producer_id, epoch)
        return CURRENT if claim is ProducerClaim.OLDER else claim

    claims_of_requests(patch, "add_partitions", current)


def additions_while_prepared(patch: pytest.MonkeyPatch) -> None:
    rows = {standing: (ADD, *row[1:]) if row[0] is table.WAIT else row for standing, row in ADD_ROWS.items()}
    patch.setitem(table.TABLE, RequestKind.ADD, table.decision_table(CLAIMS, rows))


def transactions_that_never_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shard, "abort_timed_out", lambda *_: True)


def loaded_transactions_that_never_time_out(patch: pytest.MonkeyPatch) -> None:
    def replay(self: TransactionShard, change: TransactionChange, end_offset: int) -> None:
        original(self, change, end_offset)
        if not self.is_loaded:
            self._transactions.ongoing.clear()

    original = TransactionShard.replay
    patch.setattr(TransactionShard, "replay", replay)


def prepared_transactions_that_a_new_coordinator_leaves(patch: pytest.MonkeyPatch) -> None:
    def loaded(self: TransactionShard, step: TransactionStep) -> None:
        list(self._transactions.take_unsent_markers(0))
        original(self, step)

    original = TransactionShard.on_loaded
    patch.setattr(TransactionShard, "on_loaded", loaded)


def records_that_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transactions, "state_or_pending", Transactions.committed_state)


def answers_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionStep, "answer_when_committed", TransactionStep.reply)


def an_epoch_that_is_told_before_it_is_there(patch: pytest.MonkeyPatch) -> None:
    def told(after: Transaction) -> object:
        answer = producer_id_answer(after)
        return answer._replace(producer_epoch=answer.producer_epoch + 1)

    patch.setattr(lifecycle, "producer_id_answer", told)


def ends_that_do_not_move_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def same(before: Transaction, **options: int) -> Transaction:
        after = as_prepared_transaction(before, **options)  # type: ignore[arg-type]
        return after._replace(producer_epoch=before.producer_epoch)

    patch.setattr(lifecycle, "as_prepared_transaction", same)


PLANTED: Final = (
    epochs_that_stay,
    fences_that_keep_the_epoch,
    markers_before_the_commit,
    completions_at_the_first_marker,
    reports_that_count_for_any_transaction,
    ends_that_end_the_next,
    additions_of_fenced_producers,
    additions_while_prepared,
    transactions_that_never_time_out,
    loaded_transactions_that_never_time_out,
    prepared_transactions_that_a_new_coordinator_leaves,
    records_that_do_not_wait,
    answers_before_the_commit,
    an_epoch_that_is_told_before_it_is_there,
    ends_that_do_not_move_the_epoch,
)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        for seed in range(PLANTED_SEEDS):
            Swarm(seed).run()
