"""The descriptions of the quorum (kraft.version and voters) that the metadata log has at each offset.

The newest description is in force, whether it is committed or not (Raft, section 6).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterSet

BEFORE_THE_LOG: Final = -1
"""The offset of a description that comes from the bootstrap checkpoint. Such a description is not in the log, so no
other node has read it."""


class QuorumHistory:
    """The descriptions of the quorum in the order of the log. The offset of a description is the base offset of its
    batch; the description of a snapshot has the snapshot's end offset - 1.

    With kraft.version 0 the log has no voter set, and the voters of the configuration are in force.
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
        """The offset of the newest description.

        The description is committed once the high watermark is above this offset.
        """
        return self._entries[-1][0] if self._entries else BEFORE_THE_LOG

    @property
    def voters_before(self) -> VoterSet:
        """The voter set before the newest description. It is in force again if that description is truncated."""
        return self._voters(self._entries[-2][1]) if len(self._entries) > 1 else self.voters

    @property
    def is_in_log(self) -> bool:
        """Whether the newest description is in the log, so that other nodes may have read it."""
        return self.last_offset > BEFORE_THE_LOG

    def description_at(self, end_offset: int) -> QuorumDescription:
        """The description that is in force at `end_offset`. A snapshot that ends at this offset includes it."""
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
        """Drop the descriptions from this offset on, because the log now ends there. The last remaining description is
        in force."""
        del self._entries[self._index(end_offset) :]

    def replace(self, end_offset: int, description: QuorumDescription) -> None:
        """Replace all descriptions by that of a snapshot that ends at `end_offset` and has replaced the log."""
        self._entries = [(end_offset - 1, description)]

    def forget(self, start_offset: int) -> None:
        """Drop the descriptions that the log no longer needs, because it now starts at `start_offset`. The last
        description before that offset is kept, because it is in force at the offset."""
        del self._entries[: max(0, self._index(start_offset) - 1)]

    def _index(self, end_offset: int) -> int:
        return bisect_left(self._entries, end_offset, key=lambda entry: entry[0])

    def _voters(self, description: QuorumDescription) -> VoterSet:
        voters = description.voters
        return self._static_voters if description.kraft_version == 0 or voters is None else voters
