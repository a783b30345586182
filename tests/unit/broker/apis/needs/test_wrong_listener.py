"""The column of the wrong listener: no listener serves, or decodes, a request that is of the other role.

Nor does an Envelope carry it to the controller, unless brokers pass the API on. The roles are those of Apache Kafka's
declarations, which name controllers too for DescribeDelegationToken and DescribeUserScramCredentials.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from moldau.broker.apis.api import Api
from moldau.broker.apis.catalogue import routes
from moldau.broker.apis.cluster import envelope
from moldau.broker.network.route import ListenerRole
from moldau.protocol.errors import ErrorCode
from moldau.protocol.frames import request_frame
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.security.access import Unrestricted
from tests.support.apis import APIS
from tests.unit.broker.apis.needs.test_matrix import BROKER, CONTROLLER, requests
from tests.unit.broker.network.test_connection import Wire

BOTH: Final = BROKER | CONTROLLER
PRINCIPAL: Final = b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
LOOPBACK: Final = b"\x7f\0\0\1"
NO_SERVICES: Final = cast("Any", None)
"""A handler that is reached fails."""


def names(words: str) -> frozenset[str]:
    return frozenset(words.split())


OF_CONTROLLERS: Final = names("""
    AllocateProducerIds AlterPartition AssignReplicasToDirs BeginQuorumEpoch BrokerHeartbeat
    BrokerRegistration ControllerRegistration EndQuorumEpoch Envelope FetchSnapshot UpdateRaftVoter Vote
""")
OF_BROKERS: Final = names("""
    AddOffsetsToTxn AddPartitionsToTxn AlterReplicaLogDirs ConsumerGroupDescribe ConsumerGroupHeartbeat
    DeleteGroups DeleteRecords DescribeClientQuotas
    DescribeDelegationToken DescribeGroups DescribeLogDirs DescribeProducers DescribeTopicPartitions
    DescribeTransactions DescribeUserScramCredentials EndTxn FindCoordinator GetTelemetrySubscriptions
    Heartbeat InitProducerId JoinGroup LeaveGroup ListConfigResources ListGroups ListOffsets ListTransactions
    Metadata OffsetCommit OffsetDelete OffsetFetch OffsetForLeaderEpoch Produce PushTelemetry
    StreamsGroupDescribe StreamsGroupHeartbeat StreamsGroupTopologyDescriptionUpdate SyncGroup TxnOffsetCommit
    WriteTxnMarkers
    AlterShareGroupOffsets DeleteShareGroupOffsets DescribeShareGroupOffsets
    ShareAcknowledge ShareFetch ShareGroupDescribe ShareGroupHeartbeat
    DeleteShareGroupState InitializeShareGroupState ReadShareGroupState ReadShareGroupStateSummary WriteShareGroupState
""")
OF_BOTH: Final = names("""
    AddRaftVoter AlterClientQuotas AlterConfigs AlterPartitionReassignments AlterUserScramCredentials
    ApiVersions CreateAcls CreateDelegationToken CreatePartitions CreateTopics DeleteAcls DeleteTopics
    DescribeAcls DescribeCluster DescribeConfigs DescribeQuorum ElectLeaders ExpireDelegationToken Fetch
    IncrementalAlterConfigs ListPartitionReassignments RemoveRaftVoter RenewDelegationToken SaslAuthenticate
    SaslHandshake UnregisterBroker UnregisterController UpdateFeatures
""")
ROLE_OF: Final = {
    **dict.fromkeys(OF_CONTROLLERS, CONTROLLER),
    **dict.fromkeys(OF_BROKERS, BROKER),
    **dict.fromkeys(OF_BOTH, BOTH),
}
WRONG: Final = [
    pytest.param(api, role, id=f"{api.name}-{role.name}")
    for api in APIS
    for role in (BROKER, CONTROLLER)
    if not api.listeners.role & role
]


def frames(api: Api[Any]) -> Iterator[bytes]:
    for version, request in requests(api):
        yield request_frame(request, version, 1)


def test_every_api_has_a_row_in_the_column() -> None:
    assert {api.name: api.listeners.role for api in APIS} == ROLE_OF


@pytest.mark.parametrize(("api", "role"), WRONG)
@pytest.mark.parametrize("is_guarded", [False, True], ids=["open", "authorizer"])
def test_a_request_at_the_wrong_listener_ends_its_connection(
    api: Api[Any], role: ListenerRole, is_guarded: bool
) -> None:
    served = routes(role, NO_SERVICES, is_guarded=is_guarded)
    for frame in frames(api):
        wire = Wire(cast("Any", None), buffer_size=1 << 20)
        wire.connection.routes = served
        wire.send(struct.pack(">i", len(frame)) + frame)
        assert wire.transport.is_closed and not wire.transport.written
    assert all(route.requests == 0 for route in served.values())


@pytest.mark.parametrize("api", [api for api in APIS if not api.listeners.is_forwardable], ids=lambda api: api.name)
def test_an_envelope_does_not_carry_what_brokers_do_not_pass_on(api: Api[Any]) -> None:
    """A request of the other role, one that only peers send, and an Envelope inside an Envelope."""
    served = routes(CONTROLLER, NO_SERVICES, is_guarded=True)
    listener = SimpleNamespace(routes=served, access_of=lambda principal, host: Unrestricted())
    context = SimpleNamespace(access=Unrestricted(), listener=listener, connection=None)
    for frame in frames(api):
        request = EnvelopeRequest(request_data=frame, request_principal=PRINCIPAL, client_host_address=LOOPBACK)
        response = envelope.handle(NO_SERVICES, cast("Any", context), request)
        assert isinstance(response, EnvelopeResponse)
        assert response.error_code == ErrorCode.INVALID_REQUEST and response.response_data is None
    assert all(route.requests == 0 for route in served.values())
