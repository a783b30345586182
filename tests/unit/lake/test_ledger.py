"""The ledger in the properties of a snapshot: what it says is read again, and what does not continue it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moldau.lake.ledger import Ledger, ledger_in
from moldau.tables.refusals import IsolationDiffers, Refused

LEDGER = Ledger("t", "append", "read_committed", "writer-1", {0: 7, 11: 3}, "topic-id", "cluster-id")


def test_what_is_written_is_read_again() -> None:
    for each in (LEDGER, replace(LEDGER, topic_id=None, cluster_id=None, offsets={})):
        assert ledger_in(each.properties("attempt-1") | {"total-records": "10"}, "snapshot 1") == each
    assert LEDGER.properties("attempt-1")["moldau.attempt"] == "attempt-1"


def test_a_snapshot_of_another_program_has_no_ledger() -> None:
    assert ledger_in(None, "snapshot 1") is None
    assert ledger_in({"total-records": "10"}, "snapshot 1") is None


@pytest.mark.parametrize("change", [{"moldau.offsets": "[1]"}, {"moldau.offsets": "{"}, {"moldau.mode": None}])
def test_damaged_properties_are_refused(change: dict[str, str | None]) -> None:
    changed = {name: value for name, value in {**LEDGER.properties("a"), **change}.items() if value is not None}
    with pytest.raises(Refused, match=r"snapshot 1: the properties moldau\.\* are damaged"):
        ledger_in(changed, "snapshot 1")


def test_a_commit_keeps_the_offsets_of_partitions_that_it_does_not_name() -> None:
    assert LEDGER.reaching({0: 9, 1: 1}).offsets == {0: 9, 1: 1, 11: 3}


def test_only_the_same_topic_cluster_mode_and_isolation_continue() -> None:
    LEDGER.check(replace(LEDGER, writer="writer-2", offsets={}, cluster_id=None), "d.t")
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"topic": "u"}, "has the topic t, not u"),
        ({"cluster_id": "other"}, "is of cluster cluster-id, and these places are of other"),
        ({"mode": "upsert"}, "was begun with --mode append"),
    )
    for change, problem in changes:
        with pytest.raises(Refused, match=f"table d.t {problem}"):
            LEDGER.check(replace(LEDGER, **change), "d.t")
    with pytest.raises(IsolationDiffers, match="--read-committed continues it"):
        LEDGER.check(replace(LEDGER, isolation="read_uncommitted"), "d.t")
