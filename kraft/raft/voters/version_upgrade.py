"""The upgrade from static voters to voters that are in the log: kraft.version 0 to 1, in one batch (KIP-853).

The configuration names voters by id alone. So each voter describes itself to each new leader (UpdateRaftVoter): its
directory id, its endpoints and the versions that it supports. The leader keeps the descriptions in memory for an
upgrade.
"""

from __future__ import annotations

from moldau.kraft.features import KRAFT_VERSION
from moldau.kraft.quorum.control_records import quorum_records
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.kraft.raft.events import Append
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.voters.voter_description import own_description


class VersionUpgrade:
    """The upgrade of kraft.version during one leader's term."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        own = own_description(member)
        self._described: dict[int, VoterNode] = {own.id: own}

    def describe(self, voter: VoterNode) -> None:
        """Store the description of itself that a static voter sent."""
        self._described[voter.id] = voter

    def refusal(self, version: int) -> str | None:
        """Why kraft.version cannot be changed to `version`; None if it can, or is that version already."""
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
        """Write the records of the version and the voters. If the log has that version already, write nothing."""
        member = self._member
        assert self.refusal(version) is None, "an upgrade that was refused"
        if version > member.history.kraft_version:
            voters = VoterSet.from_voters(self._described[voter_id] for voter_id in member.voters.ids)
            member.put(Append(member.epoch, quorum_records(version, voters, member.wall_ms)))

    def _supports(self, voter_id: int, version: int) -> bool:
        """Whether a voter supports the version.

        A voter that sent no description may be of a release that supports static voters alone.
        """
        voter = self._described.get(voter_id)
        return voter is not None and voter.kraft_versions.first <= version <= voter.kraft_versions.last


def version_text(version: int) -> str:
    """The name of a kraft.version in Apache Kafka's messages."""
    return f"KRAFT_VERSION_{version}"
