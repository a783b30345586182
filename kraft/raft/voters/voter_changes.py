"""Changes of the voters, one at a time: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853).

    requested  the new voter names the versions that it supports (add only)        ⟶ written
    written    the voters record is in the log, and counts from there on           ⟶ committed: the response is sent

A change begins only after the leader has committed a record of its own term, and after the last change is committed.
So the majority before a change and the majority after it always have a voter in common.
"""

from __future__ import annotations

from typing import Final

from moldau.kraft.features import KRAFT_VERSION, SupportedRange
from moldau.kraft.quorum.control_records import voters_record
from moldau.kraft.quorum.voter_set import ReplicaKey, VoterNode, VoterSet
from moldau.kraft.raft.events import Append, Destination, QuorumResponse, RequestReceived, Respond, ResponseReceived
from moldau.kraft.raft.member import QuorumMember
from moldau.kraft.raft.replica_states import ReplicaStates
from moldau.kraft.raft.responses import update_voter_response
from moldau.kraft.raft.voters.version_upgrade import VersionUpgrade
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from moldau.protocol.schema import ZERO_UUID
from moldau.storage.checkpoints.partition_metadata import uuid_text

CAUGHT_UP_MS_MAX: Final = 3_600_000
"""The time (ms) within which a replica must have caught up with the log to be added as a voter. A slower replica is not
added, because it would delay commits.
"""
EARLIER_CHANGE_TIMEOUT_TEXT: Final = "Request timed out waiting for leader to handle previous voter change request"
HIGH_WATERMARK_TIMEOUT_TEXT: Final = (
    "Request timed out waiting for leader to establish HWM and fence previous voter changes"
)


class VoterChangeResult(NamedTuple):
    """The error and message of the response to a change of the voters. The error is NONE if the change is committed or
    was not needed."""

    error: ErrorCode
    message: str | None = None


class VoterChange(NamedTuple):
    """A change of the voters in progress.

    `event` is None once its response was sent; `offset` is None until the record is in the log.
    """

    event: RequestReceived | None
    voter: VoterNode
    voters: VoterSet
    """The voter set after the change."""
    deadline_ms: int
    offset: int | None = None


class VoterChanges:
    """The changes of the voter set during one term of the leader; at most one is in progress."""

    def __init__(self, member: QuorumMember, replicas: ReplicaStates, upgrade: VersionUpgrade) -> None:
        self._member = member
        self._replicas = replicas
        self._upgrade = upgrade
        self._change: VoterChange | None = None

    # Requests

    def add(self, event: RequestReceived, request: AddRaftVoterRequest, high_watermark: int) -> None:
        member = self._member
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple((each.name, (each.host, each.port)) for each in request.listeners)
        address = dict(endpoints).get(member.identity.listener)
        refusal = self._refusal_now(high_watermark, "adding")
        if key.id < 0 or key.directory_id == ZERO_UUID:
            refusal = VoterChangeResult(ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter")
        elif address is None:
            refusal = VoterChangeResult(
                ErrorCode.INVALID_REQUEST,
                f"Add voter request didn't include the endpoint ({text_of_endpoints(endpoints)}) for the default "
                f"listener ListenerName({member.identity.listener})",
            )
        elif refusal is None and key.id in member.voters.by_id:
            refusal = VoterChangeResult(
                ErrorCode.DUPLICATE_VOTER,
                f"The voter id for {text_of(key)} is already part of the set of voters"
                f" {text_of_voters(member.voters)}.",
            )
        if refusal is not None or address is None:
            self._answer(event, refusal or VoterChangeResult(ErrorCode.INVALID_REQUEST))
            return
        voter = VoterNode(key.id, key.directory_id, endpoints)
        deadline_ms = member.now_ms + max(0, request.timeout_ms)
        self._change = VoterChange(event, voter, member.voters.with_voter(voter), deadline_ms)
        member.peers.send(
            Destination(key.id, *address),
            ApiVersionsRequest(client_software_name="moldau-raft", client_software_version="1"),
        )

    def remove(self, event: RequestReceived, request: RemoveRaftVoterRequest, high_watermark: int) -> None:
        member = self._member
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        refusal = self._refusal_now(high_watermark, "removing")
        voter = member.voters.by_id.get(key.id)
        if key.id < 0 or key.directory_id == ZERO_UUID:
            refusal = VoterChangeResult(ErrorCode.INVALID_REQUEST, "Remove voter request didn't include a valid voter")
        elif refusal is None and (voter is None or voter.key != key or member.voters.is_only(key.id)):
            refusal = _not_found(key, member.voters)
        if refusal is not None or voter is None:
            self._answer(event, refusal or VoterChangeResult(ErrorCode.VOTER_NOT_FOUND))
            return
        deadline_ms = member.now_ms + member.settings.request_timeout_ms
        self._write(VoterChange(event, voter, member.voters.without_voter(key.id), deadline_ms))

    def update(self, event: RequestReceived, request: UpdateRaftVoterRequest, high_watermark: int) -> None:
        member = self._member
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple((each.name, (each.host, each.port)) for each in request.listeners)
        feature = request.k_raft_version_feature
        versions = SupportedRange(feature.min_supported_version, feature.max_supported_version)
        voter = member.voters.by_id.get(key.id)
        is_static = member.history.kraft_version == 0
        refusal = self._refusal_now(high_watermark, None)
        is_incomplete = member.identity.listener not in dict(endpoints) or key.id < 0 or key.directory_id == ZERO_UUID
        if is_incomplete or not versions.first <= member.history.kraft_version <= versions.last:
            refusal = VoterChangeResult(ErrorCode.INVALID_REQUEST)
        elif refusal is None and is_static:
            # A static voter is identified by its id; its endpoints and directory count once kraft.version is raised.
            refusal = VoterChangeResult(ErrorCode.VOTER_NOT_FOUND if voter is None else ErrorCode.NONE)
        elif refusal is None and (voter is None or voter.key != key):
            refusal = VoterChangeResult(ErrorCode.VOTER_NOT_FOUND)
        new = VoterNode(key.id, key.directory_id, endpoints, versions)
        if is_static and refusal is not None and refusal.error is ErrorCode.NONE:
            self._upgrade.describe(new)
        if refusal is None and voter is not None and voter.is_described_as(new):
            refusal = VoterChangeResult(ErrorCode.NONE)
        if refusal is not None:
            self._answer(event, refusal)
            return
        deadline_ms = member.now_ms + member.settings.request_timeout_ms
        self._write(VoterChange(event, new, member.voters.with_voter(new), deadline_ms))

    # Progress

    def on_response(self, event: ResponseReceived) -> None:
        """Handle the response of the new voter to ApiVersions; the response is None if the request failed or timed
        out."""
        change = self._change
        if change is None or change.event is None or change.offset is not None:
            return  # The change has ended in the meantime.
        refusal = self._refusal_of_new_voter(change.voter, event.response)
        if refusal is not None:
            self._end(refusal)
            return
        assert isinstance(event.response, ApiVersionsResponse)
        versions = kraft_versions_of(event.response)
        voter = change.voter._replace(kraft_versions=versions)
        change = change._replace(voter=voter, voters=change.voters.with_voter(voter))
        request = change.event.request if change.event is not None else None
        if isinstance(request, AddRaftVoterRequest) and not request.ack_when_committed and change.event is not None:
            self._answer(change.event, VoterChangeResult(ErrorCode.NONE))
            change = change._replace(event=None)
        self._write(change)

    def on_log_appended(self) -> None:
        change = self._change
        if change is not None and change.offset is None and self._member.voters == change.voters:
            self._change = change._replace(offset=self._member.history.last_offset)

    def on_commit(self, high_watermark: int) -> None:
        change = self._change
        if change is not None and change.offset is not None and change.offset < high_watermark:
            self._end(VoterChangeResult(ErrorCode.NONE))

    def tick(self) -> None:
        if self._change is not None and self._member.now_ms >= self._change.deadline_ms:
            self._end(VoterChangeResult(ErrorCode.REQUEST_TIMED_OUT))

    def end_term(self) -> None:
        """End the change in progress with an error, because this node no longer leads.

        Whether the change is committed depends on the next leader.
        """
        if self._change is not None:
            self._end(VoterChangeResult(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def deadline_ms(self) -> int | None:
        return None if self._change is None else self._change.deadline_ms

    # Rules

    def _refusal_now(self, high_watermark: int, doing: str | None) -> VoterChangeResult | None:
        """The reason why no change may begin now; None if a change may begin.

        `doing` names the change in the error message; None for a change that is also possible with kraft.version 0.
        """
        history = self._member.history
        if self._change is not None:
            return VoterChangeResult(ErrorCode.REQUEST_TIMED_OUT, EARLIER_CHANGE_TIMEOUT_TEXT)
        if high_watermark < 0:
            return VoterChangeResult(ErrorCode.REQUEST_TIMED_OUT, HIGH_WATERMARK_TIMEOUT_TEXT)
        if history.kraft_version == 0 and doing is not None:
            text = f"Cluster doesn't support {doing} voter because the {KRAFT_VERSION} feature is 0"
            return VoterChangeResult(ErrorCode.UNSUPPORTED_VERSION, text)
        if history.last_offset >= high_watermark:
            return VoterChangeResult(
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for voters to commit the latest voter change at "
                f"{history.last_offset} with {text_of_voters(history.voters)}",
            )
        return None

    def _refusal_of_new_voter(self, voter: VoterNode, response: object) -> VoterChangeResult | None:
        begin = f"Aborted add voter operation for {text_of(voter.key)} since"
        error = ErrorCode.BROKER_NOT_AVAILABLE
        if isinstance(response, ApiVersionsResponse):
            error = ErrorCode(response.error_code)
        if not isinstance(response, ApiVersionsResponse) or error is not ErrorCode.NONE:
            text = f"Aborted add voter operation for since API_VERSIONS returned an error {error.name}"
            return VoterChangeResult(ErrorCode.REQUEST_TIMED_OUT, text)
        versions, version = kraft_versions_of(response), self._member.history.kraft_version
        if not versions.first <= version <= versions.last:
            text = (
                f"{begin} the {KRAFT_VERSION} range {tuple(versions)} doesn't support the finalized version {version}"
            )
            return VoterChangeResult(ErrorCode.INVALID_REQUEST, text)
        progress = self._replicas.progress_of(voter.key)
        if (
            progress is None
            or progress.caught_up_ms < self._member.now_ms - CAUGHT_UP_MS_MAX
            or progress.caught_up_ms < 0
        ):
            return VoterChangeResult(ErrorCode.REQUEST_TIMED_OUT, f"{begin} it is lagging behind")
        return None

    # Ends

    def _write(self, change: VoterChange) -> None:
        self._change = change
        self._member.put(Append(self._member.epoch, [voters_record(change.voters, self._member.wall_ms)]))

    def _end(self, outcome: VoterChangeResult) -> None:
        change = self._change
        assert change is not None
        self._change = None
        if change.event is not None:
            self._answer(change.event, outcome)

    def _answer(self, event: RequestReceived, outcome: VoterChangeResult) -> None:
        error, text = outcome
        response: QuorumResponse
        match event.request:
            case AddRaftVoterRequest():
                response = AddRaftVoterResponse(error_code=error, error_message=text)
            case RemoveRaftVoterRequest():
                response = RemoveRaftVoterResponse(error_code=error, error_message=text)
            case _:
                response = update_voter_response(self._member, event.listener, error)
        self._member.put(Respond(event.token, response))


def kraft_versions_of(response: ApiVersionsResponse) -> SupportedRange:
    """The range of kraft.version that a node supports. A node of a release that reports no range supports version 0
    alone."""
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return SupportedRange(feature.min_version, feature.max_version)
    return SupportedRange(0, 0)


def text_of(key: ReplicaKey) -> str:
    return f"ReplicaKey(id={key.id}, directoryId={uuid_text(key.directory_id)})"


def text_of_voters(voters: VoterSet) -> str:
    return f"[{', '.join(text_of(voter.key) for voter in voters.by_id.values())}]"


def text_of_endpoints(endpoints: tuple[tuple[str, tuple[str, int]], ...]) -> str:
    """The endpoints as text, in the form of Apache Kafka's messages."""
    texts = (f"ListenerName({name})={host}/<unresolved>:{port}" for name, (host, port) in endpoints)
    return f"Endpoints(endpoints={{{', '.join(texts)}}})"


def _not_found(key: ReplicaKey, voters: VoterSet) -> VoterChangeResult:
    text = f"Cannot remove voter {text_of(key)} from the set of voters {text_of_voters(voters)}"
    return VoterChangeResult(ErrorCode.VOTER_NOT_FOUND, text)
