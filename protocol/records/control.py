"""The values of control records: leader changes, snapshot headers and footers, kraft.version, voters, transaction
markers."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid, empty, message, since, struct


@struct
class LeaderChangeVoter:
    voter_id: Int32
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeVoter] = empty()
    granting_voters: list[LeaderChangeVoter] = empty()


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    version: Int16
    last_contained_log_timestamp: Int64


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    version: Int16


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    version: Int16
    k_raft_version: Int16


@struct
class VotersRecordEndpoint:
    name: str
    host: str
    port: UInt16


@struct
class KRaftVersionFeature:
    min_supported_version: Int16
    max_supported_version: Int16


@struct
class VotersRecordVoter:
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[VotersRecordEndpoint] = empty()
    k_raft_version_feature: KRaftVersionFeature


@message(versions="0", flexible="0+")
class VotersRecord:
    version: Int16
    voters: list[VotersRecordVoter] = empty()


@message(versions="0", flexible="none")
class EndTxnMarker:
    coordinator_epoch: Int32
