"""AddRaftVoter (API 80): make an observer of the metadata quorum a voter."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, UInt16, Uuid, empty, message, nullable, since, struct


@struct
class Listener:
    name: str
    host: str
    port: UInt16


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: Annotated[str | None, nullable()]
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener] = empty()
    ack_when_committed: Annotated[bool, since(1)] = True


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
