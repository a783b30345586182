"""Leader: what it has written is committed once a majority has it on disk, and only from its own term on."""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.election import Election
from kraft.raft.events import Appended, Commit, Effect, ElectionSaved, Event, Flushed
from kraft.raft.quorum import Quorum


class Leader(NamedTuple):
    quorum: Quorum
    election: Election
    epoch_start_offset: int
    """Where its term begins; nothing is committed before a record of the term is."""
    end_offset: int = 0
    flushed_end_offset: int = 0
    """Of its own copy."""
    high_watermark: int = -1
    """-1 until the term's first commit."""

    def step(self, event: Event, now_ms: int) -> tuple[Leader, list[Effect]]:
        match event:
            case Appended(end_offset):
                assert end_offset >= self.end_offset, "a leader's log never shrinks"
                return self._replace(end_offset=end_offset), []
            case Flushed(end_offset):
                assert end_offset <= self.end_offset, "more is durable than was written"
                return self._replace(flushed_end_offset=end_offset)._committed()
            case ElectionSaved():
                return self, []  # that it leads is on disk as a hint to its next start; nothing waits for it
        raise AssertionError(f"{event} while leading")

    def _committed(self) -> tuple[Leader, list[Effect]]:
        """With one voter the majority is its own copy."""
        high_watermark = self.flushed_end_offset
        if high_watermark <= max(self.high_watermark, self.epoch_start_offset):
            return self, []
        return self._replace(high_watermark=high_watermark), [Commit(high_watermark)]
