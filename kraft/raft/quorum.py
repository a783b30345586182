"""What the roles of a voter know of their quorum."""

from __future__ import annotations

from typing import NamedTuple

from kraft.raft.control_records import QuorumDescription
from kraft.raft.voters import Voters


class Quorum(NamedTuple):
    """`announces_voters`: the log does not name the voters yet (they stand in the 0-0 checkpoint), so that the next
    leader has to."""

    node_id: int
    directory_id: bytes
    kraft_version: int
    voters: Voters
    announces_voters: bool = False

    @property
    def description(self) -> QuorumDescription:
        return QuorumDescription(self.kraft_version, self.voters)
