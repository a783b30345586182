"""Offsets from the cheapest origin that has them, whatever the origins' segments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.tables.origins.port import PartitionOrigin, StoredSegment
from moldau.tables.planning.partition_view import PartitionView
from moldau.tables.refusals import ClusterMismatch


@dataclass
class Offer:
    """The part of a `PartitionOrigin` that a view looks at."""

    segments: list[StoredSegment]
    key: tuple[str, int] = ("t", 0)
    topic_id: bytes | None = None
    place: str = "here"
    tier: str = "local"
    stable: int | None = None
    is_checkpointed: bool = True
    may_have_gaps: bool = False
    incomplete: tuple[()] = ()
    log_start_known: int = 0
    log_start_offset: int = 0
    high_watermark: int = field(init=False)

    def __post_init__(self) -> None:
        self.high_watermark = max((each.end_offset for each in self.segments), default=0)

    def last_stable_offset(self) -> int:
        return self.high_watermark if self.stable is None else self.stable


def view_of(*offers: Offer) -> PartitionView:
    return PartitionView([cast("PartitionOrigin", offer) for offer in offers])


def segment(start: int, end: int, name: str = "") -> StoredSegment:
    return StoredSegment(start, end, 100, name, is_growing=False)


def pieces(view: PartitionView, start: int, end: int) -> list[tuple[str | None, int, int]]:
    return [
        (each.segment.name if each.segment else None, each.start_offset, each.end_offset)
        for each in view.pieces(start, end)
    ]


def test_a_cheaper_origin_is_taken_where_it_begins() -> None:
    local = Offer([segment(50, 80, "local-50"), segment(80, 120, "local-80")])
    remote = Offer([segment(0, 60, "remote-0"), segment(60, 100, "remote-60")])
    assert pieces(view_of(local, remote), 10, 110) == [
        ("remote-0", 10, 50),
        ("local-50", 50, 80),
        ("local-80", 80, 110),
    ]


def test_offsets_that_no_origin_has_are_a_gap() -> None:
    view = view_of(Offer([segment(50, 60, "local")]), Offer([segment(0, 20, "remote")]))
    assert pieces(view, 0, 70) == [("remote", 0, 20), (None, 20, 50), ("local", 50, 60), (None, 60, 70)]


bounds = st.lists(st.integers(0, 60), unique=True, min_size=2, max_size=8).map(sorted)


@given(st.lists(bounds, min_size=1, max_size=3), st.integers(0, 60), st.integers(0, 60))
def test_every_offset_comes_once_and_from_the_first_origin_that_has_it(
    drawn: list[list[int]], start: int, end: int
) -> None:
    offers = [
        Offer([segment(a, b, f"{number}") for a, b in zip(each[::2], each[1::2], strict=False)])
        for number, each in enumerate(drawn)
    ]
    found: list[tuple[int, str | None]] = []
    for name, first, after in pieces(view_of(*offers), start, end):
        found += [(offset, name) for offset in range(first, after)]
    expected: list[tuple[int, str | None]] = []
    for offset in range(start, end):
        having = [
            str(number)
            for number, offer in enumerate(offers)
            if any(each.start_offset <= offset < each.end_offset for each in offer.segments)
        ]
        expected.append((offset, having[0] if having else None))
    assert found == expected


def test_a_committed_read_leaves_an_origin_at_its_last_stable_offset() -> None:
    """Past it are transactions of which that origin does not know yet how they end."""
    near = Offer([segment(0, 100)], stable=40)
    far = Offer([segment(0, 150)], stable=120, tier="broker")
    offers = [cast("PartitionOrigin", each) for each in (near, far)]
    taken = [
        (each.offer is offers[0], each.start_offset, each.end_offset)
        for each in PartitionView(offers, is_committed=True).pieces(0, 120)
    ]
    assert taken == [(True, 0, 40), (False, 40, 120)]
    assert [each.end_offset for each in PartitionView(offers[:1], is_committed=True).pieces(0, 40)] == [40]


def test_origins_with_different_topics_of_a_name_are_refused() -> None:
    with pytest.raises(ClusterMismatch, match="t-0: here and here have different topics of this name"):
        view_of(Offer([], topic_id=bytes(16)), Offer([], topic_id=b"1" * 16))
