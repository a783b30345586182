"""The control records of the metadata log and of its snapshots: how they are made and read."""

from __future__ import annotations

from moldau.kraft.quorum.voter_set import VoterSet
from moldau.protocol.compiler import decode, encode
from moldau.protocol.control_records import ControlRecordType, control_record_type, encode_control_key
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.protocol.record_builder import Record
from moldau.protocol.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)


class QuorumDescription(NamedTuple):
    """The quorum as control records describe it: the kraft.version and the voters. `voters` is None if no record names
    them."""

    kraft_version: int = 0
    voters: VoterSet | None = None


def control_record(kind: ControlRecordType, value: object, now_ms: int) -> Record:
    """Make a control record. All values are written in version 0."""
    return Record(encode_control_key(kind), encode(value, 0), now_ms)


def leader_change(leader_id: int, voters: VoterSet, granting: tuple[int, ...], now_ms: int) -> Record:
    message = LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in voters.ids],
        granting_voters=[LeaderChangeVoter(voter_id=voter_id) for voter_id in granting],
    )
    return control_record(ControlRecordType.LEADER_CHANGE, message, now_ms)


def quorum_records(kraft_version: int, voters: VoterSet, now_ms: int) -> list[Record]:
    """The control records of the kraft.version and the voters.

    With kraft.version 0 there are none, because the configuration names the voters.
    """
    if kraft_version == 0:
        return []
    version = KRaftVersionRecord(version=0, k_raft_version=kraft_version)
    return [control_record(ControlRecordType.KRAFT_VERSION, version, now_ms), voters_record(voters, now_ms)]


def voters_record(voters: VoterSet, now_ms: int) -> Record:
    return control_record(ControlRecordType.KRAFT_VOTERS, voters.to_record(), now_ms)


def snapshot_header(last_contained_ms: int, now_ms: int) -> Record:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_ms)
    return control_record(ControlRecordType.SNAPSHOT_HEADER, header, now_ms)


def snapshot_footer(now_ms: int) -> Record:
    return control_record(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0), now_ms)


def quorum_after(record: Record, before: QuorumDescription) -> QuorumDescription:
    """The description of the quorum after one more control record. Raises `MalformedMessage`."""
    kind = control_record_type(record.key)
    if kind is ControlRecordType.KRAFT_VERSION:
        version = decode(KRaftVersionRecord, value_of(record), 0)
        return before._replace(kraft_version=version.k_raft_version)
    if kind is ControlRecordType.KRAFT_VOTERS:
        return before._replace(voters=VoterSet.from_record(decode(VotersRecord, value_of(record), 0)))
    return before


def value_of(record: Record) -> bytes:
    if record.value is None:
        raise MalformedMessage("a control record has no value")
    return record.value
