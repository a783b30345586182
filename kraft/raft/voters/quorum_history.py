"""The quorum as the log describes it at each offset: the newest description holds, committed or not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from kraft.raft.control_records import QuorumDescription
from kraft.raft.voters.voters import VoterSet

BEFORE_THE_LOG: Final = -1
"""The offset of what the bootstrap checkpoint says: no other node has read it."""


class QuorumHistory:
    """A description stands at the base offset of the batch that wrote it, what a snapshot says at its end offset - 1.

    With kraft.version 0 the log names no voters: those of the configuration hold.
    """

    def __init__(self, static_voters: VoterSet, entries: Iterable[tuple[int, QuorumDescription]] = ()) -> None:
        self._static_voters = static_voters
        self._entries = list(entries)

    @property
    def kraft_version(self) -> int:
        return self._entries[-1][1].kraft_version if self._entries else 0

    @property
    def voters(self) -> VoterSet:
        return self._voters(self._entries[-1][1]) if self._entries else self._static_voters

    @property
    def description(self) -> QuorumDescription:
        return QuorumDescription(self.kraft_version, self.voters)

    @property
    def last_offset(self) -> int:
        """Where the newest description stands; committed once the high watermark is past it."""
        return self._entries[-1][0] if self._entries else BEFORE_THE_LOG

    @property
    def voters_before(self) -> VoterSet:
        """Those before the newest description: they hold again where that is never committed."""
        return self._voters(self._entries[-2][1]) if len(self._entries) > 1 else self.voters

    @property
    def is_in_log(self) -> bool:
        """Whether other nodes can have read it."""
        return self.last_offset > BEFORE_THE_LOG

    def description_at(self, end_offset: int) -> QuorumDescription:
        """As everything before this offset leaves it: what a snapshot that ends there says."""
        index = self._index(end_offset)
        if index == 0:
            return QuorumDescription(0, self._static_voters)
        found = self._entries[index - 1][1]
        return QuorumDescription(found.kraft_version, self._voters(found))

    def append(self, entries: Iterable[tuple[int, QuorumDescription]]) -> None:
        for offset, description in entries:
            assert offset > self.last_offset, "descriptions come in the order of the log"
            self._entries.append((offset, description))

    def truncate(self, end_offset: int) -> None:
        """The log ends here now: an older description holds again."""
        del self._entries[self._index(end_offset) :]

    def replace(self, end_offset: int, description: QuorumDescription) -> None:
        """A snapshot has taken the place of the log."""
        self._entries = [(end_offset - 1, description)]

    def forget(self, start_offset: int) -> None:
        """The log starts here now: keep what holds from there on."""
        del self._entries[: max(0, self._index(start_offset) - 1)]

    def _index(self, end_offset: int) -> int:
        return bisect_left(self._entries, end_offset, key=lambda entry: entry[0])

    def _voters(self, description: QuorumDescription) -> VoterSet:
        voters = description.voters
        return self._static_voters if description.kraft_version == 0 or voters is None else voters
