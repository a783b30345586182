"""UpdateRaftVoter (API 82): a voter reports its endpoints and supported versions to the leader."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, UInt16, Uuid, empty, message, nullable, struct, tag


@struct
class Listener:
    name: str
    host: str
    port: UInt16


@struct
class KRaftVersionFeature:
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    cluster_id: Annotated[str | None, nullable()]
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener] = empty()
    k_raft_version_feature: KRaftVersionFeature


@struct
class CurrentLeader:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str = ""
    port: Int32 = 0


@message(key=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: Annotated[CurrentLeader | None, tag(0)] = None
