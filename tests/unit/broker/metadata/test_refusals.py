"""The response to a request on which no controller decided, for every API that brokers forward."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moldau.broker.metadata.refusals import PARTS, error_of, failed_write_response
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasResponse, ResponseEntryData
from moldau.protocol.messages.alter_partition import AlterPartitionRequest
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest
from moldau.protocol.messages.controller_registration import ControllerRegistrationRequest
from moldau.protocol.messages.create_acls import AclCreationResult
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from moldau.protocol.messages.create_topics import CreatableTopicResult
from moldau.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from moldau.protocol.messages.delete_topics import DeletableTopicResult
from moldau.protocol.refusals import refused_with_text
from moldau.protocol.schema import default_struct, response_class_of, spec_of


@pytest.mark.parametrize(
    "kind",
    [
        AllocateProducerIdsRequest,
        AlterPartitionRequest,
        BrokerHeartbeatRequest,
        BrokerRegistrationRequest,
        ControllerRegistrationRequest,
    ],
)
def test_what_a_node_itself_asks_of_the_controller_can_be_refused(kind: type[object]) -> None:
    response = refused_with_text(default_struct(kind), None, ErrorCode.REQUEST_TIMED_OUT)
    assert error_of(response) is ErrorCode.REQUEST_TIMED_OUT
    assert encode(response, spec_of(response_class_of(kind)).versions.last)


PART: dict[str, Callable[[], object]] = {
    "topics": lambda: CreatableTopicResult(name="t", num_partitions=1),
    "results": lambda: AclCreationResult(error_code=0, error_message=None),
    "entries": lambda: ResponseEntryData(error_code=0, error_message=None, entity=[]),
    "filter_results": lambda: DeleteAclsFilterResult(matching_acls=[default_struct(DeleteAclsMatchingAcl)]),
    "responses": lambda: DeletableTopicResult(name="t"),
}


@pytest.mark.parametrize("kind", CONTROLLER_APIS, ids=lambda kind: kind.__name__)
def test_a_decision_that_was_not_written_is_an_error_in_the_response_of_each_api(kind: type[object]) -> None:
    """Without it, a full disk would acknowledge what nothing holds."""
    success = default_struct(response_class_of(kind))
    if not hasattr(success, "error_code"):
        (name,) = (each for each in PARTS if hasattr(success, each))
        getattr(success, name).append(PART[name]())
    response = failed_write_response(success, ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    assert error_of(response) is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_response_has_nothing_of_a_change_that_was_not_made() -> None:
    token = default_struct(CreateDelegationTokenResponse)
    token.hmac, token.throttle_time_ms = b"secret", 7
    failed = failed_write_response(token, ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    assert isinstance(failed, CreateDelegationTokenResponse)
    assert (failed.hmac, failed.throttle_time_ms) == (default_struct(CreateDelegationTokenResponse).hmac, 7)
    deleted = DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(matching_acls=[default_struct(DeleteAclsMatchingAcl)])]
    )
    (part,) = failed_write_response(deleted, ErrorCode.KAFKA_STORAGE_ERROR, "no room").filter_results  # type: ignore[attr-defined]
    assert (part.matching_acls, part.error_message) == ([], "no room")


def test_a_refusal_keeps_its_reason_where_other_parts_were_not_written() -> None:
    parts = [
        ResponseEntryData(error_code=ErrorCode.INVALID_REQUEST, error_message="why", entity=[]),
        ResponseEntryData(error_code=0, error_message=None, entity=[]),
    ]
    failed_write_response(AlterClientQuotasResponse(entries=parts), ErrorCode.KAFKA_STORAGE_ERROR, "no room")
    assert [(each.error_code, each.error_message) for each in parts] == [
        (ErrorCode.INVALID_REQUEST, "why"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "no room"),
    ]
