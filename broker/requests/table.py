"""The table of the APIs that this server serves. ApiVersions and `docs/protocol-support.md` are computed from it.

A new API is one declaration in `protocol/messages/`, one handler in `broker/requests/handlers/`, one row here. An API
that the controller decides is one declaration, one handler in `kraft/controller/` and one row in
`kraft/controller/apis.py`: it needs a row here only where brokers do more than forward it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.network.listener_role import ListenerRole
from broker.network.route import Route
from broker.requests.api import Api, api, route
from broker.requests.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    create_delegation_token,
    create_partitions,
    create_topics,
    decision,
    delete_groups,
    delete_records,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    end_txn,
    envelope,
    expire_delegation_token,
    fetch,
    find_coordinator,
    forwarded,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    quorum,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from broker.requests.produce_hook import ProduceHook
from broker.requests.services import Services
from kraft.controller.apis import CONTROLLER_APIS, ControllerApi
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.messages.add_raft_voter import AddRaftVoterRequest
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.describe_producers import DescribeProducersRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.envelope import EnvelopeRequest
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.push_telemetry import PushTelemetryRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from protocol.messages.vote import VoteRequest
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest

ROWS: Final = (
    api(ProduceRequest, broker=produce.handle, hook=ProduceHook),
    api(FetchRequest, broker=fetch.handle, controller=quorum.handle),
    api(ListOffsetsRequest, broker=list_offsets.handle),
    api(MetadataRequest, broker=metadata.handle),
    api(OffsetCommitRequest, broker=offset_commit.handle),
    api(OffsetFetchRequest, broker=offset_fetch.handle),
    api(FindCoordinatorRequest, broker=find_coordinator.handle),
    api(JoinGroupRequest, broker=join_group.handle),
    api(HeartbeatRequest, broker=heartbeat.handle),
    api(LeaveGroupRequest, broker=leave_group.handle),
    api(SyncGroupRequest, broker=sync_group.handle),
    api(DescribeGroupsRequest, broker=describe_groups.handle),
    api(ListGroupsRequest, broker=list_groups.handle),
    api(SaslHandshakeRequest, broker=sasl_handshake.handle, controller=sasl_handshake.handle),
    api(
        ApiVersionsRequest,
        broker=api_versions.handle,
        controller=api_versions.handle,
        refuse_version=api_versions.unsupported_version,
    ),
    api(CreateTopicsRequest, broker=create_topics.handle, controller=decision.handle, is_forwardable=True),
    api(DeleteRecordsRequest, broker=delete_records.handle),
    api(InitProducerIdRequest, broker=init_producer_id.handle),
    api(OffsetForLeaderEpochRequest, broker=offset_for_leader_epoch.handle),
    api(AddPartitionsToTxnRequest, broker=add_partitions_to_txn.handle),
    api(AddOffsetsToTxnRequest, broker=add_offsets_to_txn.handle),
    api(EndTxnRequest, broker=end_txn.handle),
    api(WriteTxnMarkersRequest, broker=write_txn_markers.handle),
    api(TxnOffsetCommitRequest, broker=txn_offset_commit.handle),
    api(DescribeAclsRequest, broker=describe_acls.handle, controller=describe_acls.handle),
    api(DescribeConfigsRequest, broker=describe_configs.handle, controller=describe_configs.handle),
    api(AlterConfigsRequest, broker=alter_configs.handle, controller=alter_configs.handle, is_forwardable=True),
    api(AlterReplicaLogDirsRequest, broker=alter_replica_log_dirs.handle),
    api(DescribeLogDirsRequest, broker=describe_log_dirs.handle),
    api(CreatePartitionsRequest, broker=create_partitions.handle, controller=decision.handle, is_forwardable=True),
    api(
        CreateDelegationTokenRequest,
        broker=create_delegation_token.handle,
        controller=create_delegation_token.decide,
        is_forwardable=True,
    ),
    api(
        RenewDelegationTokenRequest,
        broker=renew_delegation_token.handle,
        controller=decision.handle,
        is_forwardable=True,
    ),
    api(
        ExpireDelegationTokenRequest,
        broker=expire_delegation_token.handle,
        controller=decision.handle,
        is_forwardable=True,
    ),
    api(DescribeDelegationTokenRequest, broker=describe_delegation_token.handle),
    api(SaslAuthenticateRequest, broker=sasl_authenticate.handle, controller=sasl_authenticate.handle),
    api(DeleteGroupsRequest, broker=delete_groups.handle),
    api(
        IncrementalAlterConfigsRequest,
        broker=incremental_alter_configs.handle,
        controller=incremental_alter_configs.handle,
        is_forwardable=True,
    ),
    api(OffsetDeleteRequest, broker=offset_delete.handle),
    api(DescribeClientQuotasRequest, broker=describe_client_quotas.handle),
    api(DescribeUserScramCredentialsRequest, broker=describe_user_scram_credentials.handle),
    api(VoteRequest, controller=quorum.handle),
    api(BeginQuorumEpochRequest, controller=quorum.handle),
    api(EndQuorumEpochRequest, controller=quorum.handle),
    api(DescribeQuorumRequest, broker=forwarded.handle, controller=quorum.handle, is_forwardable=True),
    api(EnvelopeRequest, controller=envelope.handle),
    api(FetchSnapshotRequest, controller=quorum.handle),
    api(DescribeClusterRequest, broker=describe_cluster.handle, controller=describe_cluster.handle),
    api(DescribeProducersRequest, broker=describe_producers.handle),
    api(GetTelemetrySubscriptionsRequest, broker=get_telemetry_subscriptions.handle, is_advertised=False),
    api(PushTelemetryRequest, broker=push_telemetry.handle, is_advertised=False),
    api(DescribeTransactionsRequest, broker=describe_transactions.handle),
    api(ListTransactionsRequest, broker=list_transactions.handle),
    api(ListConfigResourcesRequest, broker=list_config_resources.handle),
    api(DescribeTopicPartitionsRequest, broker=describe_topic_partitions.handle),
    api(AddRaftVoterRequest, broker=forwarded.handle, controller=quorum.handle, is_forwardable=True),
    api(RemoveRaftVoterRequest, broker=forwarded.handle, controller=quorum.handle, is_forwardable=True),
    api(UpdateRaftVoterRequest, controller=quorum.handle),
)


def decided(row: ControllerApi) -> Api:
    """The row of an API of the controller: a controller's listener passes it to the controller; a broker forwards the
    requests of clients.
    """
    return api(
        row.request,
        broker=forwarded.handle if row.is_for_clients else None,
        controller=decision.handle,
        is_forwardable=row.is_forwardable,
    )


def table_of(rows: Iterable[Api], decided_rows: Iterable[ControllerApi]) -> tuple[Api, ...]:
    """The rows in the order of their keys; an explicit row takes precedence over that of the controller."""
    table = {row.request: decided(row) for row in decided_rows}
    table.update((row.request, row) for row in rows)
    return tuple(sorted(table.values(), key=lambda row: row.key))


APIS: Final = table_of(ROWS, CONTROLLER_APIS.values())


def routes(role: ListenerRole, services: Services, apis: Iterable[Api] = APIS) -> dict[int, Route]:
    """The routes of a listener of this role, by API key; their handlers use `services`."""
    return {row.key: route(row, role, services) for row in apis if row.role & role}
