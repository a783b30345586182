"""Members of consumer and share groups in a whole cluster, and what their watch complains of."""

from __future__ import annotations

from tests.simulation.cluster.stages import KINDS
from tests.support.cluster_heartbeats import DELIVERIES_MAX, ShareWatch


def test_a_cluster_that_loses_coordinators_and_leaders_keeps_the_groups() -> None:
    report = KINDS["heartbeats"](3, None)
    assert report.problems == [] and report.acknowledged > 0


def watch() -> tuple[ShareWatch, list[str]]:
    complaints: list[str] = []
    return ShareWatch("g", "t", complaints, lambda *_: 0), complaints


def test_what_is_accepted_is_not_delivered_by_that_leader_or_a_later_one() -> None:
    share, complaints = watch()
    share.accepted[0, 5] = share.now(), 3
    share.delivered(0, (4, 6, 1), (2, 2), share.now())
    assert complaints == [], "an earlier leader may not know yet"
    share.delivered(0, (4, 6, 2), (3, 3), share.now())
    assert complaints == ["share group g: 5 of 0 is delivered in epochs (3, 3) and was accepted in 3"]


def test_delivery_counts_grow_up_to_the_limit() -> None:
    share, complaints = watch()
    share.delivered(0, (4, 4, 3), (2, 2), share.now())
    share.delivered(0, (4, 4, 1), (2, 2), share.now())
    share.delivered(0, (5, 5, DELIVERIES_MAX + 1), (2, 2), share.now())
    assert complaints == [
        "share group g: the count of 4 of 0 goes from 3 to 1",
        "share group g: 5 to 5 of 0 is delivered for the 6th time",
    ]


def test_a_record_is_missing_that_was_neither_accepted_nor_excused() -> None:
    share, _ = watch()
    share.accepted[0, 5] = share.now(), 3
    share.excused.add((0, 6))
    assert share.missing(0, 4, 8) == [4, 7]
