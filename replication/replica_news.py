"""What one follower's fetch session has to hear of: its leader looks at partitions with news, and at no others.

A partition is in `keys` from the moment that something happened to it (an append, a commit, a change of role, another
wish of the follower) until an answer found that the follower has everything. Whatever tells no one, such as retention
that moved a log's start, is found by a look at all of them now and then.

A follower that asks for nothing new repeats by that what it asked for last. So the time of its last request stands for
all partitions of the session: `last_ms` says for each of them when it was heard of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replication.partition import Partition

SWEEP_MS: Final = 1000
NEVER_MS: Final = -(1 << 62)


class ReplicaNews:
    """Partitions under the key by which the session knows them."""

    __slots__ = ("_swept_ms", "_watched", "keys", "last_ms", "previous_ms", "wake")

    def __init__(self) -> None:
        self.keys: dict[tuple[str | bytes, int], None] = {}
        self.wake: Callable[[], None] | None = None
        """Whoever waits for news that cannot."""
        self.last_ms = NEVER_MS
        self.previous_ms = NEVER_MS
        self._watched: dict[tuple[str | bytes, int], Partition] = {}
        self._swept_ms = NEVER_MS

    def requested(self, now_ms: int) -> None:
        """The follower has sent a request."""
        self.previous_ms, self.last_ms = self.last_ms, now_ms

    def note(self, key: tuple[str | bytes, int]) -> None:
        """Something to tell with the next answer."""
        self.keys[key] = None

    def note_urgent(self, key: tuple[str | bytes, int]) -> None:
        """Something to tell at once."""
        self.keys[key] = None
        if self.wake is not None:
            self.wake()

    def watch(self, key: tuple[str | bytes, int], partition: Partition) -> None:
        known = self._watched.get(key)
        if known is not partition:
            if known is not None:
                known.untell(self)
            self._watched[key] = partition
            partition.tell(self, key)

    def forget(self, key: tuple[str | bytes, int]) -> None:
        """The follower has given the partition up: its requests say nothing of it any more."""
        self.keys.pop(key, None)
        partition = self._watched.pop(key, None)
        if partition is not None:
            partition.untell(self)

    def sweep(self, told: Callable[[tuple[str | bytes, int]], tuple[int, int]], now_ms: int) -> None:
        """Now and then, note what nobody told of; `told` gives the high watermark and log start that were told last."""
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        for key, partition in self._watched.items():
            if told(key) != (partition.high_watermark, partition.log.log_start_offset):
                self.keys[key] = None

    def close(self) -> None:
        """The session has ended."""
        for partition in self._watched.values():
            partition.untell(self)
        self._watched.clear()
        self.keys.clear()
        self.wake = None
