"""Several orders in one pass leave the log, and each receipt, as they would one after the other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.erase_orders import Run, packed_runs, unpacked_runs
from moldau.storage.compaction.request import LogChanged
from moldau.storage.erasure.erasing import (
    EraseRequestDone,
    SegmentErased,
    divide_among_orders,
    erase_request,
    serve_erasing,
    union_of_runs,
)
from moldau.storage.erasure.receipts import OrderReceipt
from tests.unit.storage.compaction.histories import Stored, send, stored
from tests.unit.storage.erasure.orders import carry_out, carry_out_all, runs_from, send_order
from tests.unit.storage.erasure.test_erasing import Story, histories, offsets_of

offset_sets = st.sets(st.integers(0, 60))


def story_of(history: list[tuple[object, ...]]) -> Story:
    story = Story(is_compacted=False)
    for name, *arguments in history:
        getattr(story, str(name))(*arguments)
    return story


def erased_by(receipt: OrderReceipt) -> dict[int, set[int]]:
    """By the base offset of a segment."""
    return {each.base_offset: offsets_of(each.erased) for each in receipt.segments}


def content(batch: Stored) -> tuple[object, ...]:
    """What a reader gets of a batch. An empty batch keeps the maximum timestamp that it had when its records went."""
    header = batch.header
    return header.base_offset, header.last_offset, header.producer_id, header.base_sequence, batch.records


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(histories, st.lists(st.sets(st.integers(0, 90), min_size=1), min_size=2, max_size=4), st.sampled_from([10, 500]))
def test_one_pass_leaves_what_a_pass_for_each_order_leaves(
    history: list[tuple[object, ...]], chosen: list[set[int]], io_buffer_size: int
) -> None:
    together, apart = story_of(history), story_of(history)
    named = [{offset for offset in each if offset < together.log.end_offset} or {0} for each in chosen]
    sent = [
        [send_order(story.log, runs_from(each), number) for number, each in enumerate(named)]
        for story in (together, apart)
    ]
    assert sent[0] == sent[1]
    receipts = carry_out_all(together.disk, together.log, sent[0], io_buffer_size=io_buffer_size)
    alone = [carry_out(apart.disk, apart.log, offset, io_buffer_size=io_buffer_size) for offset in sent[1]]
    assert list(map(content, stored(together.log))) == list(map(content, stored(apart.log)))
    assert list(map(erased_by, receipts)) == list(map(erased_by, alone))
    assert together.log.erase_orders.offsets == []
    sums = [{(each.base_offset, each.crc_before, each.crc_after) for each in receipt.segments} for receipt in receipts]
    segments = set[tuple[int, str, str]]().union(*sums)
    assert len({base_offset for base_offset, _, _ in segments}) == len(segments), "a segment is rewritten once"


@given(st.lists(offset_sets, min_size=1, max_size=4), st.data())
def test_an_offset_goes_to_the_first_order_that_names_it(named: list[set[int]], data: st.DataObject) -> None:
    union = set[int]().union(*named)
    erased = data.draw(st.sets(st.sampled_from(sorted(union)))) if union else set()
    shares = divide_among_orders(runs_from(erased), list(map(runs_from, named)))
    older: set[int] = set()
    for share, of_order in zip(shares, named, strict=True):
        assert share == runs_from(erased & of_order - older)
        older |= of_order


@given(st.lists(offset_sets, max_size=4))
def test_a_union_of_runs_is_that_of_their_offsets(named: list[set[int]]) -> None:
    assert union_of_runs(map(runs_from, named)) == runs_from(set[int]().union(*named))


def test_runs_are_packed_and_unpacked() -> None:
    runs = [Run(0, 0), Run(3, 9), Run(1 << 40, (1 << 62) + 1)]
    assert unpacked_runs(packed_runs(runs)) == runs
    assert len(packed_runs(runs)) == 16 * len(runs)


def test_a_process_serves_one_request_after_the_other() -> None:
    story = Story(is_compacted=False)
    send(story.log, ("a", "1"), ("b", "2"))
    story.roll()
    send(story.log, ("c", "3"))
    story.roll()
    work = serve_erasing(story.disk)
    assert isinstance(next(work), EraseRequestDone)
    for offset in (1, 2):
        request = erase_request(story.log, [packed_runs([Run(offset, offset)])], offset, offset, 500)
        events: list[object] = [work.send(request)]
        while not isinstance(events[-1], EraseRequestDone):
            events.append(next(work))
        (erased,) = [each for each in events if isinstance(each, SegmentErased)]
        assert [unpacked_runs(each.runs) for each in erased.erased] == [[Run(offset, offset)]]


def test_a_search_reads_only_the_pieces_with_named_offsets() -> None:
    story = Story(is_compacted=False)
    for _ in range(7):
        send(story.log, ("a", "1" * 20))
    story.roll()
    named = [packed_runs([Run(0, 0), Run(6, 6)])]
    carry_out(story.disk, story.log, send_order(story.log, [Run(0, 0), Run(6, 6)]))
    work = serve_erasing(story.disk)
    next(work)
    (event,) = [work.send(erase_request(story.log, named, 0, 6, 80))]
    assert getattr(event, "bytes_read", 0) < story.log.segments[0].size
    assert isinstance(next(work), EraseRequestDone)


def test_a_segment_that_has_changed_ends_the_work() -> None:
    story = Story(is_compacted=False)
    send(story.log, ("a", "1"))
    story.roll()
    request = erase_request(story.log, [packed_runs([Run(0, 0)])], 0, 0, 500)
    carry_out(story.disk, story.log, send_order(story.log, [Run(0, 0)]))
    work = serve_erasing(story.disk)
    next(work)
    with pytest.raises(LogChanged):
        work.send(request)
    assert next(work, None) is None
