"""RemoveRaftVoter (API 81): make a voter of the metadata quorum an observer."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, Uuid, message, nullable


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: Annotated[str | None, nullable()]
    voter_id: Int32
    voter_directory_id: Uuid


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
