"""What the driver does with the transactions of a batch, also if Spark runs the batch again."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.spark_jobs.writing.commit import TransactionsLost, abort_all, commit_batch
from moldau.spark_jobs.writing.transaction_log import KEPT_BATCHES, TransactionLog
from moldau.tables.client.transaction import ProducerIdentity, TransactionOutcome
from moldau.tables.refusals import Refused

FIRST = [ProducerIdentity("a-0", 10, 0), ProducerIdentity("a-1", 11, 0)]
AGAIN = [ProducerIdentity("b-0", 20, 0), ProducerIdentity("b-1", 21, 0)]


class Coordinator:
    """Remembers how each transaction ended."""

    def __init__(self) -> None:
        self.ended: dict[str, bool] = {}
        self.crashes_after: int | None = None

    def end(self, producer: ProducerIdentity, is_commit: bool) -> TransactionOutcome:
        if self.crashes_after is not None:
            self.crashes_after -= 1
            if self.crashes_after < 0:
                raise KeyboardInterrupt
        name = str(producer.transactional_id)
        is_done = self.ended.setdefault(name, is_commit) == is_commit
        return TransactionOutcome.DONE if is_done else TransactionOutcome.LOST

    def committed(self) -> list[str]:
        return sorted(name for name, is_commit in self.ended.items() if is_commit)


@pytest.mark.parametrize("crashes_after", [0, 1, 2])
def test_a_batch_is_committed_once_wherever_the_driver_dies(tmp_path: Path, crashes_after: int) -> None:
    log, coordinator = TransactionLog(str(tmp_path)), Coordinator()
    coordinator.crashes_after = crashes_after
    if crashes_after < 2:
        with pytest.raises(KeyboardInterrupt):
            commit_batch(log, "q", 7, FIRST, coordinator.end)
    else:
        commit_batch(log, "q", 7, FIRST, coordinator.end)
    coordinator.crashes_after = None
    commit_batch(log, "q", 7, AGAIN, coordinator.end)
    assert coordinator.committed() == ["a-0", "a-1"]
    assert coordinator.ended["b-0"] is False


def test_another_batch_and_another_query_are_committed(tmp_path: Path) -> None:
    log, coordinator = TransactionLog(str(tmp_path)), Coordinator()
    commit_batch(log, "q", 7, FIRST, coordinator.end)
    commit_batch(log, "q", 8, AGAIN, coordinator.end)
    commit_batch(log, "r", 7, [ProducerIdentity("c", 30, 0)], coordinator.end)
    assert coordinator.committed() == ["a-0", "a-1", "b-0", "b-1", "c"]


def test_transactions_that_timed_out_all_together_are_written_again(tmp_path: Path) -> None:
    log, coordinator = TransactionLog(str(tmp_path)), Coordinator()
    abort_all(FIRST, coordinator.end)
    with pytest.raises(TransactionsLost, match="query q, batch 7: 2 of 2 transactions were aborted"):
        commit_batch(log, "q", 7, FIRST, coordinator.end)
    commit_batch(log, "q", 7, AGAIN, coordinator.end)
    assert coordinator.committed() == ["b-0", "b-1"]


def test_a_batch_of_which_a_part_was_lost_is_refused_each_time(tmp_path: Path) -> None:
    log, coordinator = TransactionLog(str(tmp_path)), Coordinator()
    abort_all(FIRST[1:], coordinator.end)
    for again in (FIRST, AGAIN, AGAIN):
        with pytest.raises(TransactionsLost, match=r"1 of 2 transactions were aborted .* \(a-1\)"):
            commit_batch(log, "q", 7, again, coordinator.end)
    assert coordinator.committed() == ["a-0"]


def test_old_files_go_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    log = TransactionLog(str(tmp_path))
    for batch in range(KEPT_BATCHES + 2):
        log.write("q", batch, FIRST)
    assert (log.read("q", 1), log.read("q", 2)) == (None, FIRST)
    log.path_of("q", 2).write_text('{"format_version": 2}')
    with pytest.raises(Refused, match="is not a file of transactions: format version 2"):
        log.read("q", 2)
