"""The voters of the quorum, as a VotersRecord or controller.quorum.voters names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.kraft.features import KRAFT_VERSION, SUPPORTED_FEATURES, SupportedRange
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.control import KRaftVersionFeature, VotersRecord, VotersRecordEndpoint, VotersRecordVoter
from moldau.protocol.schema import ZERO_UUID

Address = tuple[str, int]


class ReplicaKey(NamedTuple):
    """The key of a replica of the metadata log. A node id with another directory id is another replica."""

    id: int
    directory_id: bytes = ZERO_UUID


class VoterNode(NamedTuple):
    """A voter of the quorum. With kraft.version 0 voters have no directory id, and it is zero here."""

    id: int
    directory_id: bytes = ZERO_UUID
    endpoints: tuple[tuple[str, Address], ...] = ()
    """The addresses of the voter, each with the name of its controller listener."""
    kraft_versions: SupportedRange = SUPPORTED_FEATURES[KRAFT_VERSION]

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def is_replica(self, key: ReplicaKey) -> bool:
        """Whether this voter is the replica with this key. A voter without a directory id is any replica of its
        node."""
        return self.id == key.id and self.directory_id in (ZERO_UUID, key.directory_id)

    def is_described_as(self, other: VoterNode) -> bool:
        """Whether both voters have the same fields. The order of the endpoints does not count."""
        return self._replace(endpoints=()) == other._replace(endpoints=()) and dict(self.endpoints) == dict(
            other.endpoints
        )

    def address(self, listener: str) -> Address | None:
        """The address of the voter at the listener with this name, or any other of its addresses if it has no such
        listener; None if it has no address."""
        by_name = dict(self.endpoints)
        return by_name.get(listener) or next(iter(by_name.values()), None)


class VoterSet(NamedTuple):
    by_id: Mapping[int, VoterNode]

    @classmethod
    def from_voters(cls, voters: Iterable[VoterNode]) -> VoterSet:
        return cls({voter.id: voter for voter in sorted(voters)})

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.from_voters(
            VoterNode(
                voter.voter_id,
                voter.voter_directory_id,
                tuple((point.name, (point.host, point.port)) for point in voter.endpoints),
                SupportedRange(
                    voter.k_raft_version_feature.min_supported_version,
                    voter.k_raft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.by_id)

    @property
    def majority(self) -> int:
        """The number of voters that is a majority."""
        return len(self.by_id) // 2 + 1

    def is_only(self, voter_id: int) -> bool:
        return self.ids == (voter_id,)

    def has(self, key: ReplicaKey) -> bool:
        voter = self.by_id.get(key.id)
        return voter is not None and voter.is_replica(key)

    def others(self, node_id: int) -> list[VoterNode]:
        return [voter for voter in self.by_id.values() if voter.id != node_id]

    def with_voter(self, voter: VoterNode) -> VoterSet:
        """The voter set with the voter added. A voter with the same id is replaced."""
        return VoterSet.from_voters([*self.others(voter.id), voter])

    def without_voter(self, voter_id: int) -> VoterSet:
        return VoterSet.from_voters(self.others(voter_id))

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=voter.id,
                    voter_directory_id=voter.directory_id,
                    endpoints=[
                        VotersRecordEndpoint(name=name, host=host, port=port) for name, (host, port) in voter.endpoints
                    ],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions.first,
                        max_supported_version=voter.kraft_versions.last,
                    ),
                )
                for voter in self.by_id.values()
            ],
        )
