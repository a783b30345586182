"""What readers see of the metadata: images become visible when they are committed, and replies go out after them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, MetadataImage

Listener = Callable[[MetadataImage, MetadataDelta], None]
Reply = Callable[..., None]


class Pending(NamedTuple):
    """An image that is published once everything before its end is committed."""

    image: MetadataImage
    delta: MetadataDelta


class Waiting(NamedTuple):
    """A reply that is sent once everything before the offset is committed."""

    end_offset: int
    reply: Reply
    response: object


class MetadataPublisher:
    """Listeners are called in the order of the log, before the replies that wait for the same records."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.high_watermark = 0
        self._listeners: list[Listener] = []
        self._pending: deque[Pending] = deque()
        self._waiting: deque[Waiting] = deque()

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with every image from the next one on, and with what made it."""
        self._listeners.append(listener)

    def publish_later(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Images come in the order of the log."""
        self._pending.append(Pending(image, delta))

    def reply_when_committed(self, end_offset: int, reply: Reply, response: object) -> None:
        """Now, where everything before the offset is committed already."""
        if self.high_watermark >= end_offset:
            reply(response)
        else:
            self._waiting.append(Waiting(end_offset, reply, response))

    def commit(self, high_watermark: int) -> None:
        """Everything before the high watermark will stay."""
        self.high_watermark = high_watermark
        while self._pending and self._pending[0].image.provenance.end_offset <= high_watermark:
            image, delta = self._pending.popleft()
            self.image = image
            for listener in self._listeners:
                listener(image, delta)
        while self._waiting and self._waiting[0].end_offset <= high_watermark:
            waiting = self._waiting.popleft()
            waiting.reply(waiting.response)
