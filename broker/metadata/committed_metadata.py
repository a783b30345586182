"""The source of published metadata: the log that was read at start, fetched records, or this node's own decisions."""

from __future__ import annotations

from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.broker.metadata.publisher import MetadataPublisher
from moldau.kraft.image.difference import difference
from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from moldau.kraft.image.replay import Replay


class CommittedMetadata:
    """Publishes committed metadata. While this node leads the quorum, the active controller provides the images."""

    def __init__(self, publisher: MetadataPublisher, log: MetadataLog, loaded: Replay) -> None:
        """`loaded`: the metadata at the end of the log at start. How much of it is committed is not known yet."""
        self._publisher = publisher
        self._log = log
        self._loaded: Replay | None = loaded
        """The metadata that was read at start. It is published once all of it is committed."""

    @property
    def _image(self) -> MetadataImage:
        return self._publisher.image

    @property
    def nearest_image(self) -> MetadataImage:
        """The image in memory whose offset is nearest to the end of the log."""
        return self._image if self._loaded is None else self._loaded.image

    def commit(self, high_watermark: int, *, is_active: bool) -> bool:
        """Publish the metadata up to the high watermark.

        Returns False, and publishes nothing, while the high watermark is below the end of the log that was read at
        start.
        """
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
        """The metadata at the end of the log, committed or not.

        Records that are not committed yet are committed together with the first batch of the term (Raft, section
        5.4.2), and published then.
        """
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
        """Drop the decisions of the term that are not committed.

        If they are committed later, they are replayed from the log.
        """
        self._publisher.resign()
        if not self._image.provenance.end_offset:
            self._loaded = self._log.replayed()  # The term ended before this node knew of a commit.

    def truncated(self, end_offset: int) -> None:
        """Records that were read at start were not committed, and were truncated: read the log again."""
        if self._loaded is not None and self._loaded.image.provenance.end_offset > end_offset:
            self._loaded = self._log.replayed()

    def replaced(self, replay: Replay) -> None:
        """A snapshot of the leader has replaced the log: publish it."""
        self._loaded = None
        self._publisher.adopt(replay, difference(self._image, replay.image))
