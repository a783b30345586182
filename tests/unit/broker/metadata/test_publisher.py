"""When readers see an image, and when a reply goes out."""

from __future__ import annotations

import pytest

from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.broker.metadata.publisher import RECORDS_OF_STEP, CommittedMetadata, MetadataPublisher, PublishProgress
from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, Provenance
from moldau.kraft.image.replay import Replay
from moldau.protocol.records.metadata import ProducerIdsRecord
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk


def state(end_offset: int) -> Replay:
    return Replay(EMPTY_IMAGE._replace(provenance=Provenance(end_offset, 1, 0)))


def test_images_and_replies_wait_for_the_high_watermark() -> None:
    told: list[str] = []
    publisher = MetadataPublisher()
    publisher.subscribe(lambda image, delta: told.append(f"image {image.provenance.end_offset}"))
    publisher.reply_when_committed(0, told.append, "at once")
    for end_offset in (3, 5, 9):
        publisher.publish_later(state(end_offset), MetadataDelta(EMPTY_IMAGE))
        publisher.reply_when_committed(end_offset, told.append, f"reply {end_offset}")
    assert told == ["at once"] and publisher.image is EMPTY_IMAGE
    publisher.commit(4)
    assert told[1:] == ["image 3", "reply 3"] and publisher.image.provenance.end_offset == 3
    publisher.commit(9)
    assert told[3:] == ["image 5", "image 9", "reply 5", "reply 9"]
    publisher.reply_when_committed(9, told.append, "at once again")
    assert told[-1] == "at once again"


def test_a_reply_that_asks_again_waits_its_turn() -> None:
    """A client may submit its next request from within the callback of its response."""
    told: list[str] = []
    publisher = MetadataPublisher()

    def ask_again(response: str) -> None:
        told.append(response)
        publisher.publish_later(state(6), MetadataDelta(EMPTY_IMAGE))
        publisher.reply_when_committed(6, told.append, "second")

    publisher.publish_later(state(4), MetadataDelta(EMPTY_IMAGE))
    publisher.reply_when_committed(4, ask_again, "first")
    publisher.reply_when_committed(4, told.append, "beside")
    publisher.commit(4)
    assert told == ["first", "beside"] and publisher.image.provenance.end_offset == 4
    publisher.commit(6)
    assert told[-1] == "second"


def test_who_resigns_gives_up_what_is_not_committed() -> None:
    told: list[str] = []
    publisher = MetadataPublisher()
    publisher.publish_later(state(4), MetadataDelta(EMPTY_IMAGE))
    publisher.publish_later(state(6), MetadataDelta(EMPTY_IMAGE))
    publisher.reply_when_committed(4, told.append, "decided")
    publisher.reply_when_committed(6, told.append, "never", lambda: told.append("given up"))
    publisher.commit(4)
    publisher.resign()
    publisher.commit(6)
    assert told == ["decided", "given up"] and publisher.image.provenance.end_offset == 4
    publisher.publish_records([], Provenance(6, 2, 0))
    assert publisher.image.provenance == Provenance(6, 2, 0), "what another leader got committed"


BATCHES = 100
RECORDS = 3
"""The records of a batch."""


class FollowersLog:
    """A metadata log of batches that name rising producer ids, and what a follower publishes of it."""

    def __init__(self) -> None:
        disk = SimulatedDisk()
        disk.make_directories("/data")
        self.log = MetadataLog.open(disk, "/data", LogConfig(), 1000).log
        self.publisher = MetadataPublisher()
        self.committed = CommittedMetadata(self.publisher, self.log, Replay())
        self.published: list[int] = []
        self.publisher.subscribe(lambda image, delta: self.published.append(image.next_producer_id))

    def append(self, first: int, count: int) -> None:
        for batch in range(first, first + count):
            records = [ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=batch)] * RECORDS
            self.log.append(records, 25, epoch=1, now_ms=1000)

    def steps(self, high_watermark: int) -> int:
        """The number of steps until everything below the high watermark is published."""
        count = 1
        while self.committed.commit(high_watermark, is_active=False) is PublishProgress.BEHIND:
            count += 1
        return count


def test_a_follower_publishes_much_metadata_in_steps() -> None:
    follower = FollowersLog()
    follower.append(1, BATCHES)
    assert follower.committed.commit(BATCHES * RECORDS, is_active=False) is PublishProgress.BEHIND
    assert len(follower.published) <= 1 + RECORDS_OF_STEP // RECORDS
    assert follower.steps(BATCHES * RECORDS) >= BATCHES * RECORDS // RECORDS_OF_STEP
    assert [each for each in follower.published if each] == list(range(1, BATCHES + 1))
    assert follower.publisher.high_watermark == BATCHES * RECORDS


def test_a_high_watermark_that_rises_between_two_steps_is_reached() -> None:
    follower = FollowersLog()
    follower.append(1, BATCHES)
    follower.committed.commit(BATCHES * RECORDS, is_active=False)
    follower.append(BATCHES + 1, 2)
    follower.steps((BATCHES + 2) * RECORDS)
    assert [each for each in follower.published if each] == list(range(1, BATCHES + 3))


@pytest.mark.parametrize("resigns", [False, True])
def test_a_node_that_leads_before_it_has_published_everything_loses_none(resigns: bool) -> None:
    follower = FollowersLog()
    follower.append(1, BATCHES)
    follower.committed.commit(BATCHES * RECORDS, is_active=False)
    base = follower.committed.begin_term()
    assert base.image.next_producer_id == BATCHES
    if resigns:
        follower.committed.end_term()
        assert follower.publisher.image.next_producer_id < BATCHES
        follower.steps(BATCHES * RECORDS)
    else:
        assert follower.committed.commit(BATCHES * RECORDS, is_active=True) is PublishProgress.PUBLISHED
    assert follower.publisher.image.next_producer_id == BATCHES
    assert follower.published == sorted(follower.published)


def test_a_snapshot_that_replaces_the_log_ends_the_steps_behind_it() -> None:
    follower = FollowersLog()
    follower.append(1, BATCHES)
    follower.committed.commit(BATCHES * RECORDS, is_active=False)
    image = EMPTY_IMAGE._replace(provenance=Provenance(BATCHES * RECORDS, 1, 1000), next_producer_id=BATCHES)
    follower.committed.publish_snapshot(Replay(image))
    assert follower.committed.commit(BATCHES * RECORDS, is_active=False) is PublishProgress.PUBLISHED
    assert follower.published[-1] == BATCHES
