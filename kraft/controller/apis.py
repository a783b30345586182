"""The table of the controller's APIs: each row a request class and the handler that decides on it.

A new API is one declaration (`protocol/messages/`), one handler (a function of the context and the request to a
`Decision`) and one row here. A handler whose request type is not that of its row is a type error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar, cast

from kraft.controller.broker_lifecycle import heartbeat
from kraft.controller.broker_registration import register_broker
from kraft.controller.config_control import alter_configs, incremental_alter_configs
from kraft.controller.context import DecisionContext
from kraft.controller.controller_registration import register_controller
from kraft.controller.decision import Decision
from kraft.controller.directory_assignment import assign_replicas
from kraft.controller.elections import elect_leaders
from kraft.controller.feature_control import update_features
from kraft.controller.in_sync_control import alter_partition
from kraft.controller.partition_creation import create_partitions
from kraft.controller.producer_id_control import allocate_producer_ids
from kraft.controller.reassignment import alter_reassignments, list_reassignments
from kraft.controller.topic_creation import create_topics
from kraft.controller.topic_deletion import delete_topics
from kraft.controller.unregistration import unregister_broker
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.create_partitions import CreatePartitionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.messages.update_features import UpdateFeaturesRequest

Request = TypeVar("Request")
Decide = Callable[[DecisionContext, Request], Decision]


class ControllerApi(NamedTuple):
    """One row. Made by `api`, which checks that the two belong together."""

    request: type[object]
    decide: Decide[object]


def api(request: type[Request], decide: Decide[Request]) -> ControllerApi:
    """A row. It is looked up by the class of the request, so `decide` meets no other."""
    return ControllerApi(request, cast("Decide[object]", decide))


ControllerApis = Mapping[type[object], ControllerApi]


def table_of(rows: Iterable[ControllerApi]) -> ControllerApis:
    """The rows by the class of their request."""
    table: dict[type[object], ControllerApi] = {}
    for row in rows:
        assert row.request not in table, f"{row.request.__name__} has two handlers"
        table[row.request] = row
    return MappingProxyType(table)


CONTROLLER_APIS: Final = table_of(
    (
        api(AllocateProducerIdsRequest, allocate_producer_ids),
        api(AlterConfigsRequest, alter_configs),
        api(AlterPartitionReassignmentsRequest, alter_reassignments),
        api(AlterPartitionRequest, alter_partition),
        api(AssignReplicasToDirsRequest, assign_replicas),
        api(BrokerHeartbeatRequest, heartbeat),
        api(BrokerRegistrationRequest, register_broker),
        api(ControllerRegistrationRequest, register_controller),
        api(CreatePartitionsRequest, create_partitions),
        api(CreateTopicsRequest, create_topics),
        api(DeleteTopicsRequest, delete_topics),
        api(ElectLeadersRequest, elect_leaders),
        api(IncrementalAlterConfigsRequest, incremental_alter_configs),
        api(ListPartitionReassignmentsRequest, list_reassignments),
        api(UnregisterBrokerRequest, unregister_broker),
        api(UpdateFeaturesRequest, update_features),
    )
)
