"""The verdict on transactions finds what is torn and what is copied wrongly, and no more."""

from __future__ import annotations

from tests.chaos.transaction_verdict import miscopied, outcomes, torn
from tests.support.history import Key, Reading, Send, Told

KEY: Key = ("source", 0)


def a_transaction(number: int, count: int = 3) -> list[Send]:
    return [Send("t0.1", KEY, f"t0.1/{number}/{index}") for index in range(count)]


def a_reading(*values: object) -> Reading:
    return Reading("final", KEY, [(offset, str(value)) for offset, value in enumerate(values)], is_complete=True)


def test_a_transaction_is_whole_or_not_there() -> None:
    whole, absent, half = a_transaction(1), a_transaction(2), a_transaction(3)
    final = a_reading(*(sent.value for sent in whole), half[0].value)
    assert torn([whole, absent], [final]) == []
    assert torn([whole, absent, half], [final]) == ["torn: 1 of 3 records beside t0.1/3/0"]


def test_the_records_of_a_transaction_may_lie_in_several_partitions() -> None:
    transaction = a_transaction(1, 2)
    assert torn([transaction], [a_reading(transaction[0].value), a_reading(transaction[1].value)]) == []
    assert torn([transaction], [a_reading(transaction[0].value), a_reading()]) != []


def test_every_record_is_copied_once() -> None:
    assert miscopied([a_reading("a", "b")], [a_reading("b", "a")]) == []
    assert miscopied([a_reading("a", "b")], [a_reading("a")]) == ["copied never: 1 records, ['b']"]
    assert miscopied([a_reading("a")], [a_reading("a"), a_reading("a")]) == ["copied more than once: 1 records, ['a']"]
    assert miscopied([a_reading()], [a_reading("a")]) == ["copied though never committed: 1 records, ['a']"]


def test_outcomes_are_counted_by_transaction() -> None:
    committed, aborted, unknown = a_transaction(1), a_transaction(2), a_transaction(3)
    for sent in committed:
        sent.acknowledge()
    for sent in aborted:
        sent.fail()
    counted = outcomes([committed, aborted, unknown])
    assert counted == {Told.ACKNOWLEDGED: 1, Told.FAILED: 1, Told.UNKNOWN: 1}
