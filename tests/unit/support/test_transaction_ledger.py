"""The ledger of transactions finds each anomaly that is planted, and nothing if all is as it should be."""

from __future__ import annotations

from tests.support.transactions.ledger import Attempt, Ledger, Outcome

KEYS = (("t", 0), ("t", 1))


def written(ledger: Ledger, name: str, outcome: Outcome, offset: int) -> Attempt:
    """One record in each partition, acknowledged at this offset."""
    attempt = ledger.begin(name, "p")
    for key in KEYS:
        ledger.wrote(attempt, key, f"{name}/{key[1]}").offset = offset
    attempt.outcome = outcome
    return attempt


def read(ledger: Ledger, *values: tuple[int, str]) -> None:
    """Complete readings of both partitions, with these offsets and names of transactions."""
    for key in KEYS:
        reading = ledger.reading("final", key, is_complete=True)
        for offset, name in values:
            ledger.read(reading, offset, f"{name}/{key[1]}")


def test_committed_transactions_are_read_and_aborted_ones_are_not() -> None:
    ledger = Ledger()
    written(ledger, "one", Outcome.COMMITTED, 0)
    written(ledger, "two", Outcome.ABORTED, 2)
    written(ledger, "three", Outcome.IN_DOUBT, 4)
    written(ledger, "four", Outcome.IN_DOUBT, 6)
    read(ledger, (0, "one"), (6, "four"))
    assert ledger.problems() == []
    assert ledger.committed_count == 1


def problems_of(outcome: Outcome, *values: tuple[int, str]) -> str:
    ledger = Ledger()
    written(ledger, "one", Outcome.COMMITTED, 0)
    written(ledger, "two", outcome, 2)
    written(ledger, "three", Outcome.COMMITTED, 4)
    read(ledger, *values)
    return " ".join(ledger.problems())


def test_a_record_of_an_aborted_transaction_is_told() -> None:
    assert "aborted-read" in problems_of(Outcome.ABORTED, (0, "one"), (2, "two"), (4, "three"))


def test_a_record_that_is_read_before_the_commit_was_asked_for_is_told() -> None:
    ledger = Ledger()
    attempt = written(ledger, "one", Outcome.ABORTED, 0)
    read(ledger, (0, "one"))
    attempt.outcome = Outcome.COMMITTED
    assert "aborted-read" in " ".join(ledger.problems())


def test_a_lost_transaction_is_told() -> None:
    assert "unseen" in problems_of(Outcome.COMMITTED, (0, "one"), (4, "three"))


def test_a_record_that_is_read_twice_is_told() -> None:
    assert "duplicate" in problems_of(Outcome.COMMITTED, (0, "one"), (2, "two"), (3, "two"), (4, "three"))


def test_records_out_of_order_are_told() -> None:
    assert "nonmonotonic-send" in problems_of(Outcome.IN_DOUBT, (0, "one"), (4, "three"), (5, "two"))


def test_a_record_of_no_transaction_is_told() -> None:
    assert "unwritten-read" in problems_of(Outcome.ABORTED, (0, "one"), (3, "other"), (4, "three"))


def test_a_torn_transaction_is_told() -> None:
    ledger = Ledger()
    written(ledger, "one", Outcome.IN_DOUBT, 0)
    (first, _) = [ledger.reading("final", key, is_complete=True) for key in KEYS]
    ledger.read(first, 0, "one/0")
    assert "torn" in " ".join(ledger.problems())
