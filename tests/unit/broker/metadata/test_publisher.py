"""When readers see an image, and when a reply goes out."""

from __future__ import annotations

from moldau.broker.metadata.publisher import MetadataPublisher
from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, Provenance
from moldau.kraft.image.replay import Replay


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
    publisher.replayed([], Provenance(6, 2, 0))
    assert publisher.image.provenance == Provenance(6, 2, 0), "what another leader got committed"
