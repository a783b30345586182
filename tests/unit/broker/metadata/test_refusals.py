"""The response to a request on which no controller decided, for every API that brokers forward."""

from __future__ import annotations

import pytest

from broker.metadata.refusals import error_of, refused
from protocol.compiler import encode
from protocol.errors import ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.schema import default_struct, response_class_of, spec_of


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
    response = refused(default_struct(kind), ErrorCode.REQUEST_TIMED_OUT)
    assert error_of(response) is ErrorCode.REQUEST_TIMED_OUT
    assert encode(response, spec_of(response_class_of(kind)).versions.last)
