"""The step from a quorum with static voters to one whose log names them: kraft.version 0 to 1, in one batch.

The configuration names voters by id alone, so a leader needs to hear from each of them which directory it votes with,
where it listens and what it speaks: it is told in UpdateRaftVoter, once a term, and keeps that in memory.
"""

from __future__ import annotations

from kraft.features import KRAFT_VERSION
from kraft.raft.control_records import quorum_records
from kraft.raft.events import Append
from kraft.raft.member import QuorumMember
from kraft.raft.voters.voter_description import own_description
from kraft.raft.voters.voters import VoterNode, VoterSet


class VersionUpgrade:
    """Of one leader's term."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        own = own_description(member)
        self._described: dict[int, VoterNode] = {own.id: own}

    def describe(self, voter: VoterNode) -> None:
        """What a static voter says of itself."""
        self._described[voter.id] = voter

    def refusal(self, version: int) -> str | None:
        """Why the log cannot go to this version; None where it can, or is there."""
        before = self._member.history.kraft_version
        if version < before:
            return (
                f"Invalid upgrade of {KRAFT_VERSION} from version {version_text(before)} to {version_text(version)}"
                " because the new version is a downgrade"
            )
        if version > before and not all(self._supports(voter_id, version) for voter_id in self._member.voters.ids):
            wanted = version_text(version)
            return f"Invalid upgrade of {KRAFT_VERSION} to {wanted} because not all of the voters support it"
        return None

    def write(self, version: int) -> None:
        """Nothing, where that version is in the log already."""
        member = self._member
        assert self.refusal(version) is None, "an upgrade that was refused"
        if version > member.history.kraft_version:
            voters = VoterSet.of(self._described[voter_id] for voter_id in member.voters.ids)
            member.put(Append(member.epoch, quorum_records(version, voters, member.wall_ms)))

    def _supports(self, voter_id: int, version: int) -> bool:
        """A voter that has not said so may be of a release that only knows static voters."""
        voter = self._described.get(voter_id)
        return voter is not None and voter.kraft_versions.first <= version <= voter.kraft_versions.last


def version_text(version: int) -> str:
    """As Apache Kafka names it."""
    return f"KRAFT_VERSION_{version}"
