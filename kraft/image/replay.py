"""Replay of the metadata log into an image. Records of a metadata transaction take effect when it ends; an abort
discards them.

| record   | outside a transaction | inside one              |
|----------|-----------------------|-------------------------|
| Begin    | opens one             | malformed               |
| End      | malformed             | replays what it held    |
| Abort    | malformed             | forgets what it held    |
| other    | is replayed           | is held                 |
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, MetadataImage, Provenance
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.records.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord


class Replay:
    """The state of a replay: the image, and the records of an open metadata transaction."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._held: list[object] | None = None

    def fork(self) -> Replay:
        """A copy of the state, on which another replay can continue."""
        copy = Replay(self.image)
        copy._held = None if self._held is None else list(self._held)
        return copy

    @property
    def in_transaction(self) -> bool:
        return self._held is not None

    def replay(self, records: Iterable[object], provenance: Provenance) -> MetadataDelta:
        """Replay records up to `provenance`. Returns the changes of the image. Raises `MalformedMessage` if a metadata
        transaction begins within another, or ends without having begun."""
        delta = MetadataDelta(self.image)
        for record in records:
            self._replay_one(record, delta)
        self.image = delta.apply(provenance)
        return delta

    def _replay_one(self, record: object, delta: MetadataDelta) -> None:
        match record:
            case BeginTransactionRecord():
                if self._held is not None:
                    raise MalformedMessage("a metadata transaction begins within another")
                self._held = []
            case EndTransactionRecord():
                for held in self._taken():
                    delta.replay(held)
            case AbortTransactionRecord():
                self._taken()
            case _ if self._held is not None:
                self._held.append(record)
            case _:
                delta.replay(record)

    def _taken(self) -> list[object]:
        held, self._held = self._held, None
        if held is None:
            raise MalformedMessage("a metadata transaction ends that did not begin")
        return held
