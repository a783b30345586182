"""How the committed metadata follows the log: what was read at start, what a leader sends, what this node decides."""

from __future__ import annotations

from broker.metadata.metadata_log import MetadataLog
from broker.metadata.publisher import MetadataPublisher
from kraft.image.difference import difference
from kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kraft.image.replay import Replay


class CommittedMetadata:
    """Shows through the publisher what is committed, and nothing else; under an active controller that brings the
    states itself."""

    def __init__(self, publisher: MetadataPublisher, log: MetadataLog, loaded: Replay) -> None:
        """`loaded`: what the log said at start up to its end, of which nobody knows yet how much is committed."""
        self._publisher = publisher
        self._log = log
        self._loaded: Replay | None = loaded
        """Published once all of it is committed."""

    @property
    def _image(self) -> MetadataImage:
        return self._publisher.image

    @property
    def nearest_image(self) -> MetadataImage:
        """As near to the end of the log as one is at hand."""
        return self._image if self._loaded is None else self._loaded.image

    def commit(self, high_watermark: int, *, is_active: bool) -> bool:
        """Show what is committed; False as long as what was read at start is not."""
        loaded = self._loaded
        if loaded is not None:
            if loaded.image.provenance.end_offset > high_watermark:
                return False
            self._loaded = None
            self._publisher.adopt(loaded, MetadataDelta(EMPTY_IMAGE))
        if not is_active:
            for records, provenance in self._log.records_between(self._image.provenance.end_offset, high_watermark):
                self._publisher.replayed(records, provenance)
        self._publisher.commit(high_watermark)
        return True

    def begin_term(self) -> Replay:
        """The state at the end of the log, committed or not: what is not yet will be with the first batch of the term,
        and is shown then."""
        loaded, self._loaded = self._loaded, None
        base = loaded if loaded is not None else self._publisher.replay.fork()
        delta = MetadataDelta(self._image)
        read = list(self._log.records_between(base.image.provenance.end_offset, self._log.end_offset))
        if read:
            tail = base.replay([record for records, _ in read for record in records], read[-1][1])
            delta = delta if loaded is not None else tail
        self._publisher.publish_later(base.fork(), delta)
        return base

    def end_term(self) -> None:
        """Forget what this node decided and did not get committed; the log tells what becomes of it."""
        self._publisher.resign()
        if not self._image.provenance.end_offset:
            self._loaded = self._log.replayed()  # the term ended before anything was ever committed here

    def truncated(self, end_offset: int) -> None:
        """What was read at start may not have been committed at all: then it is read again."""
        if self._loaded is not None and self._loaded.image.provenance.end_offset > end_offset:
            self._loaded = self._log.replayed()

    def replaced(self, replay: Replay) -> None:
        """A snapshot of the leader's is the state now."""
        self._loaded = None
        self._publisher.adopt(replay, difference(self._image, replay.image))
