"""The state at the end of a remote segment is taken whole, checked, and of the leader's lineage alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.storage.checkpoints.leader_epochs import UNDEFINED_END, EpochEnd, EpochStart
from moldau.storage.checkpoints.text_checkpoint import format_checkpoint
from moldau.storage.log.truncation import RemoteStart
from moldau.storage.producers.producer_snapshot import encode_snapshot
from moldau.storage.producers.producer_state import ProducerStates
from moldau.storage.tiered.follower_state import epoch_before, epoch_to_ask_for, read_follower_state
from moldau.storage.tiered.layout import ObjectKind, object_key
from moldau.storage.tiered.metadata.remote_segment import RemoteSegment
from moldau.storage.tiered.port import Content, CorruptObject, ObjectNotFound, RemoteStorage
from moldau.storage.tiered.segment_copy import FileContent, put_segment
from moldau.testing.simulation.storage import SimulatedBucket
from tests.unit.storage.tiered.remote_partition import CLUSTER, PARTITION, copied, written_log
from tests.unit.storage.tiered.storages import run, simulated

EPOCHS = (EpochStart(1, 100), EpochStart(4, 150))


def segment_of(number: int) -> RemoteSegment:
    return RemoteSegment(bytes([*bytes(15), number]), 100, 199, 1, 0, 0, EPOCHS, 10, has_transaction_index=False)


async def put(storage: RemoteStorage, segment: RemoteSegment, *history: str) -> None:
    async def read(size: int, _position: int) -> bytes:
        return bytes(size)

    snapshot = encode_snapshot(ProducerStates())
    contents: dict[ObjectKind, Content] = dict.fromkeys((ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX), b"x")
    contents |= {ObjectKind.LOG: FileContent(read, 10), ObjectKind.PRODUCER_SNAPSHOT: snapshot}
    await put_segment(
        storage, CLUSTER, PARTITION, segment, contents | {ObjectKind.LEADER_EPOCHS: format_checkpoint(list(history))}
    )


async def state(storage: RemoteStorage, segment: RemoteSegment, epoch: int, offset: int, start: int = 7) -> RemoteStart:
    return await read_follower_state(
        storage, CLUSTER, PARTITION, segment, epoch=epoch, offset=offset, log_start_offset=start
    )


def test_the_state_is_that_at_the_end_of_the_segment() -> None:
    async def story() -> None:
        storage, _ = simulated()
        await put(storage, segment_of(1), "0 0", "1 60", "4 150")
        found = await state(storage, segment_of(1), 4, 199)
        assert (found.offset, found.log_start_offset) == (200, 7)
        assert found.epochs == (EpochStart(0, 0), EpochStart(1, 60), EpochStart(4, 150))
        assert (await state(storage, segment_of(1), 1, 149)).epochs == found.epochs

    run(story())


@pytest.mark.parametrize("history", [("0 0", "1 60"), ("0 0", "1 60", "3 150"), ("0 0", "1 60", "4 140"), ("4 150",)])
def test_a_history_that_the_metadata_does_not_have_is_refused(history: tuple[str, ...]) -> None:
    async def story() -> None:
        storage, _ = simulated()
        await put(storage, segment_of(1), *history)
        with pytest.raises(CorruptObject, match="other leader epochs"):
            await state(storage, segment_of(1), 4, 199)

    run(story())


def test_a_segment_of_another_lineage_than_the_leaders_is_refused() -> None:
    async def story() -> None:
        storage, _ = simulated()
        await put(storage, segment_of(1), "0 0", "1 60", "4 150")
        for epoch, offset in ((1, 199), (5, 199), (4, 149)):
            with pytest.raises(CorruptObject, match="the leader has it in"):
                await state(storage, segment_of(1), epoch, offset)

    run(story())


@pytest.mark.parametrize("kind", [ObjectKind.LEADER_EPOCHS, ObjectKind.PRODUCER_SNAPSHOT, ObjectKind.MANIFEST])
def test_damage_and_absence_are_found(tmp_path: Path, kind: ObjectKind) -> None:
    async def story() -> None:
        bucket = SimulatedBucket()
        storage, _ = simulated(bucket=bucket)
        _, segments = await copied(written_log(tmp_path), storage)
        segment = segments[0]
        epoch, offset = segment.epochs[-1].epoch, segment.last_offset
        assert (await state(storage, segment, epoch, offset, 0)).offset == offset + 1
        key = object_key(PARTITION, segment.start_offset, segment.segment_id, kind)
        bucket.damage(key, 2)
        with pytest.raises(CorruptObject):
            await state(storage, segment, epoch, offset, 0)
        await storage.delete([key])
        with pytest.raises(ObjectNotFound):
            await state(storage, segment, epoch, offset, 0)

    run(story())


@pytest.mark.parametrize(
    ("epoch", "earlier", "expected"),
    [
        (0, None, 0),  # there is no epoch before 0
        (5, EpochEnd(4, 100), 4),  # the local log begins with epoch 5: the record before is of 4
        (5, EpochEnd(2, 100), 2),  # epochs without records are not known
        (5, EpochEnd(4, 99), 5),  # epoch 4 ended before: the record before is of 5 too
        (5, UNDEFINED_END, 5),
    ],
)
def test_the_epoch_before(epoch: int, earlier: EpochEnd | None, expected: int) -> None:
    assert epoch_before(EpochStart(epoch, 100), earlier) == expected


def test_epoch_0_has_none_before() -> None:
    assert (epoch_to_ask_for(EpochStart(0, 10)), epoch_to_ask_for(EpochStart(3, 10))) == (None, 2)
