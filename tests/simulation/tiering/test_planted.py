"""Every rule of tiered storage flags the violation that is planted for it, and nothing in a healthy cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.storage.tiered.layout import ObjectKind, parse_key
from moldau.storage.tiered.metadata.remote_segment import SegmentState, SegmentUpdate
from tests.simulation.invariants.observation import Violation
from tests.simulation.tiering.copy_contents import check_contents
from tests.simulation.tiering.counted_once import CountedOnce
from tests.simulation.tiering.local_starts import LocalStarts
from tests.simulation.tiering.retained_enough import RetainedEnough
from tests.simulation.tiering.rules import Rule
from tests.simulation.tiering.scripts import Stage, told
from tests.simulation.tiering.stable_copies import StableCopies
from tests.simulation.tiering.whole_copies import WholeCopies
from tests.support.node import batch


def a_segment_goes_before_its_copy_is_finished(stage: Stage) -> None:
    """The log believes that all is copied."""
    log = stage.leader().log
    assert log.tiered_end_offset < log.active.base_offset
    log.tiered_end_offset = log.active.base_offset
    assert log.delete_old_segments(10**13, stage.leader().high_watermark)


def an_object_goes_that_the_metadata_names(stage: Stage) -> None:
    key = next(key for key in stage.bucket.objects if key.endswith(ObjectKind.TIME_INDEX.value))
    del stage.bucket.objects[key]
    stage.bucket.change_count += 1


def an_object_is_damaged(stage: Stage) -> None:
    key = next(key for key in stage.bucket.objects if key.endswith(ObjectKind.LOG.value))
    stage.bucket.damage(key, 5)


def a_broker_forgets_a_segment(stage: Stage) -> None:
    """It passes over a record of the metadata."""
    remote_log = stage.followed(1).remote_log
    segment = remote_log.read_segments()[0]
    remote_log.replay(SegmentUpdate(segment.segment_id, 1, 0, SegmentState.DELETE_SEGMENT_STARTED))
    remote_log.replay(SegmentUpdate(segment.segment_id, 1, 0, SegmentState.DELETE_SEGMENT_FINISHED))


def the_log_start_passes_what_is_to_be_kept(stage: Stage) -> None:
    leader = stage.leader()
    assert leader.log.advance_log_start(leader.high_watermark, leader.high_watermark) is ErrorCode.NONE


PLANTS: list[tuple[Callable[[Stage], Rule], Callable[[Stage], None]]] = [
    (lambda stage: LocalStarts(), a_segment_goes_before_its_copy_is_finished),
    (lambda stage: WholeCopies(stage.bucket), an_object_goes_that_the_metadata_names),
    (lambda stage: WholeCopies(stage.bucket), an_object_is_damaged),
    (lambda stage: CountedOnce(), a_broker_forgets_a_segment),
    (lambda stage: RetainedEnough(), the_log_start_passes_what_is_to_be_kept),
]


@pytest.mark.parametrize(("made", "plant"), PLANTS, ids=[plant.__name__ for _, plant in PLANTS])
def test_a_planted_violation_is_flagged(made: Callable[[Stage], Rule], plant: Callable[[Stage], None]) -> None:
    async def story(stage: Stage) -> None:
        await stage.fill(10)
        await stage.copied()
        for faults in stage.faults():
            faults.is_away = True
        await stage.fill(10)
        await asyncio.sleep(2)
        observer, metadata, rule = stage.observer, stage.rules.metadata, made(stage)
        seen = observer.look()
        assert seen is not None
        metadata.learn(seen)
        made(stage).check(seen, metadata)
        if not isinstance(rule, CountedOnce):  # which looks again only if something was read
            rule.check(seen, metadata)
        stage.is_watched = False
        plant(stage)
        seen = observer.look()
        assert seen is not None
        metadata.learn(seen)
        with pytest.raises(Violation):
            rule.check(seen, metadata)

    told(1, story)


def test_a_copy_of_an_open_transaction_is_flagged() -> None:
    """The copier takes the high watermark for the last stable offset."""

    async def story(stage: Stage) -> None:
        await stage.fill(2)
        opening = batch("x", producer_id=9000, producer_epoch=0, base_sequence=0, is_transactional=True)
        assert stage.leader().append_internal(opening, 1000).error is ErrorCode.NONE
        await stage.fill(10)
        stage.is_watched = False
        observer, metadata, rule = stage.observer, stage.rules.metadata, StableCopies()
        stage.leader().log.producers.clear(stage.leader().log.end_offset)
        await asyncio.sleep(5)
        seen = observer.look()
        assert seen is not None
        metadata.learn(seen)
        assert metadata.segments
        with pytest.raises(Violation, match="past the open transaction"):
            rule.check(seen, metadata)

    told(2, story)


@pytest.mark.parametrize("kind", [ObjectKind.OFFSET_INDEX, ObjectKind.LEADER_EPOCHS, ObjectKind.PRODUCER_SNAPSHOT])
def test_objects_of_another_segment_are_flagged(kind: ObjectKind) -> None:
    """The indexes, epochs and producers of one segment beside the records of another."""

    async def story(stage: Stage) -> None:
        for number in range(20):
            records = batch(
                f"v{number}", "w" * (60 + 7 * number), producer_id=5, producer_epoch=0, base_sequence=2 * number
            )
            assert stage.leader().append_internal(records, 1000).error is ErrorCode.NONE
        await stage.copied()
        seen = stage.observer.look()
        assert seen is not None
        one, other = stage.followed(1).remote_log.read_segments()[:2]
        found = {each: key for key in stage.bucket.objects if (each := parse_key(key)) is not None}
        contents = {
            each.kind: stage.bucket.objects[key].data
            for each, key in found.items()
            if each.segment_id == one.segment_id
        }
        committed = seen.committed[stage.followed(1).key[1:]].batches
        check_contents(contents, one, committed, "one", deleted_end=0)
        if kind is ObjectKind.LEADER_EPOCHS:
            contents[kind] = b"0\n1\n7 0\n"
        else:
            (key,) = [key for each, key in found.items() if (each.segment_id, each.kind) == (other.segment_id, kind)]
            contents[kind] = stage.bucket.objects[key].data
        with pytest.raises(Violation):
            check_contents(contents, one, committed, "one", deleted_end=0)

    told(3, story, index_interval_bytes=0, internal_segment_bytes=1000)
