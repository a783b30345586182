"""Publishes metadata images once they are committed, and sends the responses that wait for the same commit afterwards.

An active controller provides images before they are committed, each with its delta (`publish_later`). On a follower,
records are replayed once they are committed (`publish_records`). When a controller resigns, its uncommitted images are
dropped. If their records are committed later, they are replayed from the log.

`CommittedMetadata` decides what is published: the log that was read at start, fetched records, or this node's own
decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final

from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.kraft.image.difference import difference_between
from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.protocol.late_tuple import NamedTuple

RECORDS_OF_STEP: Final = 16
"""The number of records and batches after which one step of publishing fetched metadata ends. It is small, because
publishing a partition may create its log.
"""

Listener = Callable[[MetadataImage, MetadataDelta], None]
Reply = Callable[..., None]


class UncommittedState(NamedTuple):
    """Metadata with its delta, to be published once all records before the end offset of its image are committed."""

    replay: Replay
    delta: MetadataDelta


class WaitingReply(NamedTuple):
    """A response that is sent once every record before the offset is committed.

    `given_up` is called instead if this node resigns before that.
    """

    end_offset: int
    reply: Reply
    response: object
    given_up: Callable[[], None]


def no_retry() -> None:
    """The `given_up` of a request that is not sent again when the controller's term ends before its response."""


class MetadataPublisher:
    """Publishes committed metadata. Listeners get the images in the order of the log. A reply that waits for records is
    sent after the listeners have got the image with those records.
    """

    def __init__(self) -> None:
        self.replay = Replay()
        """The state at the end of the published metadata. Callers only read it, or fork it."""
        self.high_watermark = 0
        self._at_start: MetadataImage | None = None
        self._listeners: list[Listener] = []
        self._pending: deque[UncommittedState] = deque()
        self._waiting: deque[WaitingReply] = deque()

    @property
    def image(self) -> MetadataImage:
        return self.replay.image

    def image_for_logins(self) -> MetadataImage:
        """The metadata with which logins are checked: the committed metadata, or the metadata up to the end of this
        node's log until the high watermark is known.

        Controllers log in to each other before they can elect a leader, and only a leader provides the high watermark.
        """
        image = self.image
        if image.features.levels:
            self._at_start = None
        return self._at_start or image

    def use_for_logins(self, image: MetadataImage) -> None:
        """Use the metadata up to the end of this node's log for logins, until the high watermark is known."""
        self._at_start = image

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with every later image, and with the delta that produced it."""
        self._listeners.append(listener)

    # Committed records, and whole states

    def publish_records(self, records: Sequence[object], provenance: Provenance) -> None:
        """Replay committed records, which end at `provenance`, and publish the resulting image."""
        assert not self._pending, "records replayed under an active controller"
        self._publish(self.replay, self.replay.replay(records, provenance))

    def adopt(self, replay: Replay, delta: MetadataDelta) -> None:
        """Publish a committed state that another part has read, such as a snapshot. `delta` is its difference from the
        published state.
        """
        assert not self._pending, "a snapshot adopted under an active controller"
        self._publish(replay, delta)

    # Under an active controller

    def publish_later(self, replay: Replay, delta: MetadataDelta) -> None:
        """Publish a state once it is committed.

        States come in the order of the log; the caller does not change them afterwards.
        """
        self._pending.append(UncommittedState(replay, delta))

    def reply_when_committed(
        self, end_offset: int, reply: Reply, response: object, given_up: Callable[[], None] = no_retry
    ) -> None:
        """Call `reply` with the response once every record before `end_offset` is committed; at once if they are
        committed already.
        """
        if self.high_watermark >= end_offset:
            reply(response)
        else:
            self._waiting.append(WaitingReply(end_offset, reply, response, given_up))

    def commit(self, high_watermark: int) -> None:
        """Move the high watermark: publish the images below it, then send the responses that waited for it."""
        self.high_watermark = high_watermark
        while self._pending and self._pending[0].replay.image.provenance.end_offset <= high_watermark:
            self._publish(*self._pending.popleft())
        while self._waiting and self._waiting[0].end_offset <= high_watermark:
            waiting = self._waiting.popleft()
            waiting.reply(waiting.response)

    def resign(self) -> None:
        """Drop the states that are not committed, because this node no longer leads.

        Their records may still be committed later. So `given_up` is called for each waiting request, and none is
        refused.
        """
        self._pending.clear()
        given_up, self._waiting = self._waiting, deque()
        for waiting in given_up:
            waiting.given_up()

    def _publish(self, replay: Replay, delta: MetadataDelta) -> None:
        self.replay = replay
        for listener in self._listeners:
            listener(replay.image, delta)


class PublishProgress(Enum):
    """The progress of publishing the committed metadata."""

    UNKNOWN = "unknown"
    """It is not known yet up to which offset the log that was read at start is committed."""
    BEHIND = "behind"
    PUBLISHED = "published"


class CommittedMetadata:
    """Chooses what is published as committed metadata. While this node leads the quorum, the active controller provides
    the images; otherwise they are made from the log.
    """

    def __init__(self, publisher: MetadataPublisher, log: MetadataLog, loaded: Replay) -> None:
        """`loaded`: the metadata at the end of the log at start. It is not known yet up to which offset the log is
        committed.
        """
        self._publisher = publisher
        self._log = log
        self._loaded: Replay | None = loaded
        """The metadata that was read at start. It is published once all of it is committed."""
        self._unpublished: Iterator[tuple[list[object], Provenance]] | None = None
        """The committed batches behind the published image, if a step has left some."""

    @property
    def _image(self) -> MetadataImage:
        return self._publisher.image

    @property
    def nearest_image(self) -> MetadataImage:
        """The image in memory whose offset is nearest to the end of the log."""
        return self._image if self._loaded is None else self._loaded.image

    def commit(self, high_watermark: int, *, is_active: bool) -> PublishProgress:
        """Publish the metadata up to the high watermark, or the next part of it, about `RECORDS_OF_STEP` records.

        Nothing is published while the high watermark is below the end of the log that was read at start.
        """
        loaded = self._loaded
        if loaded is not None:
            if loaded.image.provenance.end_offset > high_watermark:
                return PublishProgress.UNKNOWN
            self._loaded = None
            self._publisher.adopt(loaded, MetadataDelta(EMPTY_IMAGE))
        if is_active or self._replay_step(high_watermark):
            self._publisher.commit(high_watermark)
            return PublishProgress.PUBLISHED
        return PublishProgress.BEHIND

    def _replay_step(self, high_watermark: int) -> bool:
        """Publish the next batches of the log. Returns whether every record before the high watermark is published."""
        if self._unpublished is None:
            self._unpublished = self._log.records_between(self._image.provenance.end_offset, high_watermark)
        count = 0
        for records, provenance in self._unpublished:
            self._publisher.publish_records(records, provenance)
            count += 1 + len(records)
            if count >= RECORDS_OF_STEP:
                break
        else:
            self._unpublished = None
        return self._image.provenance.end_offset >= high_watermark

    def begin_term(self) -> Replay:
        """Begin a term of the controller. Returns the metadata at the end of the log, whether committed or not.

        Records that are not committed yet are committed together with the first batch of the term (Raft, section
        5.4.2), and published then.
        """
        loaded, self._loaded = self._loaded, None
        self._unpublished = None
        base = loaded if loaded is not None else self._publisher.replay.fork()
        delta = MetadataDelta(self._image)
        read = list(self._log.records_between(base.image.provenance.end_offset, self._log.end_offset))
        if read:
            tail = base.replay([record for records, _ in read for record in records], read[-1][1])
            delta = delta if loaded is not None else tail
        self._publisher.publish_later(base.fork(), delta)
        return base

    def end_term(self) -> None:
        """End a term of the controller: drop those of its decisions that are not committed.

        If their records are committed later, they are replayed from the log.
        """
        self._publisher.resign()
        if not self._image.provenance.end_offset:
            self._loaded = self._log.replay_again()  # The term ended before this node knew of a commit.

    def on_log_truncated(self, end_offset: int) -> None:
        """Note that the log was truncated to `end_offset`. If records that were read at start are gone, the log is read
        again.
        """
        if self._loaded is not None and self._loaded.image.provenance.end_offset > end_offset:
            self._loaded = self._log.replay_again()

    def publish_snapshot(self, replay: Replay) -> None:
        """Publish the metadata of a leader's snapshot, which has replaced the log."""
        self._loaded = self._unpublished = None
        self._publisher.adopt(replay, difference_between(self._image, replay.image))
