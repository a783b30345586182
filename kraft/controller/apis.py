"""The table of the controller's APIs: for each request class, the handler that decides on it and how it is authorized.

A new API is one declaration (`protocol/messages/`), one handler (a function of the context and the request to a
`Decision`) and one row here. A handler whose request type is not that of its row is a type error. If the authorization
or the lists of an API need more than a row can say, the API also has a module and a line in `broker/apis/`. The module
then takes precedence over the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar, cast

from moldau.kraft.controller.config_control import (
    alter_configs,
    incremental_alter_configs,
)
from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.feature_control import update_features
from moldau.kraft.controller.nodes.broker_lifecycle import heartbeat
from moldau.kraft.controller.nodes.broker_registration import register_broker, unregister_broker
from moldau.kraft.controller.nodes.controller_registration import register_controller, unregister_controller
from moldau.kraft.controller.partitions.directory_assignment import assign_replicas
from moldau.kraft.controller.partitions.elections import elect_leaders
from moldau.kraft.controller.partitions.in_sync_control import alter_partition
from moldau.kraft.controller.partitions.reassignment import (
    alter_reassignments,
    list_reassignments,
)
from moldau.kraft.controller.producer_id_control import allocate_producer_ids
from moldau.kraft.controller.security.acl_control import create_acls, delete_acls
from moldau.kraft.controller.security.quota_control import alter_client_quotas
from moldau.kraft.controller.security.scram_control import alter_scram_credentials
from moldau.kraft.controller.security.token_control import create_token, expire_token, renew_token
from moldau.kraft.controller.topics.partition_creation import create_partitions
from moldau.kraft.controller.topics.topic_creation import create_topics
from moldau.kraft.controller.topics.topic_deletion import delete_topics
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from moldau.protocol.messages.alter_configs import AlterConfigsRequest
from moldau.protocol.messages.alter_partition import AlterPartitionRequest
from moldau.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from moldau.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from moldau.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest
from moldau.protocol.messages.controller_registration import ControllerRegistrationRequest
from moldau.protocol.messages.create_acls import CreateAclsRequest
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.delete_acls import DeleteAclsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from moldau.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.unregister_controller import UnregisterControllerRequest
from moldau.protocol.messages.update_features import UpdateFeaturesRequest
from moldau.security.access import AclOperation

Request = TypeVar("Request")
DecideFunction = Callable[[DecisionContext, Request], Decision]
ENTRIES_MAX: Final = 1_000
"""The most entries of a list that the controller decides in one step. It limits lists of settings, brokers or log
directories, of which a cluster has few.
"""


class ControllerApi(NamedTuple):
    """One row of the table of the controller's APIs. It is made by `api`, which checks that the handler takes the
    request."""

    request: type[object]
    decide: DecideFunction[object]
    is_for_clients: bool
    """Whether clients send this API to brokers, which forward it to the controller.

    Otherwise nodes of the cluster send it to the controller.
    """
    is_forwardable: bool
    """Whether the request may arrive inside an Envelope."""
    operation: AclOperation
    """The operation on the cluster that the sender of the request must be allowed."""
    lists_decided_in_parts: Sequence[tuple[str, str]]
    """The lists of the request that are decided part by part, each with the list of the response for the results. Both
    are paths of field names.
    """
    list_size_limits: Mapping[str, int]
    """The maximum size of each list that is decided in one step, by its path. DIVERGES: a request with more is refused
    with INVALID_REQUEST; Apache Kafka has no such limits.
    """


def api(
    request: type[Request],
    decide: DecideFunction[Request],
    *,
    is_for_clients: bool = False,
    is_forwardable: bool | None = None,
    operation: AclOperation = AclOperation.CLUSTER_ACTION,
    cut: Sequence[tuple[str, str]] = (),
    bounds: Mapping[str, int] = MappingProxyType({}),
) -> ControllerApi:
    """Make the row of an API for a request class and its handler.

    `is_forwardable` says whether brokers forward the request; by default they forward the requests of clients.
    `operation` is the operation on the cluster that the sender must be allowed; the default is one that nodes of the
    cluster have. `cut` and `bounds` become `lists_decided_in_parts` and `list_size_limits` of the row.
    """
    return ControllerApi(
        request,
        cast("DecideFunction[object]", decide),
        is_for_clients,
        is_for_clients if is_forwardable is None else is_forwardable,
        operation,
        cut,
        bounds,
    )


REQUESTS_WITH_TIMEOUT: Final[frozenset[type[object]]] = frozenset(
    {
        AlterPartitionReassignmentsRequest,
        CreatePartitionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        ElectLeadersRequest,
    }
)
"""The requests with a timeout. If their `timeout_ms` is 0 or less, the response is REQUEST_TIMED_OUT and nothing is
decided."""


def is_out_of_time(request: object) -> bool:
    """Whether a request is answered with REQUEST_TIMED_OUT, because its timeout is 0 or less. As in Apache Kafka, the
    timeout of a reassignment without topics is ignored.
    """
    if isinstance(request, AlterPartitionReassignmentsRequest) and not request.topics:
        return False
    return type(request) in REQUESTS_WITH_TIMEOUT and getattr(request, "timeout_ms", 1) <= 0


ControllerApis = Mapping[type[object], ControllerApi]


def apis_by_request_class(rows: Iterable[ControllerApi]) -> ControllerApis:
    """The rows as a mapping from the class of their request. Asserts that no class has two rows."""
    table: dict[type[object], ControllerApi] = {}
    for row in rows:
        assert row.request not in table, f"{row.request.__name__} has two handlers"
        table[row.request] = row
    return MappingProxyType(table)


CONTROLLER_APIS: Final = apis_by_request_class(
    (
        api(AllocateProducerIdsRequest, allocate_producer_ids, is_forwardable=True),
        api(
            AlterClientQuotasRequest,
            alter_client_quotas,
            is_for_clients=True,
            operation=AclOperation.ALTER_CONFIGS,
            cut=[("entries", "entries")],
            bounds={"entries.entity": ENTRIES_MAX // 10, "entries.ops": ENTRIES_MAX},
        ),
        api(AlterConfigsRequest, alter_configs, is_for_clients=True),
        api(
            AlterPartitionReassignmentsRequest,
            alter_reassignments,
            is_for_clients=True,
            operation=AclOperation.ALTER,
            cut=[("topics.partitions", "responses.partitions")],
            bounds={"topics.partitions.replicas": ENTRIES_MAX},
        ),
        api(
            AlterPartitionRequest,
            alter_partition,
            cut=[("topics.partitions", "topics.partitions")],
            bounds={"topics.partitions.new_isr": ENTRIES_MAX, "topics.partitions.new_isr_with_epochs": ENTRIES_MAX},
        ),
        api(
            AlterUserScramCredentialsRequest,
            alter_scram_credentials,
            is_for_clients=True,
            operation=AclOperation.ALTER,
            cut=[("deletions", "results"), ("upsertions", "results")],
        ),
        api(
            AssignReplicasToDirsRequest,
            assign_replicas,
            cut=[("directories.topics.partitions", "directories.topics.partitions")],
        ),
        api(
            BrokerHeartbeatRequest,
            heartbeat,
            bounds={"offline_log_dirs": ENTRIES_MAX, "cordoned_log_dirs": ENTRIES_MAX},
        ),
        api(
            BrokerRegistrationRequest,
            register_broker,
            bounds={"listeners": ENTRIES_MAX, "features": ENTRIES_MAX, "log_dirs": ENTRIES_MAX},
        ),
        api(
            ControllerRegistrationRequest,
            register_controller,
            bounds={"listeners": ENTRIES_MAX, "features": ENTRIES_MAX},
        ),
        api(
            CreateAclsRequest,
            create_acls,
            is_for_clients=True,
            operation=AclOperation.ALTER,
            cut=[("creations", "results")],
        ),
        api(CreateDelegationTokenRequest, create_token, is_for_clients=True),
        api(CreatePartitionsRequest, create_partitions, is_for_clients=True),
        api(CreateTopicsRequest, create_topics, is_for_clients=True),
        api(
            DeleteAclsRequest,
            delete_acls,
            is_for_clients=True,
            operation=AclOperation.ALTER,
            cut=[("filters", "filter_results")],
        ),
        api(DeleteTopicsRequest, delete_topics, is_for_clients=True),
        api(
            ElectLeadersRequest,
            elect_leaders,
            is_for_clients=True,
            operation=AclOperation.ALTER,
            cut=[("topic_partitions.partitions", "replica_election_results.partition_result")],
        ),
        api(ExpireDelegationTokenRequest, expire_token, is_for_clients=True),
        api(
            IncrementalAlterConfigsRequest,
            incremental_alter_configs,
            is_for_clients=True,
        ),
        api(
            ListPartitionReassignmentsRequest,
            list_reassignments,
            is_for_clients=True,
            operation=AclOperation.DESCRIBE,
            cut=[("topics.partition_indexes", "topics.partitions")],
        ),
        api(RenewDelegationTokenRequest, renew_token, is_for_clients=True),
        api(UnregisterBrokerRequest, unregister_broker, is_for_clients=True, operation=AclOperation.ALTER),
        api(UnregisterControllerRequest, unregister_controller, is_for_clients=True, operation=AclOperation.ALTER),
        api(
            UpdateFeaturesRequest,
            update_features,
            is_for_clients=True,
            operation=AclOperation.ALTER,
            bounds={"feature_updates": ENTRIES_MAX},
        ),
    )
)
